"""What programs attach to sessions: files and memory stores, as entries of the record. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from fidelio.ledger.unit_of_work import RecordEvent
from fidelio.runtime import events as e


class SessionResource(msgspec.Struct, frozen=True, omit_defaults=True):
    """A resource of a session. `content` is that of its type, without secrets."""

    id: str
    type: str
    content: dict[str, Any] = {}
    created_at: int = 0
    updated_at: int = 0


class SessionSkill(msgspec.Struct, frozen=True):
    """An uploaded skill that a session has: its name, and the ids of the skill and of its version."""

    name: str
    skill_id: str
    version: str


SessionResources: TypeAlias = tuple[SessionResource, ...]
ResourceFold: TypeAlias = Callable[[SessionResources, RecordEvent], SessionResources]


def read_resource(item: Mapping[str, Any], now: int) -> SessionResource:
    return SessionResource(item["id"], item["type"], dict(item.get("content", {})), now, now)


def repeat_resources(resources: SessionResources) -> tuple[dict[str, Any], ...]:
    """The resources of a session for another that has the same: a fork of it, or a child."""
    return tuple({"id": each.id, "type": each.type, "content": each.content} for each in resources)


def _set_resource(resources: SessionResources, event: RecordEvent) -> SessionResources:
    """A resource was added, or its content was replaced."""
    new = read_resource(event.body, event.time)
    before = next((resource for resource in resources if resource.id == new.id), new)
    others = tuple(resource for resource in resources if resource.id != new.id)
    return (*others, replace(new, created_at=before.created_at))


def _remove_resource(resources: SessionResources, event: RecordEvent) -> SessionResources:
    return tuple(resource for resource in resources if resource.id != event.body["id"])


RESOURCE_FOLDS: Mapping[str, ResourceFold] = {
    e.RESOURCE_SET: _set_resource,
    e.RESOURCE_REMOVED: _remove_resource,
}

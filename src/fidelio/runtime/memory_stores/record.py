"""The memories of a store as its record has them, folded from the versions. Pure: no clock, no I/O.

The record is where a path is unique: a change is decided on it and committed on top of it, so two writers cannot both take a
path. It has at most as many entries as a store has memories, and never their contents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from fidelio.ledger.unit_of_work import RecordEvent
from fidelio.runtime import events as e

Operation: TypeAlias = Literal["created", "modified", "deleted"]
OPERATIONS: tuple[Operation, ...] = ("created", "modified", "deleted")


class Memory(msgspec.Struct, frozen=True):
    """A memory without its content. `version` is the sequence number of the event with the content, `sha256` its digest."""

    id: str
    path: str
    sha256: str
    size: int
    version: int
    created_at: int
    updated_at: int


class MemoriesRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The memories of a store by id."""

    entries: dict[str, Memory] = {}

    def find(self, path: str) -> Memory | None:
        return next((memory for memory in self.entries.values() if memory.path == path), None)


MemoriesFold: TypeAlias = Callable[[MemoriesRecord, RecordEvent], MemoriesRecord]


def describe_version(memory_id: str, operation: Operation, path: str, sha256: str = "", size: int = 0) -> dict[str, Any]:
    """The body of the event of a version. A redaction leaves the id and the operation, and empties `content`."""
    described = {"path": path} if operation == "deleted" else {"path": path, "sha256": sha256, "size": size}
    return {"memory_id": memory_id, "operation": operation, "content": described}


def _store_version(record: MemoriesRecord, event: RecordEvent) -> MemoriesRecord:
    body = event.body
    others = {id_: memory for id_, memory in record.entries.items() if id_ != body["memory_id"]}
    if body["operation"] == "deleted":
        return replace(record, entries=others)
    before, content = record.entries.get(body["memory_id"]), body.get("content", {})
    memory = Memory(
        id=body["memory_id"],
        path=content.get("path", ""),
        sha256=content.get("sha256", ""),
        size=content.get("size", 0),
        version=event.seq,
        created_at=event.time if before is None else before.created_at,
        updated_at=event.time,
    )
    return replace(record, entries={**others, memory.id: memory})


MEMORIES_FOLDS: Mapping[str, MemoriesFold] = {e.MEMORY_VERSION_STORED: _store_version}

"""How the `sessions` dialect words its replies: the keys, header lines and separators that its clients read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from fidelio.surfaces.mcp.common import meta_of, resolution_json, with_warnings
from fidelio.surfaces.mcp.tools import Done

if TYPE_CHECKING:
    from fidelio.workflows.asking import Resolved
    from fidelio.workflows.desk import Outcome

EITHER = "Either checkpoint_handle or session_token must be provided."


def as_json(body: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode()


def reply(body: Mapping[str, Any], outcome: Outcome[Any] | None = None, **meta: Any) -> Done:
    """A small reply: JSON as text, and the same as structured content."""
    whole = with_warnings(body, outcome)
    return Done(as_json(whole), {**meta_of(outcome), **meta}, structured=whole)


def listing(body: Mapping[str, Any], outcome: Outcome[Any]) -> Done:
    """A reply that grows with its session: JSON without indentation, and nothing beside it."""
    return document(msgspec.json.encode(with_warnings(body, outcome)).decode(), outcome)


def document(text: str, outcome: Outcome[Any], **meta: Any) -> Done:
    """A large text, and nothing beside it: clients that get structured content show the model that and drop the text."""
    return Done(text, {**meta_of(outcome), **meta})


def headed(outcome: Outcome[Any], text: str, *lines: str) -> str:
    """Header lines, an empty line, the text."""
    return "\n".join([*lines, f"session_token: {outcome.token}", "", text])


def resolved_json(resolved: Resolved, handle: str) -> dict[str, Any]:
    body = {"checkpoint_id": resolved.checkpoint, "resolved": True, "checkpoint_handle": handle}
    return {**body, **resolution_json(resolved)}

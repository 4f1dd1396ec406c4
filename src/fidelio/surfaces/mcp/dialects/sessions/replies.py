"""Replies of the `sessions` dialect: JSON for small ones, headed text for documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from fidelio.errors import DefinitionError
from fidelio.surfaces.mcp.dialects.common import as_json, meta_of, resolution_json, transitions_json, with_warnings
from fidelio.toolkit import CallContext, Done

if TYPE_CHECKING:
    from fidelio.definitions.library import Library
    from fidelio.engine.record import Record
    from fidelio.workflows.checkpoints import ResolvedCheckpoint, YieldedCheckpoint
    from fidelio.workflows.unit_of_work import CallResult

EITHER = "Either checkpoint_handle or session_token must be provided."


def reply(context: CallContext, body: Mapping[str, Any], outcome: CallResult[Any] | None = None, **meta: Any) -> Done:
    """A small reply: JSON as text, and the same as structured content."""
    whole = with_warnings(context, body, outcome)
    return Done(as_json(whole), {**meta_of(context, outcome), **meta}, structured=whole)


def listing(context: CallContext, body: Mapping[str, Any], outcome: CallResult[Any]) -> Done:
    """A reply that grows with its session: JSON without indentation, and nothing beside it."""
    return document(context, msgspec.json.encode(with_warnings(context, body, outcome)).decode(), outcome)


def document(context: CallContext, text: str, outcome: CallResult[Any], **meta: Any) -> Done:
    """A large text, and nothing beside it: clients that get structured content show the model that and drop the text."""
    return Done(text, {**meta_of(context, outcome), **meta})


def with_header(outcome: CallResult[Any], text: str, *lines: str) -> str:
    """Header lines, an empty line, the text."""
    return "\n".join([*lines, f"session_token: {outcome.token}", "", text])


def resolved_json(resolved: ResolvedCheckpoint, handle: str) -> dict[str, Any]:
    body = {"checkpoint_id": resolved.checkpoint, "resolved": True, "checkpoint_handle": handle}
    return {**body, **resolution_json(resolved)}


def yielded_json(context: CallContext, outcome: CallResult[YieldedCheckpoint]) -> dict[str, Any]:
    yielded = outcome.result
    body = {"status": "yielded", "checkpoint_id": yielded.checkpoint, "checkpoint_handle": outcome.token}
    if yielded.answer is not None:
        known = {"already_resolved": True, "resolved_option": yielded.answer.option or None, "effect": yielded.answer.effect}
        return {**body, **known, "message": "This checkpoint was answered before in this visit. Go on."}
    from fidelio.workflows.gate import person_remedy  # noqa: PLC0415  # the first reply does not wait for it

    waiting = outcome.record.waiting
    demands = waiting is not None and waiting.request == yielded.request and waiting.person
    also = f"A person can also answer with: fidelio answer {yielded.request} OPTION"
    message = (
        "Stop here. Give the checkpoint_handle to the orchestrator in a <checkpoint_yield> block and wait; when it is "
        f"resolved, call resume_checkpoint. {person_remedy(yielded.request) if demands else also}"
    )
    return {**body, "request_id": yielded.request, "message": context.render(message)}


def workflow_json(library: Library, workflow_id: str) -> dict[str, Any]:
    try:
        entry = library.entry(workflow_id)
    except DefinitionError:
        return {"id": workflow_id}
    return {"id": entry.id, "version": entry.version, "title": entry.title}


def transitions_if_known(library: Library, record: Record) -> list[dict[str, Any]]:
    """The status of a session can be read also when its definition is missing or broken."""
    try:
        return transitions_json(library.workflow(record.workflow), record)
    except DefinitionError:
        return []

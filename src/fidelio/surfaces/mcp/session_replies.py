"""How the `sessions` dialect words its replies: the keys, header lines and separators that its clients read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from fidelio.surfaces.mcp.tools import Done

if TYPE_CHECKING:
    from fidelio.definitions.models import Workflow
    from fidelio.engine.record import Answer, Record
    from fidelio.workflows.asking import Resolved
    from fidelio.workflows.desk import Outcome

EITHER = "Either checkpoint_handle or session_token must be provided."


def as_json(body: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode()


def reply(body: Mapping[str, Any], outcome: Outcome[Any] | None = None, **meta: Any) -> Done:
    """A small reply: JSON as text, and the same as structured content. A model sees no `_meta`, so warnings stand in it too."""
    said = {"warnings": list(outcome.warnings)} if outcome is not None and outcome.warnings else {}
    whole = {**body, **said}
    return Done(as_json(whole), {**_meta(outcome), **meta}, structured=whole)


def document(text: str, outcome: Outcome[Any], **meta: Any) -> Done:
    """A large text, and nothing beside it: clients that get structured content show the model that and drop the text."""
    return Done(text, {**_meta(outcome), **meta})


def headed(outcome: Outcome[Any], text: str, *lines: str) -> str:
    """Header lines, an empty line, the text."""
    return "\n".join([*lines, f"session_token: {outcome.token}", "", text])


def _meta(outcome: Outcome[Any] | None) -> dict[str, Any]:
    if outcome is None:
        return {}
    return {"session_token": outcome.token, "validation": validation(outcome.warnings)}


def validation(warnings: tuple[str, ...]) -> dict[str, Any]:
    return {"status": "warning" if warnings else "valid", "warnings": list(warnings)}


def transitions(workflow: Workflow, record: Record) -> list[dict[str, Any]]:
    """Every way on, with `holds`: true, false, or null when it is not known yet."""
    from fidelio.engine.transitions import ways  # noqa: PLC0415  # the first reply does not wait for it

    return [
        {"to": way.to, "holds": way.holds, "default": way.default, **({"condition": way.condition} if way.condition else {})}
        for way in ways(workflow, record)
    ]


def answer_json(answer: Answer) -> dict[str, Any]:
    body: dict[str, Any] = {"option_id": answer.option or None, "effect": answer.effect}
    if answer.mode == "condition_not_met":
        body["dismissed"] = True
    return {**body, "answered_by": answer.by, "channel": answer.channel}


def resolved_json(resolved: Resolved, handle: str) -> dict[str, Any]:
    resolution = resolved.resolution
    body: dict[str, Any] = {"checkpoint_id": resolved.checkpoint, "resolved": True, "checkpoint_handle": handle}
    if resolution.option:
        body["resolved_option"] = resolution.option
    if resolution.effect:
        body["effect"] = resolution.effect
    if resolution.dismissed:
        body["dismissed"] = True
    return body

"""Replies of the `gates` dialect: one compact JSON object for every call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from fidelio.surfaces.mcp.dialects.common import answer_json, definition_json, meta_of, resolution_json, with_warnings
from fidelio.toolkit import CallContext, Done

if TYPE_CHECKING:
    from fidelio.definitions.models import Definition, Workflow
    from fidelio.engine.record import Record
    from fidelio.workflows.checkpoints import PresentedCheckpoint, ResolvedCheckpoint
    from fidelio.workflows.content import ContentService, SkillText
    from fidelio.workflows.unit_of_work import CallResult

# More definitions than the workflows that one server leads through at a time have.
MOST_ENCODED = 512


def reply(context: CallContext, body: Mapping[str, Any], outcome: CallResult[Any] | None = None, **meta: Any) -> Done:
    """A small reply: JSON as text, and the same as structured content."""
    whole = with_warnings(context, body, outcome)
    return Done(_compact(whole), {**meta_of(context, outcome), **meta}, structured=whole)


def document(context: CallContext, body: Mapping[str, Any], outcome: CallResult[Any] | None = None, **meta: Any) -> Done:
    """A large one, as text alone: clients that get structured content show the model that and drop the text."""
    return Done(_compact(with_warnings(context, body, outcome)), {**meta_of(context, outcome), **meta})


class DefinitionEncoder:
    """Encodes definitions as JSON, each once: agents read the same ones again and again."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Definition, bytes]] = {}

    def document(
        self, context: CallContext, definition: Definition, body: Mapping[str, Any], outcome: CallResult[Any], **meta: Any
    ) -> Done:
        """A reply that is the definition itself, with the fields of `body` after its own."""
        more = msgspec.json.encode(with_warnings(context, body, outcome))
        text = b"%s,%s" % (self._encoded(definition)[:-1], more[1:])
        return Done(text.decode(), {**meta_of(context, outcome), **meta})

    def _encoded(self, definition: Definition) -> bytes:
        # By identity, because comparing large definitions costs more than encoding them; the entry keeps it from being reused.
        known = self._known.get(id(definition))
        if known is None:
            if len(self._known) >= MOST_ENCODED:
                self._known.clear()
            known = self._known[id(definition)] = definition, msgspec.json.encode(_definition_json(definition))
        return known[1]


def _definition_json(definition: Definition) -> dict[str, Any]:
    """The definition as clients of this dialect know it: a workflow names all its skills in one list."""
    from fidelio.definitions.models import Workflow  # noqa: PLC0415  # waits for the first call

    body = definition_json(definition)
    if isinstance(definition, Workflow) and "skills" in body:
        named = (definition.skills.primary, *definition.skills.supporting)
        body["skills"] = list(dict.fromkeys(skill for skill in named if skill))
    return body


def pending_json(workflow: Workflow, record: Record) -> list[dict[str, Any]]:
    """Every question that waits, with `condition_holds`: true, false, or null when it is not known yet."""
    from fidelio.engine.checkpoints import list_pending_checkpoints  # noqa: PLC0415  # waits for the first call

    return [
        {"checkpoint_id": waiting.checkpoint, "condition_holds": truth, "request_id": waiting.request}
        for waiting, truth in list_pending_checkpoints(workflow, record)
    ]


def checkpoint_json(presented: PresentedCheckpoint) -> dict[str, Any]:
    body = {**definition_json(presented.definition), "condition_holds": presented.condition_holds}
    if presented.demands_person:
        body["answered_by"] = "person"
    if presented.request:
        body["pending"] = presented.answer is None
    if presented.answer is not None:
        body["answer"] = answer_json(presented.answer)
    return body


def resolved_json(outcome: CallResult[ResolvedCheckpoint]) -> dict[str, Any]:
    remaining = [one.checkpoint for one in outcome.record.pending]
    token = {"session_token": outcome.token, "remaining_checkpoints": remaining}
    return {"checkpoint_id": outcome.result.checkpoint, "resolved": True, **token, **resolution_json(outcome.result)}


def skill_json(reads: ContentService, skill: SkillText, workflow: str) -> dict[str, Any]:
    """The skill with references in place of its resources: what get_resource takes, and what it would return."""
    if skill.loaded is None:
        return {}
    body = definition_json(skill.loaded.definition)
    body.pop("resources", None)
    named = [msgspec.to_builtins(one) for one in reads.list_resources(skill.loaded, workflow)]
    return {**body, "_resources": named} if named else body


def _compact(body: Any) -> str:
    return msgspec.json.encode(body).decode()

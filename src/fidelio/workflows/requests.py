"""Conversion of checkpoints into requests of the inbox: a single checkpoint, or all of an activity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import is_
from typing import Any

import msgspec

from fidelio.definitions.models import Checkpoint, Workflow
from fidelio.definitions.models.activity import Option
from fidelio.engine.checkpoints import (
    PROVEN,
    collect_instance_values,
    count_known_iterations,
    demands_proof,
    encode_effect,
    find_checkpoints_to_arm,
    find_instance,
    needs_person,
)
from fidelio.engine.record import ANSWERED, ARMED, YIELDED, CheckpointInstance, EventDraft, Record
from fidelio.engine.scope import collect_values, fill_template
from fidelio.inbox import NewRequest, RequestChange, answer_request, dismiss_request, open_request
from fidelio.ledger.model import Request


class ArmedCheckpoints(msgspec.Struct, frozen=True):
    """The events and requests of the checkpoints that an activity opens when it is entered."""

    drafts: tuple[EventDraft, ...] = ()
    requests: tuple[NewRequest, ...] = ()


def checkpoint_request(
    workflow: Workflow,
    record: Record,
    checkpoint: Checkpoint,
    *,
    person: bool,
    request: str = "",
    instance: CheckpointInstance | None = None,
) -> NewRequest:
    """Build the request of a checkpoint, with the current values filled into its texts.

    `person`: the policy of the server demands a person for every request. `request` is the id of a request that was opened on
    another server and keeps its id.
    """
    instance = instance or find_instance(workflow, record, checkpoint.id)
    values = collect_instance_values(workflow, record, instance)
    options = tuple(_render_option(option, values) for option in checkpoint.options)
    who = "person" if needs_person(workflow, record, checkpoint, server=person) else "any"
    who = PROVEN if demands_proof(workflow, checkpoint) else who
    position = {"workflow": workflow.id, "activity": instance.activity, "checkpoint": checkpoint.id}
    detail = {**position, "visit": instance.visit, "iteration": instance.iteration, "answered_by": who, **_timer(checkpoint)}
    return open_request("checkpoint", instance.key, fill_template(checkpoint.message, values), options, detail, request=request)


def _timer(checkpoint: Checkpoint) -> dict[str, Any]:
    """The default option and its delay, for a checkpoint that may be answered by its timer."""
    if checkpoint.blocking or checkpoint.default_option is None or checkpoint.auto_advance_ms is None:
        return {}
    return {"default_option": checkpoint.default_option, "auto_advance_ms": checkpoint.auto_advance_ms}


def _render_option(option: Option, values: Mapping[str, Any]) -> dict[str, Any]:
    texts = {"label": fill_template(option.label, values), "description": fill_template(option.description or "", values)}
    return {"id": option.id, **texts, "effect": encode_effect(option.effect)}


def apply_request_wording(checkpoint: Checkpoint, request: Request) -> Checkpoint:
    """Return the checkpoint with the texts of its request, as they were rendered at that time."""
    texts = {option["id"]: option for option in request.options}
    return _with_texts(checkpoint, request.question, [texts.get(option.id, {}) for option in checkpoint.options])


def _with_texts(checkpoint: Checkpoint, message: str, texts: Sequence[Mapping[str, Any]]) -> Checkpoint:
    options = tuple(_option_with_texts(option, found) for option, found in zip(checkpoint.options, texts, strict=True))
    if message == checkpoint.message and all(map(is_, options, checkpoint.options)):
        return checkpoint
    return checkpoint.model_copy(update={"message": message, "options": options})


def _option_with_texts(option: Option, texts: Mapping[str, Any]) -> Option:
    update = {key: texts[key] for key in ("label", "description") if texts.get(key)}
    return option.model_copy(update=update) if any(getattr(option, key) != text for key, text in update.items()) else option


def render_checkpoint(workflow: Workflow, record: Record, checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint with the current values filled into its texts, without a request."""
    values = collect_values(workflow, record)
    return _with_texts(
        checkpoint, fill_template(checkpoint.message, values), [_render_option(option, values) for option in checkpoint.options]
    )


def yield_request(workflow: Workflow, record: Record, checkpoint: Checkpoint, *, person: bool) -> tuple[EventDraft, NewRequest]:
    """Build the event of a yielded checkpoint and its request."""
    request = checkpoint_request(workflow, record, checkpoint, person=person)
    return EventDraft(YIELDED, _event_entry(workflow, record, checkpoint, request)), request


def _event_entry(workflow: Workflow, record: Record, checkpoint: Checkpoint, request: NewRequest) -> dict[str, Any]:
    """The event entry of a yielded checkpoint: also whether a person is demanded, and the number of iterations if known."""
    entry: dict[str, Any] = {"checkpoint": checkpoint.id, "request": request.id, "iteration": request.detail["iteration"]}
    if request.detail["answered_by"] != "any":
        entry["person"] = True
    if request.detail["answered_by"] == PROVEN:
        entry["proven"] = True
    if total := count_known_iterations(workflow, record, checkpoint.id):
        entry["of"] = total
    return entry


def close_with_answer(answer: Mapping[str, Any]) -> RequestChange:
    """Build the change that closes a request with an answer, from the body of the event of that answer."""
    request, by, channel = answer["request"], answer["by"], answer["channel"]
    content = {"option": answer["option"], "mode": answer["mode"]}
    if answer["mode"] == "condition_not_met":
        return dismiss_request(request, by=by, channel=channel, answer=content)
    return answer_request(request, content, by=by, channel=channel)


def close_answered_requests(drafts: Iterable[EventDraft]) -> tuple[RequestChange, ...]:
    """Build the changes that close the requests which these events answer."""
    return tuple(close_with_answer(draft.body) for draft in drafts if draft.type == ANSWERED)


def arm_checkpoints(workflow: Workflow, record: Record, *, person: bool) -> ArmedCheckpoints:
    """Open a request for every checkpoint of the current activity that has none in this visit yet."""
    entries, requests = list[dict[str, Any]](), list[NewRequest]()
    for checkpoint, instance, truth in find_checkpoints_to_arm(workflow, record, person=person):
        request = checkpoint_request(workflow, record, checkpoint, person=person, instance=instance)
        entries.append({**_event_entry(workflow, record, checkpoint, request), "condition_holds": truth})
        requests.append(request)
    return ArmedCheckpoints((EventDraft(ARMED, {"checkpoints": entries}),), tuple(requests)) if entries else ArmedCheckpoints()

"""Turns checkpoints into requests of the inbox, one by one or all of an activity at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import is_
from typing import Any

import msgspec

from fidelio.definitions.models import Checkpoint, Workflow
from fidelio.definitions.models.activity import Option
from fidelio.engine.checkpoints import demands_person, encode_effect, find_checkpoints_to_arm, find_instance
from fidelio.engine.record import ANSWERED, ARMED, YIELDED, EventDraft, Record
from fidelio.engine.scope import collect_values, fill_template
from fidelio.inbox import NewRequest, RequestChange, answer_request, dismiss_request, open_request
from fidelio.ledger.model import Request


class ArmedCheckpoints(msgspec.Struct, frozen=True):
    """The questions that an activity asks at its door."""

    drafts: tuple[EventDraft, ...] = ()
    requests: tuple[NewRequest, ...] = ()


def checkpoint_request(
    workflow: Workflow, record: Record, checkpoint: Checkpoint, *, person: bool, request: str = ""
) -> NewRequest:
    """The question as a person reads it: with what it is about put in, as far as that is known when it is asked.

    `person`: the server wants people to answer everything. `request` is the id of one that was asked on another server.
    """
    asked, values = find_instance(workflow, record, checkpoint.id), collect_values(workflow, record)
    options = tuple(_option(option, values) for option in checkpoint.options)
    who = "person" if demands_person(workflow, checkpoint, server=person) else "any"
    place = {"workflow": workflow.id, "activity": asked.activity, "checkpoint": checkpoint.id}
    detail = {**place, "visit": asked.visit, "iteration": asked.iteration, "answered_by": who, **_timer(checkpoint)}
    return open_request("checkpoint", asked.key, fill_template(checkpoint.message, values), options, detail, request=request)


def _timer(checkpoint: Checkpoint) -> dict[str, Any]:
    """Which answer may be taken after how long, where one may."""
    if checkpoint.blocking or checkpoint.default_option is None or checkpoint.auto_advance_ms is None:
        return {}
    return {"default_option": checkpoint.default_option, "auto_advance_ms": checkpoint.auto_advance_ms}


def _option(option: Option, values: Mapping[str, Any]) -> dict[str, Any]:
    shown = {"label": fill_template(option.label, values), "description": fill_template(option.description or "", values)}
    return {"id": option.id, **shown, "effect": encode_effect(option.effect)}


def word_as_asked(checkpoint: Checkpoint, request: Request) -> Checkpoint:
    """The checkpoint in the words in which it was asked, which are the same for everybody who reads it."""
    worded = {one["id"]: one for one in request.options}
    return _in_words(checkpoint, request.question, [worded.get(option.id, {}) for option in checkpoint.options])


def _in_words(checkpoint: Checkpoint, message: str, words: Sequence[Mapping[str, Any]]) -> Checkpoint:
    options = tuple(_reworded(option, shown) for option, shown in zip(checkpoint.options, words, strict=True))
    if message == checkpoint.message and all(map(is_, options, checkpoint.options)):
        return checkpoint
    return checkpoint.model_copy(update={"message": message, "options": options})


def _reworded(option: Option, words: Mapping[str, Any]) -> Option:
    shown = {key: words[key] for key in ("label", "description") if words.get(key)}
    return option.model_copy(update=shown) if any(getattr(option, key) != text for key, text in shown.items()) else option


def word_as_of_now(workflow: Workflow, record: Record, checkpoint: Checkpoint) -> Checkpoint:
    """The same before anybody has asked it: with what is known now."""
    values = collect_values(workflow, record)
    return _in_words(
        checkpoint, fill_template(checkpoint.message, values), [_option(option, values) for option in checkpoint.options]
    )


def yield_request(workflow: Workflow, record: Record, checkpoint: Checkpoint, *, person: bool) -> tuple[EventDraft, NewRequest]:
    """One question on record, and in the inbox."""
    request = checkpoint_request(workflow, record, checkpoint, person=person)
    return EventDraft(YIELDED, _named(checkpoint, request)), request


def _named(checkpoint: Checkpoint, request: NewRequest) -> dict[str, Any]:
    person = {"person": True} if request.detail["answered_by"] == "person" else {}
    return {"checkpoint": checkpoint.id, "request": request.id, "iteration": request.detail["iteration"], **person}


def close_with_answer(answer: Mapping[str, Any]) -> RequestChange:
    """What becomes of the request when this answer, as its event holds it, is put on record."""
    request, by, channel = answer["request"], answer["by"], answer["channel"]
    given = {"option": answer["option"], "mode": answer["mode"]}
    if answer["mode"] == "condition_not_met":
        return dismiss_request(request, by=by, channel=channel, answer=given)
    return answer_request(request, given, by=by, channel=channel)


def close_answered(drafts: Iterable[EventDraft]) -> tuple[RequestChange, ...]:
    """What becomes of the requests that these events answer."""
    return tuple(close_with_answer(draft.body) for draft in drafts if draft.type == ANSWERED)


def arm_checkpoints(workflow: Workflow, record: Record, *, person: bool) -> ArmedCheckpoints:
    """Every question of the activity that was just entered, as far as this visit has not dealt with it."""
    entries, requests = list[dict[str, Any]](), list[NewRequest]()
    for checkpoint, truth in find_checkpoints_to_arm(workflow, record):
        request = checkpoint_request(workflow, record, checkpoint, person=person)
        entries.append({**_named(checkpoint, request), "condition_holds": truth})
        requests.append(request)
    return ArmedCheckpoints((EventDraft(ARMED, {"checkpoints": entries}),), tuple(requests)) if entries else ArmedCheckpoints()

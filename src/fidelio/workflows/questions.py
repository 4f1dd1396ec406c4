"""Checkpoints as requests in the inbox: what a question consists of when it is put on record, alone or with others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fidelio.definitions.models import Checkpoint, Workflow
from fidelio.engine.checkpoints import asking, effect_of, to_arm
from fidelio.engine.record import ARMED, Asked, Draft, Record
from fidelio.engine.resolving import demands_person
from fidelio.inbox import new_request
from fidelio.ledger.model import CloseRequest, OpenRequest


class Armed(msgspec.Struct, frozen=True):
    """The questions that an activity asks at its door."""

    drafts: tuple[Draft, ...] = ()
    requests: tuple[OpenRequest, ...] = ()


def question(workflow: Workflow, checkpoint: Checkpoint, asked: Asked, *, person: bool) -> OpenRequest:
    """`person`: the server wants people to answer everything."""
    options = tuple(
        {"id": option.id, "label": option.label, "description": option.description or "", "effect": effect_of(option.effect)}
        for option in checkpoint.options
    )
    who = "person" if demands_person(workflow, checkpoint, server=person) else "any"
    place = {"workflow": workflow.id, "activity": asked.activity, "checkpoint": checkpoint.id}
    detail = {**place, "visit": asked.visit, "iteration": asked.iteration, "answered_by": who}
    return new_request("checkpoint", asked.key, checkpoint.message, options, detail)


def closing(answer: Mapping[str, Any]) -> CloseRequest:
    """What becomes of the request when this answer, as its event holds it, is put on record."""
    return CloseRequest(
        id=answer["request"],
        state="dismissed" if answer["mode"] == "condition_not_met" else "answered",
        answer={"option": answer["option"], "mode": answer["mode"]},
        by=answer["by"],
        channel=answer["channel"],
        assurance=answer["assurance"],
    )


def arm(workflow: Workflow, record: Record, *, person: bool) -> Armed:
    """Every question of the activity that was just entered, as far as this visit has not dealt with it."""
    entries, requests = list[dict[str, Any]](), list[OpenRequest]()
    for checkpoint, truth in to_arm(workflow, record):
        asked = asking(workflow, record, checkpoint.id)
        request = question(workflow, checkpoint, asked, person=person)
        entry = {"checkpoint": checkpoint.id, "request": request.id, "iteration": asked.iteration, "condition_holds": truth}
        entries.append(entry)
        requests.append(request)
    return Armed((Draft(ARMED, {"checkpoints": entries}),), tuple(requests)) if entries else Armed()

"""Small workflows and records for the tests of the rules, written as their authors would write them."""

from __future__ import annotations

from typing import Any

from fidelio.definitions.models import Workflow
from fidelio.engine.answers import AnswerContext
from fidelio.engine.apply_move import MoveActor, MoveRequest, apply_move
from fidelio.engine.record import ANSWERED, ENTERED, STARTED, VARIABLES_SET, YIELDED, EventDraft, Record, fold_drafts
from fidelio.engine.state import Refusal

Json = dict[str, Any]
PERSON = MoveActor("person:a", "cli", "local")
NOW = 1_000_000


def activity(name: str, **parts: Any) -> Json:
    return {"id": name, "version": "1.0.0", "name": name, **parts}


def steps(*names: str) -> list[Json]:
    return [step(name) for name in names]


def step(name: str, **parts: Any) -> Json:
    return {"id": name, "name": name, **parts}


def checkpoint(name: str, *options: str | Json, **parts: Any) -> Json:
    whole = [{"id": option, "label": option} if isinstance(option, str) else option for option in options or ("yes", "no")]
    return {"id": name, "name": name, "message": f"{name}?", "options": whole, **parts}


def option(name: str, **effect: Any) -> Json:
    return {"id": name, "label": name, "effect": effect}


def when(variable: str, value: Any = True, operator: str = "==") -> Json:
    return {"type": "simple", "variable": variable, "operator": operator, "value": value}


def to(target: str, condition: Json | None = None, *, default: bool = False) -> Json:
    return {"to": target, "isDefault": default, **({"condition": condition} if condition else {})}


def loop(name: str, kind: str = "while", **parts: Any) -> Json:
    return {"id": name, "name": name, "type": kind, **parts}


def variable(name: str, kind: str = "boolean", **parts: Any) -> Json:
    return {"name": name, "type": kind, **parts}


def workflow(*activities: Json, initial: str | None = "", **parts: Any) -> Workflow:
    """The first activity is the initial one, unless another is named; None makes all of them independent."""
    first = activities[0]["id"] if initial == "" else initial
    head = {"id": "wf", "version": "1.0.0", "title": "wf", "initialActivity": first}
    return Workflow.model_validate({**head, **parts, "activities": list(activities)})


def started(*drafts: EventDraft, **body: Any) -> Record:
    begun = {"workflow": "wf", "version": "1.0.0", "definition": "d", **body}
    return fold_drafts(Record(), [EventDraft(STARTED, begun), *drafts], NOW)


def entered(name: str, **body: Any) -> EventDraft:
    return EventDraft(ENTERED, {"activity": name, **body})


def yielded(name: str, request: str = "r", **body: Any) -> EventDraft:
    return EventDraft(YIELDED, {"checkpoint": name, "request": request, **body})


def answered(chosen: str = "yes", request: str = "r", *, mode: str = "option", **effect: Any) -> EventDraft:
    who = {"by": "person:a", "channel": "cli", "assurance": "local"}
    return EventDraft(ANSWERED, {"request": request, "option": chosen, "mode": mode, "effect": effect, **who})


def told(**variables: Any) -> EventDraft:
    return EventDraft(VARIABLES_SET, {"variables": variables, "by": "agent:worker"})


def at(name: str, *drafts: EventDraft) -> Record:
    """A session that has entered the activity, and in which all this has happened since."""
    return started(entered(name), *drafts)


def make(definition: Workflow, record: Record, act: MoveRequest) -> Record | Refusal:
    drafts = apply_move(definition, record, act, AnswerContext(NOW, relayed=False), PERSON)
    return drafts if isinstance(drafts, Refusal) else fold_drafts(record, drafts, NOW)


def made(definition: Workflow, record: Record, *acts: MoveRequest) -> Record:
    """The record after these moves, all of which have to be accepted."""
    for act in acts:
        after = make(definition, record, act)
        assert isinstance(after, Record), after
        record = after
    return record


def done(name: str) -> MoveRequest:
    return MoveRequest("complete_step", name)


def go(name: str) -> MoveRequest:
    return MoveRequest("transition", name)


def advance(name: str, *items: Any) -> MoveRequest:
    return MoveRequest("advance_loop", name, items=items or None)


def say(name: str, chosen: str = "yes") -> MoveRequest:
    return MoveRequest("respond_to_checkpoint", name, chosen)

"""The record of a workflow session: what its events add up to.

`fold` is the only way a record changes, and an event carries everything it needs (the effect of an option is in the answer
that chose it). So the record can be rebuilt from the ledger at any time, and definitions may change without changing the past.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from fidelio.definitions.conditions import same
from fidelio.engine.state import Answer, Asked, Child, Fidelity, OpenCheckpoint, Parent, Pass, Place, Record, Reported, Status

__all__ = [
    "ANSWERED",
    "ARMED",
    "BY_ANSWER",
    "BY_DEFINITION",
    "CALLED",
    "CHILD_FINISHED",
    "CHILD_STARTED",
    "COMPLETED",
    "ENTERED",
    "LOOP_ADVANCED",
    "RESTORED",
    "RESUMED",
    "SKILL_LOADED",
    "STARTED",
    "STEP_COMPLETED",
    "VARIABLES_SET",
    "YIELDED",
    "Answer",
    "Asked",
    "Child",
    "Draft",
    "Fact",
    "Fidelity",
    "Foreseen",
    "OpenCheckpoint",
    "Parent",
    "Pass",
    "Place",
    "Record",
    "Status",
    "as_events",
    "as_json",
    "fold",
    "foreseen",
    "read",
]

STARTED = "session.started"
RESTORED = "session.restored"
ENTERED = "activity.entered"
STEP_COMPLETED = "step.completed"
LOOP_ADVANCED = "loop.advanced"
ARMED = "checkpoint.armed"
YIELDED = "checkpoint.yielded"
ANSWERED = "request.answered"
RESUMED = "checkpoint.resumed"
VARIABLES_SET = "variables.set"
SKILL_LOADED = "skill.loaded"
CHILD_STARTED = "child.started"
CHILD_FINISHED = "child.finished"
COMPLETED = "session.completed"
CALLED = "tool.called"
# The calls of those who bring answers, and not of the agent that waits for one.
_ANSWERING = frozenset({"present_checkpoint", "respond_checkpoint"})

# How the authors of variables begin: an answer, and what the definition itself does.
BY_ANSWER = "checkpoint:"
BY_DEFINITION = ("entry:", "exit:", "step:")


class Fact(Protocol):
    """What `fold` reads of an event."""

    @property
    def seq(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def time(self) -> int: ...
    @property
    def body(self) -> Mapping[str, Any]: ...


class Drafted(Protocol):
    """What is known of an event before it is written."""

    @property
    def type(self) -> str: ...
    @property
    def body(self) -> Mapping[str, Any]: ...


class Draft(msgspec.Struct, frozen=True):
    """An event that the rules have decided on and nobody has written yet."""

    type: str
    body: dict[str, Any]


class Foreseen(msgspec.Struct, frozen=True):
    """A draft as it will look once it is written."""

    seq: int
    type: str
    time: int
    body: Mapping[str, Any]


def fold(record: Record, events: Iterable[Fact]) -> Record:
    """The record after these events; events of other rooms only move `seq` on."""
    for event in events:
        step = _STEPS.get(event.type)
        record = replace(step(record, event) if step else record, seq=event.seq)
    return record


def foreseen(record: Record, drafts: Iterable[Drafted], now: int) -> Record:
    """The record as it will be once these drafts are written."""
    return fold(record, as_events(record, drafts, now))


def as_events(record: Record, drafts: Iterable[Drafted], now: int) -> list[Foreseen]:
    return [Foreseen(seq, draft.type, now, draft.body) for seq, draft in enumerate(drafts, start=record.seq + 1)]


def as_json(record: Record) -> dict[str, Any]:
    # By way of JSON, so that tuples come out as the lists that will be read back.
    return msgspec.json.decode(msgspec.json.encode(record), type=dict[str, Any])


def read(raw: str) -> Record:
    """A record as the ledger keeps it."""
    return msgspec.json.decode(raw, type=Record)


def _started(record: Record, event: Fact) -> Record:
    body = event.body
    parent = body.get("parent")
    begun = replace(
        record,
        workflow=body["workflow"],
        version=body["version"],
        definition=body["definition"],
        found_in=body.get("found_in", ""),
        fidelity=body.get("fidelity", "advise"),
        parent=msgspec.convert(parent, Parent) if parent else None,
        unverified=bool(body.get("unverified")),
        claims_to_continue=body.get("claims_to_continue", ""),
    )
    if claimed := body.get("activity"):
        begun = replace(begun, here=Place(claimed, 1), visits=1)
    begun = _set(begun, body.get("variables", {}), body.get("variables_by", "start"))
    return replace(begun, set_by={**begun.set_by, **body.get("settled", {})})


def _restored(_: Record, event: Fact) -> Record:
    """The session began in another ledger; this is how far it had come there."""
    return replace(msgspec.convert(event.body["record"], Record), since=1)


def _entered(record: Record, event: Fact) -> Record:
    body = event.body
    if body["activity"] == record.activity and not body.get("again"):
        return _reported(replace(record, condition=body.get("condition", "")), body)
    left = replace(
        _reported(record, body),
        completed=_with_completed(record) if body.get("how") != "loop" else record.completed,
        passed=_union(record.passed, body.get("passed", ())),
        condition=body.get("condition", ""),
        forced="",
    )
    return _arrived(left, body)


def _arrived(record: Record, body: Mapping[str, Any]) -> Record:
    how = body.get("how", "next")
    if how == "return" and record.outer:
        *outer, here = record.outer
        return replace(record, here=here, outer=tuple(outer))
    outer = list(record.outer) if how in ("loop", "pass") else []
    if how == "loop":
        outer.append(record.here)
    if outer and (running := outer[-1].running):
        reached = replace(running, entered=body.get("reached", 0), at=body.get("at", running.at))
        outer[-1] = replace(outer[-1], running=reached)
    visits = record.visits + 1
    return replace(record, here=Place(body["activity"], visits), outer=tuple(outer), visits=visits)


def _reported(record: Record, body: Mapping[str, Any]) -> Record:
    """Keeps how the manifest of the activity that is left looked; the newest for each activity."""
    manifest = body.get("manifest")
    if manifest is None or not record.activity:
        return record
    found = Reported(record.visit, len(manifest), len(body.get("warnings", ())))
    return replace(record, reported={**record.reported, record.activity: found})


def _step_completed(record: Record, event: Fact) -> Record:
    body, here = event.body, record.here
    if body["activity"] != here.activity:
        return record
    here = replace(here, loops_over=_union(here.loops_over, body.get("loops_over", ())))
    if not body.get("loop"):
        return replace(record, here=replace(here, at=body["at"], done=(*here.done, body["step"])))
    if here.running is None:
        return record
    running = replace(here.running, at=body["at"], done=(*here.running.done, body["step"]))
    return replace(record, here=replace(here, running=running))


def _loop_advanced(record: Record, event: Fact) -> Record:
    body, here = event.body, record.here
    if body["activity"] != here.activity:
        return record
    items = body.get("items")
    running = Pass(body["loop"], body["iteration"], None if items is None else tuple(items))
    over = _union(here.loops_over, body.get("loops_over", ()))
    return replace(record, here=replace(here, at=body["at"], running=running, loops_over=over))


def _armed(record: Record, event: Fact) -> Record:
    armed = (_waiting(record, event, one) for one in event.body["checkpoints"])
    return _held(replace(record, armed=(*record.armed, *armed)))


def _yielded(record: Record, event: Fact) -> Record:
    return _held(replace(record, open=_waiting(record, event, event.body)))


def _waiting(record: Record, event: Fact, body: Mapping[str, Any]) -> OpenCheckpoint:
    return OpenCheckpoint(
        body["checkpoint"],
        record.activity,
        record.visit,
        body["request"],
        event.time,
        body.get("iteration", 0),
        body.get("person", False),
    )


def _answered(record: Record, event: Fact) -> Record:
    request = event.body["request"]
    waiting = next((one for one in record.pending if one.request == request), None)
    if waiting is None:
        return record
    answer = _answer(waiting, event)
    others = tuple(known for known in record.here.answers if known.checkpoint != answer.checkpoint)
    closed = replace(
        record,
        open=None if record.open is waiting else record.open,
        armed=tuple(one for one in record.armed if one is not waiting),
        here=replace(record.here, answers=(*others, answer)),
        last=answer,
        skipped=_union(record.skipped, answer.effect.get("skipActivities", ())),
        forced=answer.effect.get("transitionTo") or record.forced,
    )
    author = f"{BY_ANSWER}{answer.activity}/{answer.checkpoint}/{answer.option}"
    return _held(_set(closed, answer.effect.get("setVariable", {}), author))


def _answer(waiting: OpenCheckpoint, event: Fact) -> Answer:
    body = event.body
    return Answer(
        waiting.checkpoint,
        waiting.activity,
        waiting.visit,
        body.get("option", ""),
        body.get("effect") or {},
        body["by"],
        body["channel"],
        body["assurance"],
        event.time,
        iteration=waiting.iteration,
        mode=body.get("mode", "option"),
        request=waiting.request,
    )


def _resumed(record: Record, _: Fact) -> Record:
    if record.last is None:
        return record
    return _with_last(record, replace(record.last, resumed=True))


def _with_last(record: Record, last: Answer) -> Record:
    answers = tuple(last if known.asked == last.asked else known for known in record.here.answers)
    return replace(record, last=last, here=replace(record.here, answers=answers))


def _variables_set(record: Record, event: Fact) -> Record:
    body, before = event.body, record.set_by
    after = _set(record, body["variables"], body["by"])
    # Who only repeats what an answer said does not become its author: it could be changed then as if nobody had answered.
    confirmed = [name for name, value in body["variables"].items() if _only_repeats(record, name, value, body["by"])]
    return replace(after, set_by={**after.set_by, **{name: before[name] for name in confirmed}}) if confirmed else after


def _only_repeats(record: Record, name: str, value: Any, author: str) -> bool:
    by_answer = record.set_by.get(name, "").startswith(BY_ANSWER)
    return by_answer and not author.startswith(BY_DEFINITION) and same(record.variables[name], value)


def _skill_loaded(record: Record, event: Fact) -> Record:
    return replace(record, skill=event.body["skill"], skill_owner=event.body.get("owner", ""))


def _child_started(record: Record, event: Fact) -> Record:
    body = event.body
    if not body.get("suspends"):
        return record
    child = Child(body["session"], body["workflow"], body.get("step", ""), tuple(body.get("pass_context", ())))
    return replace(record, children=(*record.children, child))


def _child_finished(record: Record, event: Fact) -> Record:
    session = event.body["session"]
    rest = tuple(child for child in record.children if child.session != session)
    return _set(replace(record, children=rest), event.body.get("variables", {}), f"child:{session}")


def _completed(record: Record, event: Fact) -> Record:
    body = event.body
    left = replace(
        _reported(record, body),
        completed=_with_completed(record),
        passed=_union(record.passed, body.get("passed", ())),
        condition=body.get("condition", ""),
    )
    return replace(left, status="completed", here=Place(visit=record.visit), outer=(), forced="", open=None, armed=())


def _called(record: Record, event: Fact) -> Record:
    body, last = event.body, record.last
    if last is not None and last.iteration and not last.behind and body.get("s") == "ok" and body["name"] not in _ANSWERING:
        # Every reply after an answer tells it, or could not have come before it. Only whoever answers is not who asked.
        record = _with_last(record, replace(last, behind=True))
    return replace(record, since=event.seq + 1) if body.get("closes") else record


def _set(record: Record, variables: Mapping[str, Any], author: str) -> Record:
    if not variables:
        return record
    return replace(
        record,
        variables={**record.variables, **variables},
        set_by={**record.set_by, **dict.fromkeys(variables, author)},
        here=replace(record.here, changed=_union(record.here.changed, variables)) if record.activity else record.here,
    )


def _held(record: Record) -> Record:
    if record.status == "completed":
        return record
    return replace(record, status="blocked" if record.waiting else "active")


def _with_completed(record: Record) -> tuple[str, ...]:
    return _union(record.completed, (record.activity,) if record.activity else ())


def _union(known: tuple[str, ...], more: Iterable[str]) -> tuple[str, ...]:
    return (*known, *(name for name in dict.fromkeys(more) if name not in known))


_STEPS: Mapping[str, Callable[[Record, Fact], Record]] = {
    STARTED: _started,
    RESTORED: _restored,
    ENTERED: _entered,
    STEP_COMPLETED: _step_completed,
    LOOP_ADVANCED: _loop_advanced,
    ARMED: _armed,
    YIELDED: _yielded,
    ANSWERED: _answered,
    RESUMED: _resumed,
    VARIABLES_SET: _variables_set,
    SKILL_LOADED: _skill_loaded,
    CHILD_STARTED: _child_started,
    CHILD_FINISHED: _child_finished,
    COMPLETED: _completed,
    CALLED: _called,
}

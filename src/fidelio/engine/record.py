"""The record of a workflow session: what its events add up to.

`fold` is the only way a record changes, and an event carries everything it needs (the effect of an option is in the answer
that chose it). So the record can be rebuilt from the ledger at any time, and definitions may change without changing the past.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import msgspec

Status = Literal["active", "blocked", "completed"]

STARTED = "session.started"
ENTERED = "activity.entered"
YIELDED = "checkpoint.yielded"
ANSWERED = "request.answered"
RESUMED = "checkpoint.resumed"
COMPLETED = "session.completed"


class Fact(Protocol):
    """What `fold` reads of an event."""

    @property
    def seq(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def time(self) -> int: ...
    @property
    def body(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class OpenCheckpoint:
    """The question that holds the session."""

    checkpoint: str
    activity: str
    visit: int
    request: str
    yielded_at: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The one answer a checkpoint got in a visit of its activity."""

    checkpoint: str
    activity: str
    visit: int
    option: str
    effect: dict[str, Any]
    by: str
    channel: str
    assurance: str
    answered_at: int
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """Where a session stands. `seq` is the last event that is folded in."""

    seq: int = 0
    status: Status = "active"
    workflow: str = ""
    version: str = ""
    definition: str = ""
    activity: str = ""
    visit: int = 0
    variables: dict[str, Any] = field(default_factory=dict)
    completed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    open: OpenCheckpoint | None = None
    answers: tuple[Answer, ...] = ()

    def answer_to(self, checkpoint: str) -> Answer | None:
        """The answer given in the present visit, if there is one."""
        here = (checkpoint, self.activity, self.visit)
        return next((a for a in reversed(self.answers) if (a.checkpoint, a.activity, a.visit) == here), None)


def fold(record: Record, events: Iterable[Fact]) -> Record:
    """The record after these events; events of other rooms only move `seq` on."""
    for event in events:
        step = _STEPS.get(event.type)
        record = replace(step(record, event) if step else record, seq=event.seq)
    return record


def as_json(record: Record) -> dict[str, Any]:
    return dict(msgspec.to_builtins(record))


def from_json(data: Mapping[str, Any]) -> Record:
    return msgspec.convert(data, Record) if data else Record()


def _started(record: Record, event: Fact) -> Record:
    body = event.body
    return replace(
        record,
        workflow=body["workflow"],
        version=body["version"],
        definition=body["definition"],
        variables=dict(body.get("variables", {})),
    )


def _entered(record: Record, event: Fact) -> Record:
    body = event.body
    if body["activity"] == record.activity:
        return record
    return replace(
        record,
        activity=body["activity"],
        visit=record.visit + 1,
        completed=_with_completed(record),
    )


def _yielded(record: Record, event: Fact) -> Record:
    body = event.body
    waiting = OpenCheckpoint(body["checkpoint"], record.activity, record.visit, body["request"], event.time)
    return replace(record, status="blocked", open=waiting)


def _answered(record: Record, event: Fact) -> Record:
    body, waiting = event.body, record.open
    if waiting is None or waiting.request != body["request"]:
        return record
    effect = body.get("effect") or {}
    answer = Answer(
        waiting.checkpoint,
        waiting.activity,
        waiting.visit,
        body["option"],
        effect,
        body["by"],
        body["channel"],
        body["assurance"],
        event.time,
    )
    return replace(
        record,
        status="active",
        open=None,
        answers=(*record.answers, answer),
        variables={**record.variables, **effect.get("setVariable", {})},
        skipped=_union(record.skipped, effect.get("skipActivities", ())),
    )


def _resumed(record: Record, _: Fact) -> Record:
    if not record.answers:
        return record
    *earlier, last = record.answers
    return replace(record, answers=(*earlier, replace(last, resumed=True)))


def _completed(record: Record, _: Fact) -> Record:
    return replace(record, status="completed", activity="", completed=_with_completed(record))


def _with_completed(record: Record) -> tuple[str, ...]:
    return _union(record.completed, (record.activity,) if record.activity else ())


def _union(known: tuple[str, ...], more: Iterable[str]) -> tuple[str, ...]:
    return (*known, *(name for name in more if name not in known))


_STEPS: Mapping[str, Callable[[Record, Fact], Record]] = {
    STARTED: _started,
    ENTERED: _entered,
    YIELDED: _yielded,
    ANSWERED: _answered,
    RESUMED: _resumed,
    COMPLETED: _completed,
}

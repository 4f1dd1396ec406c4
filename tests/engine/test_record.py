"""What the events of a session add up to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fidelio.engine.record import Record, decode_record, fold
from fidelio.ledger.encoding import encode_record
from tests.support import proves


@dataclass(frozen=True)
class Fact:
    seq: int
    type: str
    body: dict[str, Any] = field(default_factory=dict)
    time: int = 0


def facts(*happened: tuple[str, dict[str, Any]]) -> list[Fact]:
    return [Fact(seq, type_, body, seq * 1000) for seq, (type_, body) in enumerate(happened, start=1)]


STARTED = ("session.started", {"workflow": "hello", "version": "1.0.0", "definition": "d"})


def entered(activity: str) -> tuple[str, dict[str, Any]]:
    return "activity.entered", {"activity": activity}


def yielded(request: str) -> tuple[str, dict[str, Any]]:
    return "checkpoint.yielded", {"checkpoint": "ask", "request": request}


def answered(request: str, **effect: Any) -> tuple[str, dict[str, Any]]:
    who = {"by": "person:a", "channel": "cli", "assurance": "local"}
    return "request.answered", {"request": request, "option": "yes", "effect": effect, **who}


names = st.sampled_from(["one", "two", "three"])
happenings = st.lists(
    names.map(entered)
    | names.map(yielded)
    | names.map(lambda name: answered(name, setVariable={"x": name}, skipActivities=[name]))
    | st.just(("checkpoint.resumed", {}))
    | st.just(("session.completed", {}))
    | st.just(("tool.called", {"name": "get_activity"})),
    max_size=20,
)


@proves("engine.replay")
@given(happenings, st.integers(0, 20))
def test_a_record_is_the_same_whole_in_pieces_and_through_json(happened: list[tuple[str, dict[str, Any]]], cut: int) -> None:
    events = facts(STARTED, *happened)
    whole = fold(Record(), events)

    half = decode_record(encode_record(fold(Record(), events[:cut])))

    assert fold(half, events[cut:]) == whole
    assert whole.seq == len(events)


@proves("engine.visits")
def test_the_current_activity_entered_again_is_the_same_visit() -> None:
    events = facts(STARTED, entered("one"), yielded("r"), answered("r"), entered("one"))

    record = fold(Record(), events)

    assert record.visit == 1
    assert record.find_answer("ask") is not None


@proves("engine.visits")
def test_coming_back_is_a_new_visit_with_a_new_question() -> None:
    events = facts(STARTED, entered("one"), yielded("r"), answered("r"), entered("two"), entered("one"))

    record = fold(Record(), events)

    assert (record.activity, record.visit, record.completed) == ("one", 3, ("one", "two"))
    assert record.find_answer("ask") is None


@proves("engine.replay")
def test_an_answer_carries_its_effect_into_the_record() -> None:
    effect = {"setVariable": {"tone": "warm"}, "skipActivities": ["two"]}
    record = fold(Record(), facts(STARTED, entered("one"), yielded("r"), answered("r", **effect)))

    assert (record.status, record.open) == ("active", None)
    assert (record.variables, record.skipped) == ({"tone": "warm"}, ("two",))


@proves("engine.replay")
def test_an_answer_to_another_request_changes_nothing() -> None:
    record = fold(Record(), facts(STARTED, entered("one"), yielded("r"), answered("other", setVariable={"x": 1})))

    assert record.status == "blocked"
    assert record.variables == {}

"""The rules of a session: its states, its record, and that the record is nothing but its events."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.ids import run_id, session_of_run
from fidelio.ledger.encoding import encode_record
from fidelio.orchestrator.blueprints.model import Limits, find_exceeded_limit, remaining_seconds
from fidelio.orchestrator.record.model import Usage
from fidelio.orchestrator.record.record import (
    AGENT_CALLED,
    AGENT_RETURNED,
    AGENT_SAID,
    END_EVENTS,
    MESSAGE_DELIVERED,
    MESSAGE_QUEUED,
    RUN_AGAIN,
    RUN_CONVERSATION,
    RUN_GOING_ON,
    RUN_PROCESS,
    RUN_QUEUED,
    RUN_STARTING,
    RUN_STOP_REQUESTED,
    RUN_USED,
    RUN_WAITING,
    SESSION_CREATED,
    AgentRecord,
    decode_record,
    fold,
)
from fidelio.orchestrator.record.rules import END_STATES, TRANSITIONS, can_transition, is_active, is_session_name, namespace_of
from tests.support import proves


class FakeEvent(msgspec.Struct, frozen=True):
    seq: int
    type: str
    time: int
    body: dict[str, Any]


RUNS = ("s_a.1", "s_a.2", "s_a.3")
BODIES: dict[str, dict[str, Any]] = {
    RUN_QUEUED: {"number": 1},
    RUN_STARTING: {"fresh": "f", "host": "h", "fence": 1},
    RUN_PROCESS: {"pid": 7, "started": "then"},
    RUN_CONVERSATION: {"conversation": "c"},
    AGENT_SAID: {"brief": "la"},
    AGENT_CALLED: {"tool": "sing"},
    AGENT_RETURNED: {"ok": True},
    RUN_USED: {"usage": {"turns": 1}},
    RUN_WAITING: {"request": "r_1"},
    RUN_GOING_ON: {"request": "r_1"},
    RUN_STOP_REQUESTED: {"by": "me", "reason": "stop.requested"},
    RUN_AGAIN: {},
    MESSAGE_QUEUED: {},
    MESSAGE_DELIVERED: {"messages": [2, 3]},
    "request.answered": {},
    **{end: {"reason": "because"} for end in END_EVENTS},
}


@st.composite
def histories(draw: st.DrawFn) -> list[FakeEvent]:
    """A session with anything at all happening to it in any order, as late and broken writers might wish."""
    told = [FakeEvent(1, SESSION_CREATED, 0, {"project": "/p", "executor": "actor", "depth": 1})]
    for seq, type_ in enumerate(draw(st.lists(st.sampled_from(sorted(BODIES)), max_size=40)), start=2):
        told.append(FakeEvent(seq, type_, seq * 10, {"run": draw(st.sampled_from(RUNS)), **BODIES[type_]}))
    return told


@proves("orchestrator.states")
@given(histories())
def test_a_run_moves_only_along_the_arrows(history: list[FakeEvent]) -> None:
    record = AgentRecord()
    for event in history:
        after = fold(record, (event,))
        if record.run.id and after.run.id == record.run.id and after.run.number == record.run.number:
            assert after.run.state == record.run.state or can_transition(record.run.state, after.run.state)
        elif record.run.id:
            assert record.run.state in END_STATES
            assert after.run.state == "queued"
        record = after


@proves("orchestrator.states")
@given(histories())
def test_what_has_ended_stays_as_it_ended(history: list[FakeEvent]) -> None:
    record = fold(AgentRecord(), history)
    late = [
        FakeEvent(99, type_, 999, {"run": record.run.id, **body})
        for type_, body in BODIES.items()
        if type_ not in (RUN_QUEUED, MESSAGE_QUEUED, MESSAGE_DELIVERED)
    ]

    if record.run.id and not is_active(record.run.state):
        assert fold(record, late) == record


@proves("orchestrator.replay")
@given(histories(), st.integers(0, 40))
def test_a_record_that_was_stored_halfway_leads_to_the_same_record(history: list[FakeEvent], half: int) -> None:
    stored = encode_record(fold(AgentRecord(), history[:half]))

    assert fold(decode_record(stored), history[half:]) == fold(AgentRecord(), history)


@proves("orchestrator.states")
@given(histories())
def test_a_run_waits_exactly_while_a_question_is_open(history: list[FakeEvent]) -> None:
    run = fold(AgentRecord(), history).run

    assert (run.state == "waiting") == bool(run.questions)


@proves("orchestrator.bounded")
@given(st.integers(1, 300))
def test_the_record_does_not_grow_with_what_is_said(count: int) -> None:
    begun = [
        FakeEvent(1, SESSION_CREATED, 0, {"project": "/p"}),
        FakeEvent(2, RUN_QUEUED, 0, {"run": RUNS[0], "number": 1}),
        FakeEvent(3, RUN_STARTING, 0, {"run": RUNS[0], **BODIES[RUN_STARTING]}),
    ]
    said = [
        FakeEvent(4 + n, AGENT_SAID, 0, {"run": RUNS[0], "brief": "x" * 120, "said": {"text": "x" * 4000}})
        for n in range(count)
    ]

    assert len(encode_record(fold(AgentRecord(), begun + said))) < 1_000


@proves("orchestrator.states")
def test_every_state_is_reached_and_every_active_one_can_end() -> None:
    reached = {following for after in TRANSITIONS.values() for following in after} | {"queued"}

    assert reached == set(TRANSITIONS)
    assert all(TRANSITIONS[state] & END_STATES for state in TRANSITIONS if is_active(state))
    assert not any(TRANSITIONS[state] for state in TRANSITIONS if not is_active(state))


@proves("orchestrator.names")
@pytest.mark.parametrize("name", ["a", "-", "_", "--help", "-p", "0", "A" * 60, "my_agent-1"])
def test_a_good_name_is_taken(name: str) -> None:
    assert is_session_name(name)


@proves("orchestrator.names")
@pytest.mark.parametrize("name", ["", "a\n", "\na", "A" * 61, "a b", "a/b", "ä", "\uff11", "a.b", "a\0"])
def test_a_bad_name_is_refused(name: str) -> None:
    assert not is_session_name(name)


@proves("orchestrator.scope")
@given(st.text(max_size=400), st.text(max_size=400))
def test_two_directories_never_share_a_namespace(one: str, other: str) -> None:
    spaces = [namespace_of(f"/{path}") for path in (one, other)]

    assert (spaces[0] == spaces[1]) == (one == other)
    assert all(len(space) <= 200 and space.isprintable() for space in spaces)


@proves("orchestrator.limits")
@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.floats(0, 9), st.integers(0, 9))
def test_the_limit_that_is_named_is_one_that_was_passed(turns: int, given_: int, made: int, cost: float, size: int) -> None:
    limits = Limits(turns=5, tokens=10, cost_usd=5.0, output_bytes=5)
    usage = Usage(turns=turns, input_tokens=given_, output_tokens=made, cost_usd=cost)
    passed = {"turns": turns > 5, "tokens": given_ + made > 10, "cost_usd": cost > 5.0, "output_bytes": size > 5, "": True}

    limit = find_exceeded_limit(limits, usage, size)

    assert passed[limit]
    assert limit or not any(value for name, value in passed.items() if name)


@proves("orchestrator.patience")
def test_time_spent_waiting_for_a_person_does_not_count() -> None:
    limits = Limits(wall_seconds=10)

    assert remaining_seconds(limits, started_at=0, waited_ms=0, now=4_000) == 6
    assert remaining_seconds(limits, started_at=0, waited_ms=60_000, now=64_000) == 6


@proves("orchestrator.patience")
def test_waiting_is_counted_from_the_first_question_to_the_last_answer() -> None:
    about = {"run": RUNS[0]}
    history = [
        FakeEvent(1, SESSION_CREATED, 0, {}),
        FakeEvent(2, RUN_QUEUED, 0, {**about, "number": 1}),
        FakeEvent(3, RUN_STARTING, 0, {**about, **BODIES[RUN_STARTING]}),
        FakeEvent(4, RUN_WAITING, 1_000, {**about, "request": "r_1"}),
        FakeEvent(5, RUN_WAITING, 2_000, {**about, "request": "r_2"}),
        FakeEvent(6, RUN_GOING_ON, 3_000, {**about, "request": "r_1"}),
        FakeEvent(7, RUN_GOING_ON, 5_000, {**about, "request": "r_2"}),
    ]

    assert fold(AgentRecord(), history[:-1]).run.state == "waiting"
    assert fold(AgentRecord(), history).run.state == "running"
    assert fold(AgentRecord(), history).run.waited_ms == 4_000


@proves("orchestrator.id-or-name")
@given(st.from_regex(r"s_[0-9a-z]{12}", fullmatch=True), st.integers(1, 9_999))
def test_the_id_of_a_run_contains_its_session(session: str, number: int) -> None:
    assert session_of_run(run_id(session, number)) == session

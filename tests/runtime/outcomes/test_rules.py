"""The rules of verdicts, as properties."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fidelio.ledger.redaction import EventView, blank_body
from fidelio.runtime import events as e
from fidelio.runtime.outcomes.record import HISTORY, Criterion, CriterionResult, Evaluation, Outcome, VerdictStatus
from fidelio.runtime.outcomes.rules import (
    RANKS,
    LiveConditions,
    combine,
    compute_rank,
    decide_status,
    find_iteration,
    find_recorded,
    find_trend,
    find_worst,
    grade,
    needs_another_wake,
    read_situation,
)
from fidelio.runtime.record import ApprovalRecord, RuntimeRecord, RuntimeRecords, fold
from fidelio.runtime.wakes.record import OpenCall, QueuedWake, WakeRecord
from tests.support import proves

RESULTS = st.builds(
    CriterionResult, st.sampled_from(["met", "not_met", "unverified"]), st.sampled_from(["check", "grader"]), st.just("because")
)
STATUSES = st.sampled_from(["fail", "not_ready", "uncertain", "pass"])
CONDITIONS = st.builds(
    LiveConditions,
    approval=st.sampled_from([None, ApprovalRecord("r", "d", "shell_run", 9)]),
    custom=st.sampled_from([None, OpenCall("u", "ask", 1, "custom")]),
    is_busy=st.booleans(),
    queued=st.integers(0, 2),
)


@st.composite
def outcomes(draw: st.DrawFn) -> Outcome:
    results = tuple(draw(st.lists(RESULTS, max_size=4)))
    criteria = tuple(Criterion(f"c{number}") for number in range(draw(st.sampled_from([len(results), 3])) or 1))
    status: VerdictStatus = combine(results, len(criteria))
    entries = (Evaluation("wake_1", 1, 0, status, "first_iteration", results),) if draw(st.booleans()) else ()
    decided: Any = draw(st.sampled_from(["", "", "pass", "fail"]))
    return Outcome(draw(st.sampled_from("abcdef")), "t", criteria, "person", evaluations=entries, decided=decided)


@proves("outcomes.verdict-order")
@given(st.none() | outcomes(), CONDITIONS)
def test_the_first_condition_that_applies_is_the_verdict(outcome: Outcome | None, conditions: LiveConditions) -> None:
    status = decide_status(outcome, conditions)

    if outcome is None:
        assert status == "missing_outcome"
    elif conditions.approval or conditions.custom:
        assert status == "blocked"
    elif conditions.is_busy or conditions.queued:
        assert status == "not_ready"
    else:
        assert status == find_recorded(outcome)


@proves("outcomes.verdict-order")
@given(st.lists(RESULTS, min_size=1, max_size=6))
def test_results_pass_only_if_every_criterion_is_met(results: list[CriterionResult]) -> None:
    status = combine(results, len(results))
    verdicts = {(result.verdict, result.by) for result in results}

    assert (status == "pass") == all(result.verdict == "met" for result in results)
    assert (status == "fail") == (("not_met", "check") in verdicts)
    if status == "not_ready":
        assert ("not_met", "grader") in verdicts
    # Results of fewer criteria than there are say nothing about the rest.
    assert combine(results, len(results) + 1) == "not_ready"
    assert combine((), 0) == "not_ready"


@proves("outcomes.decisions")
@given(outcomes())
def test_a_persons_decision_wins_over_the_results(outcome: Outcome) -> None:
    assert find_recorded(outcome) == (outcome.decided or find_recorded(msgspec.structs.replace(outcome, decided="")))


@proves("outcomes.verdict-order")
@given(st.lists(outcomes(), max_size=4), CONDITIONS)
def test_the_status_of_a_session_is_that_of_its_worst_outcome(found: list[Outcome], conditions: LiveConditions) -> None:
    worst = find_worst(found, conditions)

    assert (worst is None) == (not found)
    assert all(RANKS[decide_status(worst, conditions)] <= RANKS[decide_status(each, conditions)] for each in found)


@proves("outcomes.grade")
@given(st.lists(outcomes(), max_size=3), CONDITIONS)
def test_a_grade_is_done_candidate_only_if_all_outcomes_have_passed(found: list[Outcome], conditions: LiveConditions) -> None:
    status = grade(found, conditions).status

    expected = "in_progress" if any(find_recorded(outcome) != "pass" for outcome in found) else "done_candidate"
    expected = "sleeping" if conditions.queued else expected
    expected = "blocked" if conditions.is_blocked else expected
    assert status == (expected if found else "missing_outcome")


@proves("outcomes.history")
@given(st.lists(st.tuples(st.sampled_from(["w1", "w2", "w3"]), STATUSES), max_size=6), STATUSES)
def test_a_trend_compares_with_another_wake_and_never_with_itself(entries: list[tuple[str, Any]], status: Any) -> None:
    known = tuple(
        Evaluation(wake, number, number, found, "stable", (CriterionResult("met"),))
        for number, (wake, found) in enumerate(entries)
    )
    outcome = Outcome("o", "t", (Criterion("c"),), "person", evaluations=known)
    earlier = [entry for entry in known if entry.wake != "w3"]
    trend = find_trend(outcome, "w3", status)

    if not earlier:
        assert (trend, find_iteration(outcome, "w3")) == ("first_iteration", 0)
        return
    difference = compute_rank(status) - compute_rank(earlier[-1].status)
    assert trend == ("stable" if difference == 0 else "improving" if difference > 0 else "regressing")
    assert find_iteration(outcome, "w3") == earlier[-1].iteration + 1


@proves("outcomes.iterations")
@given(st.sampled_from(["person", "agent"]), STATUSES, st.integers(0, 20), st.integers(1, 20), st.booleans())
def test_only_a_persons_unmet_outcome_with_evaluations_left_lets_a_session_go_on(
    author: Any, status: Any, iteration: int, most: int, has_grader: bool
) -> None:
    outcome = Outcome("o", "t", (Criterion("c"),), author, max_iterations=most)
    goes_on = needs_another_wake(outcome, status, iteration, has_grader=has_grader)

    if goes_on:
        assert author == "person"
        assert status != "pass"
        assert iteration + 1 < most
    elif author == "person" and status in ("fail", "not_ready"):
        assert iteration + 1 >= most


@proves("outcomes.verdict-order")
def test_a_request_blocks_until_it_is_answered_expired_or_carried_out() -> None:
    approval = ApprovalRecord("r_1", "d", "shell_run", 500, tool_use="toolu_1")
    record = RuntimeRecord(approvals={"r_1": approval})
    answered = RuntimeRecord(approvals={"r_1": msgspec.structs.replace(approval, state="allowed")})

    assert read_situation(record, shell_busy=False, now=499).is_blocked
    assert not read_situation(record, shell_busy=False, now=500).is_blocked
    assert not read_situation(record, shell_busy=False, ignoring="r_1").is_blocked
    assert not read_situation(record, shell_busy=False, ignoring="toolu_1").is_blocked
    assert not read_situation(answered, shell_busy=False).is_blocked


@proves("outcomes.verdict-order")
def test_a_custom_tool_blocks_and_queued_wakes_are_unfinished_work() -> None:
    custom = RuntimeRecord(wakes=WakeRecord(open_calls=(OpenCall("u", "ask", 1, "custom"),)))
    queued = RuntimeRecord(wakes=WakeRecord(queued=(QueuedWake("q", 9, "later"),)))

    assert read_situation(custom, shell_busy=False).is_blocked
    assert read_situation(queued, shell_busy=False).is_unfinished
    assert not read_situation(RuntimeRecord(), shell_busy=False).is_unfinished


IDS = st.sampled_from(["o1", "o2"])
EVENTS = st.one_of(
    st.fixed_dictionaries(
        {
            "outcome_id": IDS,
            "title": st.sampled_from(["one", "ONE", "two"]),
            "criteria": st.just([{"text": "c", "check": {"type": "file_exists", "path": "x"}}]),
            "author": st.sampled_from(["person", "agent"]),
        }
    ).map(lambda body: (e.OUTCOME_DEFINED, body)),
    st.fixed_dictionaries(
        {
            "outcome_id": IDS,
            "wake_id": st.sampled_from(["w1", "w2", "w3", ""]),
            "iteration": st.integers(0, 3),
            "status": STATUSES,
            "trend": st.sampled_from(["stable", "improving"]),
            "results": st.lists(RESULTS.map(msgspec.to_builtins), max_size=2),
        }
    ).map(lambda body: (e.EVALUATION_ENDED, body)),
    st.fixed_dictionaries({"outcome_id": IDS, "decision": st.sampled_from(["pass", "fail"]), "by": st.just("anna")}).map(
        lambda body: (e.OUTCOME_DECIDED, body)
    ),
    st.just((e.GATE_OVERRIDDEN, {"by": "anna"})),
    st.just((e.PROMOTED, {"source_path": "", "target_path": "a", "content_digest": "d"})),
)


def _views(events: list[tuple[str, dict[str, Any]]]) -> list[EventView]:
    """The events with an id of its own for every definition."""
    views, defined = [], 0
    for seq, (type_, body) in enumerate(events, 1):
        defined += type_ == e.OUTCOME_DEFINED
        named = {**body, "outcome_id": f"o{defined}"} if type_ == e.OUTCOME_DEFINED else body
        views.append(EventView(seq, type_, seq, named))
    return views


@proves("outcomes.history")
@given(st.lists(EVENTS, max_size=12), st.integers(0, 12))
def test_verdicts_follow_from_the_events_alone(events: list[tuple[str, dict[str, Any]]], stored_after: int) -> None:
    views = _views(events)
    once = fold(RuntimeRecord(), views)
    records = RuntimeRecords()
    stored = records.read(msgspec.json.encode(fold(RuntimeRecord(), views[:stored_after])).decode())

    assert records.fold(stored, views[stored_after:]) == once
    for outcome in once.outcomes.outcomes:
        wakes = [entry.wake for entry in outcome.evaluations if entry.wake]
        assert len(wakes) == len(set(wakes))
        assert len(outcome.evaluations) <= HISTORY


@proves("outcomes.authors", "outcomes.history")
@given(st.lists(EVENTS, max_size=12))
def test_an_agents_event_never_replaces_a_persons_outcome_and_a_redaction_keeps_verdicts(
    events: list[tuple[str, dict[str, Any]]],
) -> None:
    record = RuntimeRecord()
    for view in _views(events):
        before = record.outcomes
        record = fold(record, [view])
        if view.type == e.OUTCOME_DEFINED and view.body["author"] == "agent":
            assert {known.id for known in before.outcomes if known.author == "person"} <= {
                known.id for known in record.outcomes.outcomes
            }
    blank = [
        EventView(view.seq, view.type, view.time, blank_body(view.body, RuntimeRecords.structure)) for view in _views(events)
    ]
    left = fold(RuntimeRecord(), blank).outcomes
    # What was replaced may come back, because the equal titles are gone; the gate needs all, so it is never easier to pass.
    for outcome in record.outcomes.outcomes:
        kept = left.find(outcome.id)
        assert kept is not None
        assert find_recorded(kept) == find_recorded(outcome)

"""What is said about a move that an agent asks for."""

from __future__ import annotations

import pytest

from fidelio.engine.record import Record
from fidelio.engine.state import Problem, Refusal, build_refusal, list_warnings
from fidelio.engine.transition_events import check_claim, check_drift, check_transition
from fidelio.engine.transitions import list_transitions
from tests.engine.builders import (
    activity,
    answered,
    at,
    checkpoint,
    option,
    started,
    to,
    told,
    variable,
    when,
    workflow,
    yielded,
)
from tests.support import proves

ASK = checkpoint("ask", option("back", transitionTo="one"), "on")
FORK = workflow(
    activity("one", transitions=[to("two", when("a")), to("two", when("b", "x")), to("three", default=True)]),
    activity("two", transitions=[to("four")], checkpoints=[ASK]),
    activity("three"),
    activity("four"),
    variables=[variable("a", defaultValue=False)],
)


def said(record: Record, target: str, claim: str | None = None) -> list[str]:
    return list_warnings(check_transition(FORK, record, target, claim))


def doubts(record: Record, target: str) -> list[Problem]:
    return [problem for problem in check_transition(FORK, record, target) if problem.doubt]


@proves("engine.transition-warnings")
def test_the_first_activity_has_to_be_the_initial_one() -> None:
    assert said(started(), "one") == []
    assert said(started(), "two") == [
        "First activity must be 'one' but 'two' was requested. Start with the workflow's initialActivity."
    ]


@proves("engine.transition-warnings")
def test_a_target_that_no_way_leads_to_is_named_with_the_right_ones() -> None:
    assert said(at("one"), "four") == ["Activity 'four' is not a direct transition from 'one'. Valid transitions: [two, three]"]
    assert said(at("one"), "__terminal__") == [
        "Activity '__terminal__' is not a direct transition from 'one'. Valid transitions: [two, three]"
    ]


@proves("engine.transition-warnings")
def test_staying_and_going_on_from_an_end_are_not_warned_about() -> None:
    assert said(at("one"), "one") == []
    assert said(at("three"), "two") == []
    assert [problem.code for problem in doubts(at("three"), "two")] == ["not-direct"]


@proves("engine.transition-warnings", "engine.left-out")
def test_entering_what_is_left_out_is_said_and_passing_it_is_right() -> None:
    record = at("one", told(a=True), yielded("ask"), answered(skipActivities=["two"]))

    assert said(record, "two") == ["Activity 'two' is skipped in this session."]
    assert said(record, "four") == []


@proves("engine.independent")
def test_independent_activities_may_be_entered_in_any_order() -> None:
    definition = workflow(activity("one", transitions=[to("two")]), activity("two"), activity("three"), initial=None)

    assert check_transition(definition, started(), "three") == []
    assert check_transition(definition, at("one"), "three") == []
    assert check_transition(definition, at("one"), "__terminal__") == []


@proves("engine.claims")
@pytest.mark.parametrize("claim", ["a == true", 'b == "x"', "b == x"])
def test_either_of_two_ways_to_the_same_target_may_be_claimed(claim: str) -> None:
    assert said(at("one"), "two", claim) == []


@proves("engine.claims")
def test_a_claim_that_words_no_way_to_the_target_is_a_mismatch() -> None:
    assert said(at("one"), "two", "c == 1") == [
        "Condition mismatch: transition to 'two' requires 'a == true' or 'b == \"x\"', but 'c == 1' was claimed."
    ]
    assert said(at("one"), "two", "default") == [
        "Condition mismatch: transition to 'two' requires 'a == true' or 'b == \"x\"', but 'default' was claimed."
    ]
    assert said(at("one"), "three", "c == 1") == [
        "Condition mismatch: transition to 'three' is the default (no condition) but agent claimed condition 'c == 1'."
    ]


@proves("engine.claims")
@pytest.mark.parametrize("claim", [None, "", "default", "Default"])
def test_a_default_is_claimed_by_its_name_or_by_nothing(claim: str | None) -> None:
    assert said(at("one"), "three", claim) == []


@proves("engine.claims")
def test_the_answer_that_leads_on_may_be_claimed_or_left_unsaid() -> None:
    record = at("two", yielded("ask"), answered("back", transitionTo="one"))

    candidates = list_transitions(FORK, record)

    assert check_claim(FORK, record, "one", "checkpoint:ask:back", candidates) == []
    assert check_claim(FORK, record, "one", "default", candidates) == []
    assert said(record, "four") == [
        "Condition mismatch: transition to 'four' does not hold: the answer to a checkpoint leads to 'one'."
    ]


@proves("engine.truth-of-claims")
def test_a_reported_variable_contradicts_and_a_default_does_not() -> None:
    assert said(at("one"), "two", "a == true") == []
    assert said(at("one", told(a=False)), "two") == []
    assert said(at("one", told(a=False)), "two", "a == true") == [
        "Condition mismatch: transition to 'two' does not hold: 'a == true' is not so."
    ]
    assert said(at("one", told(a=False, b="y")), "two", "a == true") == [
        "Condition mismatch: transition to 'two' does not hold: 'a == true' is not so."
    ]
    assert said(at("one", told(a=True)), "three") == [
        "Condition mismatch: transition to 'three' does not hold: 'a == true' holds."
    ]


@proves("engine.truth-of-claims", "engine.enforce")
def test_a_move_against_a_mere_default_is_silent_when_advising_and_asked_about_when_enforcing() -> None:
    definition = workflow(
        activity("one", transitions=[to("two", when("a"))]), activity("two"), variables=[variable("a", defaultValue=False)]
    )
    problems = check_transition(definition, at("one"), "two", "a == true")

    assert list_warnings(problems) == []
    assert "[a]" in (build_refusal(problems, "enforce") or Refusal("", "")).sentence


@proves("engine.truth-of-claims")
def test_another_answer_contradicts_the_way_of_an_answer() -> None:
    assert said(at("two"), "one") == []
    assert said(at("two", yielded("ask"), answered("on")), "one") == [
        "Condition mismatch: transition to 'one' does not hold: the answer was not 'checkpoint:ask:back'."
    ]


@proves("engine.enforce")
def test_what_is_not_known_is_silent_when_advising_and_asked_for_by_name_when_enforcing() -> None:
    problems = check_transition(FORK, at("one"), "two")
    no = build_refusal(problems, "enforce")

    assert list_warnings(problems) == []
    assert build_refusal(problems, "advise") is None
    assert no is not None
    assert "[a, b]" in no.sentence
    assert no.remedy == "Report a and b in `variables`."


@proves("engine.enforce")
def test_enforcing_accepts_what_holds_also_by_a_default() -> None:
    definition = workflow(
        activity("one", transitions=[to("two", when("a"))]), activity("two"), variables=[variable("a", defaultValue=True)]
    )

    assert build_refusal(check_transition(definition, at("one"), "two"), "enforce") is None
    assert build_refusal(check_transition(FORK, at("one", told(a=True)), "two", "a == true"), "enforce") is None


@proves("engine.enforce")
def test_enforcing_joins_what_advising_warns_about_each_problem_once() -> None:
    problems = [Problem("a", "First.", "Do this."), Problem("b", "Second."), Problem("a", "First.", "Do this.")]
    no = build_refusal([*problems, Problem("c", "Remark.", advisory=True)], "enforce")

    assert no is not None
    assert (no.code, no.sentence, no.remedy) == ("a", "First. Second.", "Do this.")
    assert list_warnings(problems) == ["First.", "Second."]


@proves("engine.drift")
def test_a_changed_definition_is_said_and_never_refused() -> None:
    newer, other = check_drift(started(), "1.1.0", "e"), check_drift(started(), "1.0.0", "e")

    assert check_drift(started(), "1.0.0", "d") == []
    assert "'1.0.0', the definition is now '1.1.0'" in list_warnings(newer)[0]
    assert "still as version '1.0.0'" in list_warnings(other)[0]
    assert build_refusal([*newer, *other], "enforce") is None

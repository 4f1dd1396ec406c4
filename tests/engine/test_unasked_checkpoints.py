"""Steps that are reported as done although nobody was asked the question before them, and what answers have settled."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.engine.checkpoints import find_instance
from fidelio.engine.manifests import StepReport, check_step_manifest
from fidelio.engine.record import CALLED, VARIABLES_SET, EventDraft, Record, fold_drafts
from fidelio.engine.state import build_refusal, list_warnings
from fidelio.engine.transition_events import check_transition
from fidelio.engine.triggers import TriggerMatch, build_initial_variables, collect_returned_variables
from fidelio.engine.variables import check_report
from tests.engine.builders import (
    NOW,
    activity,
    answered,
    at,
    checkpoint,
    entered,
    loop,
    started,
    step,
    told,
    variable,
    when,
    workflow,
    yielded,
)
from tests.support import proves

SCORE = workflow(
    activity(
        "one",
        steps=[step("a", checkpoint="plain"), step("b", checkpoint="perhaps")],
        loops=[loop("l", steps=[step("x", checkpoint="each")])],
        checkpoints=[checkpoint("plain"), checkpoint("perhaps", condition=when("deep")), checkpoint("each")],
    ),
    activity("two"),
    variables=[variable("deep"), variable("approved"), variable("review", "object")],
)
PLAIN = (yielded("plain"), answered("yes"))
SAID_NO = (yielded("plain"), answered("no", setVariable={"approved": False}))


def said(record: Record, *names: str, **how: bool) -> list[str]:
    return list_warnings(check_step_manifest(SCORE, record, [StepReport(name, "done") for name in names], **how))


def asked_each(*iterations: int) -> list[EventDraft]:
    return [
        draft
        for number in iterations
        for draft in (yielded("each", f"e{number}", iteration=number), answered("yes", f"e{number}"))
    ]


def called(outcome: str = "ok") -> EventDraft:
    return EventDraft(CALLED, {"name": "get_activity", "s": outcome})


@proves("engine.unasked")
def test_a_step_whose_question_certainly_applied_and_was_never_asked_is_warned_of() -> None:
    expected = ["Step 'a' is reported as done, but its checkpoint 'plain' has not been answered in this visit."]

    assert said(at("one"), "a", "b") == expected
    assert said(at("one", *PLAIN), "a", "b") == []


@proves("engine.unasked")
def test_a_question_whose_condition_is_not_known_is_not_held_against_an_agent_that_is_advised() -> None:
    before, meanwhile = started(told(deep=True), entered("one"), *PLAIN), at("one", *PLAIN, told(deep=True))
    steps = [StepReport("a", "done"), StepReport("b", "done")]

    assert len(said(before, "a", "b")) == 1
    assert said(meanwhile, "a", "b") == []
    assert build_refusal(check_step_manifest(SCORE, meanwhile, steps), "enforce") is not None


@proves("engine.unasked")
def test_a_step_of_a_loop_waits_for_its_question_too() -> None:
    assert "its checkpoint 'each' has not been answered" in said(at("one", *PLAIN), "a", "b", "x")[0]
    assert said(at("one", *PLAIN, *asked_each(1)), "a", "b", "x") == []


@proves("engine.unasked")
def test_a_step_of_a_loop_is_not_done_more_often_than_its_question_was_asked() -> None:
    record = at("one", *PLAIN, *asked_each(1, 2))

    assert said(record, "a", "b", "x", "x") == []
    assert said(record, "a", "b", "x", "x", "x") == [
        "Step 'x' is reported 3 times, but its checkpoint 'each' was asked only 2 times."
    ]
    assert said(record, "a", "b", "x", "x", "x", per_iteration=False) == []


@proves("engine.asked-per-pass")
@pytest.mark.parametrize(("calls", "iteration"), [([], 1), ([called("error")], 1), ([called()], 2)])
def test_a_question_of_a_loop_that_comes_after_the_work_went_on_is_that_of_the_next_pass(
    calls: list[EventDraft], iteration: int
) -> None:
    assert find_instance(SCORE, at("one", *asked_each(1), *calls), "each").iteration == iteration


@proves("engine.answers-stay")
def test_a_report_does_not_change_what_an_answer_has_set() -> None:
    record = at("one", *SAID_NO)
    problems = check_report(SCORE, record, {"approved": True})

    (sentence,) = list_warnings(problems)
    assert sentence.startswith("Variable 'approved' was set by the answer to checkpoint 'plain'")
    assert build_refusal(problems, "enforce") is not None
    assert check_report(SCORE, record, {"approved": False}) == []
    assert check_report(SCORE, record, {"deep": True}) == []


@proves("engine.answers-stay")
@pytest.mark.parametrize("value", [None, 0, "false"])
def test_another_type_of_the_same_truth_is_another_value(value: object) -> None:
    assert any("set by the answer" in one.sentence for one in check_report(SCORE, at("one", *SAID_NO), {"approved": value}))


@proves("engine.answers-stay")
def test_a_part_of_what_an_answer_has_set_is_its_too() -> None:
    record = at("one", yielded("plain"), answered("no", setVariable={"review": {"good": False}}))

    assert any("set by the answer" in one.sentence for one in check_report(SCORE, record, {"review.good": True}))


@proves("engine.answers-stay")
def test_whoever_repeats_an_answer_does_not_become_its_author() -> None:
    record = at("one", *SAID_NO, told(approved=False))

    assert record.set_by["approved"] == "checkpoint:one/plain/no"
    assert check_report(SCORE, record, {"approved": True}) != []


@proves("engine.answers-stay")
def test_the_definition_and_another_answer_change_it() -> None:
    action = EventDraft(VARIABLES_SET, {"variables": {"approved": True}, "by": "exit:one"})
    other = (yielded("each", "r2", iteration=1), answered("yes", "r2", setVariable={"approved": True}))

    assert at("one", *SAID_NO, action).set_by["approved"] == "exit:one"
    assert at("one", *SAID_NO, *other).variables["approved"] is True


@proves("engine.answers-stay")
@pytest.mark.parametrize("onward", [["two"], ["two", "one"]])
def test_later_work_may_come_to_something_else_unless_a_person_was_demanded(onward: list[str]) -> None:
    record = fold_drafts(at("one", *SAID_NO), map(entered, onward), NOW)
    demanding = SCORE.model_copy(update={"answered_by": "person"})

    assert check_report(SCORE, record, {"approved": True}) == []
    assert check_report(demanding, record, {"approved": True}) != []
    assert check_report(SCORE, record, {"approved": True}, person=True) != []
    assert check_report(workflow(activity("two"), variables=[variable("approved")]), record, {"approved": True}) != []


@proves("engine.answers-stay")
@pytest.mark.parametrize("fidelity", ["enforce", "advise"])
def test_the_agent_of_a_child_does_not_change_it_either(fidelity: str) -> None:
    parent = started(entered("one"), *SAID_NO, fidelity=fidelity)
    child: dict[str, Any] = {"variables": {"approved": True, "deep": True}, "by": "agent:w"}
    ended = fold_drafts(started(entered("one")), [EventDraft(VARIABLES_SET, child)], NOW)
    answered_there = at("one", yielded("plain"), answered("yes", setVariable={"approved": True}))

    assert "approved" not in collect_returned_variables(SCORE, parent, ended)
    assert collect_returned_variables(SCORE, parent, ended)["deep"] is True
    assert collect_returned_variables(SCORE, parent, answered_there)["approved"] is True


@proves("engine.answers-stay")
@pytest.mark.parametrize("person", [True, False])
def test_what_a_person_has_settled_is_settled_in_a_child_too(person: bool) -> None:
    parent = at("one", yielded("plain"), answered("no", setVariable={"approved": False}))
    begun = build_initial_variables(SCORE, parent, TriggerMatch("child", "", ("approved",)), person=person)
    child = started(entered("one"), **begun)
    other = {"approved": True}

    assert child.variables == {"approved": False}
    assert bool(check_report(SCORE, child, other)) is person
    assert not check_report(SCORE, child, {"approved": False})


@proves("engine.transition-warnings")
@pytest.mark.parametrize("target", ["two", "__terminal__"])
def test_a_session_whose_activity_is_gone_is_told_so(target: str) -> None:
    problems = check_transition(SCORE, at("lost"), target)

    assert list_warnings(problems) == [
        "The current activity 'lost' was deleted from the definition, so its transitions are unknown."
    ]
    assert build_refusal(problems, "enforce") is not None
    assert build_refusal(check_transition(SCORE, at("lost"), "one"), "enforce") is None

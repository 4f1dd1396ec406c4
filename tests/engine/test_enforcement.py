"""What enforcing asks for and what honest work may leave out: order, doubts, answers that lead elsewhere, actions of steps."""

from __future__ import annotations

import pytest

from fidelio.engine.answers import AnswerChoice, AnswerContext, Resolution, resolve_answer
from fidelio.engine.manifests import StepReport, check_step_manifest, check_unasked_checkpoints, draft_reported_steps
from fidelio.engine.record import EventDraft, fold_drafts
from fidelio.engine.state import Refusal, build_refusal, list_warnings
from fidelio.engine.transition_events import check_transition
from fidelio.engine.transitions import list_transitions
from fidelio.engine.variables import check_report, draft_report
from tests.engine.builders import (
    NOW,
    activity,
    answered,
    at,
    checkpoint,
    option,
    step,
    to,
    told,
    variable,
    when,
    workflow,
    yielded,
)
from tests.support import proves

LATER = NOW + 10_000


def manifest(*names: str) -> list[StepReport]:
    return [StepReport(name, "done") for name in names]


@proves("engine.ways")
def test_of_two_ways_that_hold_the_first_is_the_one() -> None:
    score = workflow(
        activity("a", transitions=[to("b", when("risky")), to("c", when("ready"))]), activity("b"), activity("c"), initial="a"
    )
    both, second = at("a", told(risky=True, ready=True)), at("a", told(risky=False, ready=True))

    (problem,) = check_transition(score, both, "c")
    assert "'risky == true' holds and comes first" in problem.sentence
    assert build_refusal([problem], "enforce") is not None
    assert check_transition(score, both, "b") == check_transition(score, second, "c") == []


@proves("engine.ways")
@pytest.mark.parametrize(("known", "truth"), [({}, None), ({"x": True}, False), ({"x": False}, True)])
def test_a_plain_way_holds_when_nothing_before_it_does(known: dict[str, bool], truth: bool | None) -> None:
    score = workflow(activity("a", transitions=[to("b", when("x")), to("c")]), activity("b"), activity("c"))
    found = list_transitions(score, at("a", told(**known)) if known else at("a"))
    assert [way.holds for way in found if way.to == "c"] == [truth]


@proves("engine.truth-of-claims")
def test_a_target_that_every_way_leads_to_is_not_doubted() -> None:
    score = workflow(activity("a", transitions=[to("b", when("p")), to("b", default=True)]), activity("b"))
    assert check_transition(score, at("a"), "b") == []


@proves("engine.truth-of-claims")
def test_a_part_of_a_variable_is_asked_for_by_the_name_that_can_be_reported() -> None:
    score = workflow(
        activity("a", transitions=[to("b", when("task.kind", "bug")), to("c", default=True)]),
        activity("b"),
        activity("c"),
        variables=[variable("task", "object")],
    )
    (problem,) = check_transition(score, at("a"), "b")
    assert "[task.kind]" in problem.sentence
    assert problem.remedy == "Report task in `variables`."
    assert check_report(score, at("a"), {"task": {"kind": "bug"}}) == []


LEADING = workflow(
    activity(
        "a",
        steps=[step("first"), step("asked", checkpoint="where"), step("after")],
        checkpoints=[checkpoint("where", option("stay"), option("leave", transitionTo="z"))],
        transitions=[to("b")],
    ),
    activity("b"),
    activity("z"),
)


@proves("engine.manifest-honest")
def test_an_answer_that_leads_elsewhere_takes_the_steps_behind_it_away() -> None:
    led = at("a", yielded("where"), answered("leave", transitionTo="z"))
    assert check_step_manifest(LEADING, led, manifest("first")) == []
    assert check_step_manifest(LEADING, led, manifest("first", "asked")) == []
    assert list_warnings(check_step_manifest(LEADING, led, manifest())) == ["Missing steps in manifest: [first]"]

    stayed = at("a", yielded("where"), answered("stay"))
    assert list_warnings(check_step_manifest(LEADING, stayed, manifest("first", "asked"))) == [
        "Missing steps in manifest: [after]"
    ]


SOMETIMES = workflow(
    activity("a", steps=[step("always"), step("sometimes", condition=when("release"))], transitions=[to("b")]),
    activity("b"),
    variables=[variable("release", defaultValue=True)],
)


@proves("engine.manifest-honest")
def test_a_step_of_which_nobody_knows_whether_it_applies_is_asked_about_only_when_enforcing() -> None:
    problems = check_step_manifest(SOMETIMES, at("a"), manifest("always"))
    assert list_warnings(problems) == []
    no = build_refusal(problems, "enforce")
    assert no is not None
    assert no.remedy == "Report release in `variables`."
    assert check_step_manifest(SOMETIMES, at("a"), manifest("always", "sometimes")) == []
    assert build_refusal(check_step_manifest(SOMETIMES, at("a", told(release=False)), manifest("always")), "enforce") is None


@proves("engine.unasked")
def test_a_question_that_no_step_names_is_not_left_out_where_moves_are_enforced() -> None:
    score = workflow(
        activity("a", checkpoints=[checkpoint("free", answered_by="person")], transitions=[to("b")]), activity("b")
    )

    problems = check_unasked_checkpoints(score, at("a"))
    assert list_warnings(problems) == []
    assert build_refusal(problems, "enforce") is not None
    assert check_unasked_checkpoints(score, at("a", yielded("free"), answered("yes"))) == []


@proves("engine.unasked")
@pytest.mark.parametrize("known", [{}, {"cold": False}])
def test_a_question_that_may_not_have_applied_may_be_left_out(known: dict[str, bool]) -> None:
    asks = [checkpoint("free", condition=when("cold"), answered_by="person"), checkpoint("idle", required=False)]
    score = workflow(activity("a", checkpoints=asks), variables=[variable("cold")])
    assert check_unasked_checkpoints(score, at("a", told(**known)) if known else at("a")) == []


@proves("engine.answers-stay")
def test_a_report_against_an_answer_is_on_record_and_changes_nothing() -> None:
    record = at("a", yielded("where"), answered("leave", setVariable={"ok": False}))
    score = LEADING.model_copy(update={"answered_by": "person"})

    (draft,) = draft_report(score, record, {"ok": True, "more": 1}, "agent:w")
    assert draft.body == {"variables": {"more": 1}, "by": "agent:w", "not_taken": {"ok": True}}
    after = fold_drafts(record, [draft], NOW)
    assert after.variables == {"ok": False, "more": 1}
    assert draft_report(score, record, {"ok": False}, "w")[0].body["variables"] == {"ok": False}
    assert draft_report(score, record, {}, "w") == []


@proves("engine.actions")
def test_the_actions_of_the_steps_that_are_reported_are_carried_out_in_order() -> None:
    sets = [{"action": "set", "target": "n", "value": 1}]
    again = [{"action": "set", "target": "n", "value": 2, "condition": when("n", 1)}]
    score = workflow(
        activity("a", steps=[step("one", actions=sets), step("two", actions=again), step("three")]),
        variables=[variable("n", "number")],
    )

    def outcome(*names: str) -> object:
        drafts: list[EventDraft] = draft_reported_steps(score, at("a"), manifest(*names))
        return fold_drafts(at("a"), drafts, NOW).variables.get("n")

    assert [outcome(), outcome("three"), outcome("one"), outcome("one", "two"), outcome("two")] == [None, None, 1, 2, None]


@proves("engine.person")
def test_a_demand_that_was_made_with_the_question_stays_when_the_definition_loses_it() -> None:
    score = workflow(activity("a", checkpoints=[checkpoint("ask")]))
    how = AnswerContext(LATER)
    demanded, free = at("a", yielded("ask", person=True)), at("a", yielded("ask"))

    refused = resolve_answer(score, demanded, AnswerChoice("yes"), how)
    assert isinstance(refused, Refusal)
    assert refused.code == "checkpoint.person"
    assert isinstance(resolve_answer(score, free, AnswerChoice("yes"), how), Resolution)

"""What is possible inside an activity, and what is accepted."""

from __future__ import annotations

import pytest

from fidelio.definitions import TERMINAL
from fidelio.definitions.models import Workflow
from fidelio.engine.apply_move import MoveRequest
from fidelio.engine.moves import SessionPosition, describe_situation
from fidelio.engine.record import CHILD_STARTED, EventDraft, Record
from fidelio.engine.state import Refusal
from tests.engine.builders import (
    activity,
    advance,
    at,
    checkpoint,
    done,
    go,
    loop,
    made,
    make,
    option,
    say,
    started,
    step,
    steps,
    to,
    told,
    when,
    workflow,
    yielded,
)
from tests.support import proves

SCORE = workflow(
    activity(
        "one",
        steps=[step("a"), step("b", required=False), step("c", condition=when("deep")), step("d", checkpoint="ask")],
        checkpoints=[checkpoint("ask", "yes", option("back", transitionTo="one"))],
        transitions=[to("two", when("good")), to("three", when("good", False))],
    ),
    activity("two"),
    activity("three"),
)


def required(definition: Workflow, record: Record) -> list[tuple[str, str]]:
    return [(move.action, move.target) for move in describe_situation(definition, record).required]


def optional(definition: Workflow, record: Record) -> list[str]:
    return [move.target for move in describe_situation(definition, record).optional]


def refused(definition: Workflow, record: Record, act: MoveRequest) -> Refusal:
    found = make(definition, record, act)
    assert isinstance(found, Refusal)
    return found


@proves("engine.moves")
def test_a_session_begins_with_its_initial_activity() -> None:
    assert required(SCORE, started()) == [("transition", "one")]
    assert made(SCORE, started(), go("one")).activity == "one"


@proves("engine.step-order")
def test_steps_come_in_order_and_what_may_be_left_out_is_optional() -> None:
    record = at("one")
    assert required(SCORE, record) == [("complete_step", "a")]

    record = made(SCORE, record, done("a"))
    assert optional(SCORE, record) == ["b", "c"]
    assert required(SCORE, record) == [("respond_to_checkpoint", "ask")]
    assert describe_situation(SCORE, record).position == SessionPosition("wf", "one", "b", 2, "b")


@proves("engine.step-order")
def test_a_step_whose_condition_is_false_is_not_offered_and_one_that_holds_is_required() -> None:
    after_a = made(SCORE, at("one"), done("a"))

    assert required(SCORE, made(SCORE, at("one", told(deep=True)), done("a"))) == [("complete_step", "c")]
    assert optional(SCORE, made(SCORE, at("one", told(deep=False)), done("a"))) == ["b"]
    assert optional(SCORE, made(SCORE, after_a, done("c"))) == []


@proves("engine.step-order", "engine.moves")
@pytest.mark.parametrize(
    ("act", "code"),
    [
        (done("d"), "STEP_NOT_NEXT"),
        (done("zzz"), "STEP_NOT_FOUND"),
        (go("two"), "ACTIVITY_NOT_COMPLETE"),
        (go("nowhere"), "TARGET_ACTIVITY_NOT_FOUND"),
        (advance("zzz"), "LOOP_NOT_FOUND"),
        (say("zzz"), "CHECKPOINT_NOT_FOUND"),
        (say("ask"), "CHECKPOINT_NOT_REACHED"),
        (MoveRequest("dismiss_checkpoint", "ask"), "CHECKPOINT_NOT_REACHED"),
    ],
)
def test_what_is_not_offered_is_refused_with_its_reason(act: MoveRequest, code: str) -> None:
    assert refused(SCORE, at("one"), act).code == code


@proves("engine.moves")
def test_a_step_is_completed_once_and_nothing_happens_after_the_end() -> None:
    record = made(SCORE, at("one"), done("a"))
    assert refused(SCORE, record, done("a")).code == "STEP_ALREADY_COMPLETE"

    ended = made(SCORE, at("two"), go(TERMINAL))
    assert ended.status == "completed"
    assert describe_situation(SCORE, ended).offered == ()
    assert refused(SCORE, ended, go("one")).code == "WORKFLOW_COMPLETED"
    assert refused(SCORE, started(), done("a")).code == "ACTIVITY_NOT_FOUND"


@proves("engine.questions-first")
def test_a_step_waits_for_its_question_and_goes_on_after_the_answer() -> None:
    record = made(SCORE, at("one"), done("a"))
    assert refused(SCORE, record, done("d")).code == "CHECKPOINT_BLOCKING"
    assert describe_situation(SCORE, record).checkpoint == "ask"

    record = made(SCORE, record, say("ask"), done("d"))
    assert required(SCORE, record) == [("transition", "two"), ("transition", "three")]
    assert refused(SCORE, record, say("ask", "back")).code == "CHECKPOINT_ALREADY_RESPONDED"


@proves("engine.questions-first")
def test_an_open_question_holds_everything_else() -> None:
    record = at("one", yielded("ask"))

    assert required(SCORE, record) == [("respond_to_checkpoint", "ask")]
    assert [move.target for move in describe_situation(SCORE, record).blocked] == ["a", "two", "three"]
    assert refused(SCORE, record, done("a")).code == "CHECKPOINT_BLOCKING"


@proves("engine.questions-first")
def test_a_question_without_a_step_comes_on_entry_and_as_soon_as_its_condition_may_hold() -> None:
    free = [checkpoint("first"), checkpoint("later", condition=when("c"))]
    definition = workflow(activity("one", steps=steps("a"), checkpoints=free))

    assert required(definition, at("one", told(c=False))) == [("respond_to_checkpoint", "first")]
    record = made(definition, at("one", told(c=False)), say("first"))
    assert required(definition, record) == [("complete_step", "a")]
    unknown = made(definition, at("one"), say("first"))
    assert required(definition, unknown) == [("respond_to_checkpoint", "later")]
    assert required(definition, made(definition, unknown, MoveRequest("dismiss_checkpoint", "later"))) == [
        ("complete_step", "a")
    ]


@proves("engine.questions-first")
def test_a_question_that_is_not_required_may_be_answered_and_holds_nothing() -> None:
    definition = workflow(activity("one", steps=steps("a"), checkpoints=[checkpoint("hint", required=False)]))

    assert required(definition, at("one")) == [("complete_step", "a")]
    assert optional(definition, at("one")) == ["hint"]
    assert optional(definition, made(definition, at("one"), say("hint"))) == []


@proves("engine.answer-leads", "engine.done-anew")
def test_an_answer_that_leads_back_begins_the_activity_anew() -> None:
    record = made(SCORE, at("one"), done("a"), say("ask", "back"))
    assert required(SCORE, record) == [("transition", "one")]

    anew = made(SCORE, record, go("one"))
    assert (anew.visit, anew.forced, anew.here.done) == (2, "", ())
    assert required(SCORE, anew) == [("complete_step", "a")]


@proves("engine.done-anew")
def test_a_declared_way_back_to_the_activity_itself_begins_it_anew() -> None:
    definition = workflow(
        activity("one", steps=steps("a"), transitions=[to("one", when("again")), to("two", default=True)]), activity("two")
    )
    anew = made(definition, at("one"), done("a"), go("one"))

    assert (anew.visit, required(definition, anew)) == (2, [("complete_step", "a")])


@proves("engine.moves")
def test_a_way_whose_condition_does_not_hold_is_blocked_with_the_reason() -> None:
    record = made(SCORE, at("one", told(good=True)), done("a"), say("ask"), done("d"))

    assert required(SCORE, record) == [("transition", "two")]
    assert next((move.target, move.reason) for move in describe_situation(SCORE, record).blocked) == (
        "three",
        "'good == false' does not hold.",
    )
    assert refused(SCORE, record, go("three")).sentence.startswith("No valid transition")


@proves("engine.triggers")
def test_a_child_that_is_waited_for_holds_the_way_out_and_not_the_work() -> None:
    child = EventDraft(CHILD_STARTED, {"session": "s_child", "workflow": "other", "suspends": True})
    definition = workflow(activity("one", steps=steps("a"), transitions=[to("two")]), activity("two"))

    assert required(definition, at("one", child)) == [("complete_step", "a")]
    record = made(definition, at("one", child), done("a"))
    assert required(definition, record) == []
    assert [move.reason for move in describe_situation(definition, record).blocked] == ["Session s_child has to end first."]


@proves("engine.loops", "engine.step-order")
def test_loops_come_after_the_steps_in_the_order_of_the_definition() -> None:
    definition = workflow(
        activity("one", steps=steps("a"), loops=[loop("l", "doWhile", steps=steps("x")), loop("m", "doWhile")])
    )
    record = made(definition, at("one"), done("a"), advance("l"), done("x"))

    assert optional(definition, record) == ["l"]
    assert required(definition, record) == [("advance_loop", "m")]
    assert optional(definition, made(definition, record, advance("m"))) == ["m"]

"""When a workflow that starts others does so, where the server leads."""

from __future__ import annotations

from fidelio.engine.apply_move import MoveRequest
from fidelio.engine.moves import describe_situation
from fidelio.engine.record import Record
from fidelio.engine.transitions import explain_missing_transition
from fidelio.engine.triggers import find_fired_triggers
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

STARTS = {"workflow": "child", "passContext": ["a"]}
PARENT = workflow(
    activity(
        "one",
        steps=[step("a"), step("b", triggers=STARTS), step("c", required=False)],
        transitions=[to("two")],
    ),
    activity("two", steps=[step("d"), step("e", condition=when("more"))], triggers=STARTS, transitions=[to("three")]),
    activity("three", triggers=STARTS),
)


def starts(before: Record, act: MoveRequest) -> list[str]:
    after = made(PARENT, before, act)
    return [found.step or after.activity for found in find_fired_triggers(PARENT, before, after, act.target)]


@proves("navigator.triggers")
def test_a_step_starts_its_workflow_when_it_is_completed() -> None:
    assert starts(at("one"), done("a")) == []
    assert starts(made(PARENT, at("one"), done("a")), done("b")) == ["b"]


@proves("navigator.triggers")
def test_an_activity_starts_its_workflow_once_its_steps_are_done() -> None:
    assert starts(at("two", told(more=False)), done("d")) == ["two"]
    assert starts(at("two", told(more=True)), done("d")) == []
    assert starts(made(PARENT, at("two", told(more=True)), done("d")), done("e")) == ["two"]


@proves("navigator.triggers")
def test_an_activity_without_steps_starts_its_workflow_on_entry() -> None:
    assert starts(made(PARENT, at("two"), done("d")), go("three")) == ["three"]


@proves("navigator.triggers")
def test_coming_back_from_a_loop_is_no_entry() -> None:
    ring = workflow(
        activity("one", loops=[loop("l", "doWhile", condition=when("more"), activities=["two"])], triggers=STARTS),
        activity("two"),
    )
    inside = made(ring, at("one", told(more=False)), advance("l"), go("two"))

    assert find_fired_triggers(ring, inside, made(ring, inside, go("one"))) == []


@proves("navigator.checkpoints")
def test_a_default_is_offered_when_its_time_has_run_out_and_not_before() -> None:
    patient = {"blocking": False, "defaultOption": "yes", "autoAdvanceMs": 500}
    definition = workflow(activity("one", checkpoints=[checkpoint("ask", **patient), checkpoint("firm")]))
    record = at("one", yielded("ask"))
    since = record.open.yielded_at if record.open else 0

    early = describe_situation(definition, record, now=since + 499)
    assert "take_default" not in [move.action for move in early.offered]
    assert [move.reason for move in early.blocked if move.action == "take_default"] == ["Its 500 ms have to run out first."]
    late = describe_situation(definition, record, now=since + 500)
    assert [move.options for move in late.optional if move.action == "take_default"] == [("yes",)]
    firm = describe_situation(definition, at("one", yielded("firm")), now=since + 10_000)
    assert [move.action for move in firm.offered] == ["respond_to_checkpoint"]


@proves("navigator.loops")
def test_an_activity_that_a_loop_goes_through_is_inside_that_loop() -> None:
    ring = workflow(
        activity("one", loops=[loop("l", "forEach", over="days", variable="day", activities=["two"])]),
        activity("two", steps=steps("x")),
    )
    inside = made(ring, at("one"), advance("l", "p", "q"), go("two"))
    (place,) = describe_situation(ring, inside).position.loops

    assert (place.id, place.iteration, place.total, place.item) == ("l", 1, 2, "p")


@proves("navigator.steps")
def test_what_came_of_a_step_is_kept_in_bounds() -> None:
    definition = workflow(activity("one", steps=steps("a")))
    after = make(definition, at("one"), MoveRequest("complete_step", "a", output="x" * 9_000))

    assert isinstance(after, Record)
    assert len(str(after)) < 2_000


@proves("navigator.definitions")
def test_a_way_exists_where_the_definition_has_one() -> None:
    assert explain_missing_transition(PARENT, "one", "two") == ""
    assert "No valid transition" in explain_missing_transition(PARENT, "two", "one")
    assert "not found" in explain_missing_transition(PARENT, "one", "zzz")
    assert describe_situation(PARENT, started()).required

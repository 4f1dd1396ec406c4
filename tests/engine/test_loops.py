"""Loops: how often they run, what is inside, and what leads through other activities."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.definitions.models import Workflow
from fidelio.engine.moves import describe_situation
from fidelio.engine.record import Record
from fidelio.engine.scope import collect_values
from fidelio.engine.state import Refusal
from fidelio.engine.transition_events import check_transition
from tests.engine.builders import activity, advance, at, done, go, loop, made, make, step, steps, to, told, when, workflow
from tests.support import proves


def looping(kind: str, **parts: Any) -> Workflow:
    whole = {"steps": steps("x"), **parts}
    return workflow(activity("one", loops=[loop("l", kind, **whole)], transitions=[to("two")]), activity("two"))


def required(definition: Workflow, record: Record) -> list[str]:
    return [move.target for move in describe_situation(definition, record).required]


def passes(definition: Workflow, record: Record, most: int = 9) -> int:
    """How many passes are made by somebody who does what is required."""
    for number in range(most):
        if "l" not in required(definition, record):
            return number
        record = made(definition, record, advance("l"), done("x"))
    return most


@proves("engine.loops")
@pytest.mark.parametrize(("items", "expected"), [([], 0), (["p"], 1), (["p", "q", "r"], 3), (list("abcdefgh"), 4)])
def test_a_list_is_gone_through_item_by_item_up_to_the_maximum(items: list[str], expected: int) -> None:
    definition = looping("forEach", over="tasks", maxIterations=4)
    record = at("one", told(tasks=items))

    assert passes(definition, record) == expected
    if items:
        running = made(definition, record, advance("l")).here.running
        assert running is not None
        assert running.items == tuple(items[:4])


@proves("engine.loops")
def test_a_while_loop_tests_before_and_a_do_while_loop_after_the_pass() -> None:
    condition = {"condition": when("more")}

    assert passes(looping("while", **condition), at("one", told(more=False))) == 0
    assert passes(looping("doWhile", **condition), at("one", told(more=False))) == 1
    assert passes(looping("while", **condition, maxIterations=3), at("one", told(more=True))) == 3
    assert passes(looping("doWhile", **condition, maxIterations=3), at("one", told(more=True))) == 3


@proves("engine.loops")
def test_the_break_condition_ends_a_loop_after_a_pass() -> None:
    definition = looping("while", condition=when("more"), breakCondition=when("enough"))

    assert passes(definition, at("one", told(more=True, enough=True))) == 1


@proves("engine.loops")
@pytest.mark.parametrize("kind", ["while", "forEach"])
def test_what_is_not_known_leaves_the_choice_to_the_agent(kind: str) -> None:
    definition = looping(kind, condition=when("more"), over="tasks")
    offered = describe_situation(definition, at("one"))

    assert [move.target for move in offered.required] == ["two"]
    assert [move.target for move in offered.optional] == ["l"]
    assert made(definition, at("one"), go("two")).activity == "two"


@proves("engine.loops")
def test_a_list_nobody_has_reported_is_given_with_the_first_pass() -> None:
    definition = looping("forEach", over="tasks", variable="task")
    missing = make(definition, at("one"), advance("l"))
    assert isinstance(missing, Refusal)
    assert missing.code == "LOOP_ITEMS_REQUIRED"

    first = made(definition, at("one"), advance("l", "p", "q"))
    (place,) = describe_situation(definition, first).position.loops
    assert (place.id, place.iteration, place.total, place.item) == ("l", 1, 2, "p")
    assert collect_values(definition, first)["task"] == "p"
    second = made(definition, first, done("x"), advance("l"), done("x"))
    assert collect_values(definition, second)["task"] == "q"
    assert "task" not in second.variables
    assert required(definition, second) == ["two"]


@proves("engine.loops")
def test_the_steps_of_a_pass_are_done_anew_in_the_next() -> None:
    definition = looping("doWhile", condition=when("more"), steps=[step("x"), step("y", required=False)])
    record = made(definition, at("one", told(more=True)), advance("l"), done("x"))
    again = make(definition, record, done("x"))
    assert isinstance(again, Refusal)
    assert again.code == "STEP_ALREADY_COMPLETE"

    assert required(definition, made(definition, record, advance("l"))) == ["x"]


@proves("engine.loops")
def test_a_pass_goes_through_its_activities_and_comes_back_to_the_same_visit() -> None:
    definition = workflow(
        activity(
            "one",
            steps=steps("a"),
            loops=[loop("l", "forEach", over="tasks", variable="task", activities=["two", "three"])],
            exitActions=[{"action": "set", "target": "left", "value": True}],
        ),
        activity("two", steps=steps("b"), transitions=[to("elsewhere")]),
        activity("three"),
        activity("elsewhere"),
    )
    record = made(definition, at("one", told(tasks=["p", "q"])), done("a"), advance("l"))
    assert required(definition, record) == ["two"]

    inside = made(definition, record, go("two"))
    assert (inside.activity, inside.visit, collect_values(definition, inside)["task"]) == ("two", 2, "p")
    assert "left" not in inside.variables
    back = made(definition, inside, done("b"), go("three"), go("one"))
    assert (back.activity, back.visit, back.here.done) == ("one", 1, ("a",))
    assert required(definition, back) == ["l"]
    second = made(definition, back, advance("l"), go("two"))
    assert (second.visit, collect_values(definition, second)["task"]) == (4, "q")
    assert made(definition, second, done("b"), go("three"), go("one")).completed == ("two", "three")


@proves("engine.loops")
def test_loops_nest_through_activities_and_never_into_themselves() -> None:
    definition = workflow(
        activity("one", loops=[loop("l", "doWhile", condition=when("more"), activities=["two"])]),
        activity("two", loops=[loop("m", "doWhile", condition=when("more"), activities=["one", "three"])]),
        activity("three"),
    )
    record = made(definition, at("one", told(more=False)), advance("l"), go("two"), advance("m"))
    assert required(definition, record) == ["three"]
    assert check_transition(definition, record, "three") == []

    deep = made(definition, record, go("three"))
    assert [place.activity for place in deep.outer] == ["one", "two"]
    back = made(definition, deep, go("two"), go("one"))
    assert (back.outer, required(definition, back)) == ((), ["__terminal__"])

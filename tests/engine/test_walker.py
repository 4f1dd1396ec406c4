"""A robot walks what ships with the product, and what others have written."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import fidelio
from fidelio.definitions.library import Library, Root
from fidelio.definitions.models import Workflow
from fidelio.engine.record import Record, encode_record, fold
from tests.engine.builders import activity, checkpoint, loop, option, steps, to, when, workflow
from tests.support import proves
from tests.support.shared import shared_workflow_roots
from tests.support.walker import Policy, Robot, never_taken

ROOTS = [Path(fidelio.__file__).parent / "bundled", *shared_workflow_roots()]
LIBRARIES = {root.name: Library([Root(path=root, label=root.name)]) for root in ROOTS}
ALL = [(place, entry.id) for place, library in LIBRARIES.items() for entry in library.list()]

SMALL = workflow(
    activity(
        "one",
        steps=steps("a"),
        checkpoints=[checkpoint("ask", option("again", transitionTo="one"), option("on", setVariable={"deep": True}))],
        transitions=[to("two", when("deep")), to("three", default=True)],
    ),
    activity("two", loops=[loop("l", condition=when("more"), steps=steps("x"))], transitions=[to("three")]),
    activity("three", transitions=[to("workflow-end")]),
    activity("island"),
)


def walk_all(definition: Workflow) -> None:
    policies: list[Policy] = ["first", "last", Random(1)]
    for policy in policies:
        walk = Robot(policy).walk(definition)
        assert walk.problem == ""
        assert walk.record.status == "completed"
        assert fold(Record(), walk.events) == walk.record
        # What a session has done does not pile up in its record: 10 kB is its share of a server's memory.
        assert len(str(encode_record(walk.record))) < 10_000


@proves("engine.robot", "engine.no-dead-end", "engine.small-records")
@pytest.mark.parametrize(("place", "name"), ALL)
def test_the_robot_walks_every_workflow_to_an_end_under_every_policy(place: str, name: str) -> None:
    walk_all(LIBRARIES[place].workflow(name))


@proves("engine.robot")
def test_the_bundled_workflows_are_among_those_walked() -> None:
    assert {"hello", "meta", "work-package", "work-packages"} <= {name for place, name in ALL if place == "bundled"}


@proves("engine.robot")
def test_the_robot_finds_out_of_a_circle_and_ends_a_loop_that_waits_for_its_report() -> None:
    walk = Robot("first").walk(SMALL)

    assert walk.problem == ""
    answers = [event.body["option"] for event in walk.events if event.type == "request.answered"]
    assert answers == ["again", "again", "again", "on"]


@proves("engine.robot")
def test_the_robot_says_what_it_never_did() -> None:
    once = never_taken(SMALL, [Robot("last").walk(SMALL)])
    assert once.options == ("one/ask/again",)
    assert "one -> one" in once.transitions
    assert once.activities == ("island",)

    often = never_taken(SMALL, [Robot(Random(seed)).walk(SMALL) for seed in range(8)])
    assert (often.options, often.activities) == ((), ("island",))


@proves("engine.robot")
def test_a_walk_without_end_is_stopped_and_says_where() -> None:
    endless = workflow(activity("one", transitions=[to("two")]), activity("two", transitions=[to("one")]))

    assert Robot("first").walk(endless, bound=20).problem == "no end after 21 events in 'two'"

"""The ways on from where a session stands."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fidelio.definitions import TERMINAL
from fidelio.definitions.models import Workflow
from fidelio.engine.record import Record
from fidelio.engine.scope import add_defaults, collect_values
from fidelio.engine.state import CheckpointAnswer
from fidelio.engine.transitions import (
    CandidateTransition,
    ends_workflow,
    list_open_transitions,
    list_transitions,
)
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

THREE = workflow(
    activity("one", transitions=[to("two", when("a")), to("three", when("b")), to("four", default=True)]),
    activity("two"),
    activity("three"),
    activity("four"),
)


def targets(definition: Workflow, record: Record) -> list[str]:
    return [way.to for way in list_open_transitions(definition, record)]


@proves("engine.ways")
@pytest.mark.parametrize(
    ("variables", "open_now"),
    [
        ({"a": True, "b": True}, ["two"]),
        ({"a": False, "b": True}, ["three"]),
        ({"a": False, "b": False}, ["four"]),
        ({"b": True}, ["two", "three"]),
        ({"a": False}, ["three", "four"]),
        ({}, ["two", "three", "four"]),
    ],
)
def test_the_first_that_holds_is_taken_and_unknown_keeps_ways_open(variables: dict[str, bool], open_now: list[str]) -> None:
    assert targets(THREE, at("one", told(**variables))) == open_now


@proves("engine.ways")
def test_each_way_says_whether_it_holds_and_in_which_words() -> None:
    found = list_transitions(THREE, at("one", told(a=False)))

    assert [(way.to, way.holds, way.default, way.condition) for way in found] == [
        ("two", False, False, "a == true"),
        ("three", None, False, "b == true"),
        ("four", None, True, ""),
    ]


@proves("engine.ways")
def test_a_declared_default_counts_where_the_server_chooses_and_does_not_stand_in_the_record() -> None:
    definition = workflow(*[a.model_dump() for a in THREE.activities], variables=[variable("a", defaultValue=True)])
    record = at("one")

    assert targets(definition, record) == ["two"]
    assert add_defaults(definition, record.variables) == {"a": True}
    assert record.variables == {}
    assert [way.holds for way in list_transitions(definition, record, reported_only=True)] == [None, None, None]


@proves("engine.ways")
def test_a_default_with_a_condition_is_both() -> None:
    definition = workflow(
        activity("one", transitions=[to("two", when("a"), default=True), to("one", when("b"))]), activity("two")
    )

    assert targets(definition, at("one", told(a=True, b=False))) == ["two"]
    assert targets(definition, at("one", told(a=False, b=True))) == ["one"]
    assert targets(definition, at("one", told(a=False, b=False))) == ["two"]


@proves("engine.ways", "engine.ends")
def test_decisions_come_after_transitions_and_a_branch_without_target_leaves_them_the_choice() -> None:
    branches = [
        {"id": "back", "label": "back", "condition": when("bad"), "transitionTo": "one"},
        {"id": "on", "label": "on", "isDefault": True},
    ]
    decided = {"decisions": [{"id": "d", "name": "d", "branches": branches}]}
    definition = workflow(activity("one", transitions=[to("two", default=True)], **decided), activity("two", **decided))

    assert targets(definition, at("one", told(bad=True))) == ["one"]
    assert targets(definition, at("one", told(bad=False))) == ["two"]
    assert targets(definition, at("two", told(bad=False))) == [TERMINAL]


@proves("engine.ends")
@pytest.mark.parametrize("name", ["__terminal__", "workflow-end", "end-workflow"])
def test_a_terminal_name_ends_the_workflow_unless_an_activity_bears_it(name: str) -> None:
    plain = workflow(activity("one", transitions=[to(name)]))
    taken = workflow(activity("one", transitions=[to(name)]), activity(name))

    assert ends_workflow(plain, name)
    assert not ends_workflow(taken, name)
    assert targets(plain, at("one")) == [name]


@proves("engine.ends")
def test_a_name_that_nobody_goes_to_or_that_is_no_end_ends_nothing() -> None:
    definition = workflow(activity("one", transitions=[to("sometime")]))

    assert ends_workflow(definition, TERMINAL)
    assert not ends_workflow(definition, "workflow-end")
    assert not ends_workflow(definition, "sometime")
    assert targets(definition, at("one")) == [TERMINAL]


@proves("engine.ends")
def test_an_activity_that_leads_nowhere_is_an_end_and_unknown_ways_are_not() -> None:
    definition = workflow(activity("one", transitions=[to("two", when("a"))]), activity("two"))

    assert targets(definition, at("two")) == [TERMINAL]
    assert targets(definition, at("one", told(a=False))) == [TERMINAL]
    assert targets(definition, at("one")) == ["two"]
    assert CandidateTransition(TERMINAL, None, False, kind="end") in list_transitions(definition, at("one"))


@proves("engine.left-out")
def test_what_an_answer_leaves_out_is_passed_through() -> None:
    record = at("one", told(a=True), yielded("ask"), answered(skipActivities=["two"]))
    definition = workflow(
        activity("one", transitions=[to("two", when("a"))]),
        activity("two", transitions=[to("three", when("b")), to("four", default=True)]),
        activity("three"),
        activity("four"),
    )

    assert [(way.to, way.via, way.holds) for way in list_transitions(definition, record)] == [
        ("three", ("two",), None),
        ("four", ("two",), None),
    ]


@proves("engine.left-out")
def test_a_mode_leaves_activities_out_and_brings_its_values_while_it_is_on() -> None:
    mode = {"id": "m", "name": "m", "activationVariable": "quick", "skipActivities": ["two"], "defaults": {"deep": False}}
    definition = workflow(
        activity("one", transitions=[to("two")]), activity("two", transitions=[to("three")]), activity("three"), modes=[mode]
    )

    assert targets(definition, at("one")) == ["two"]
    assert targets(definition, at("one", told(quick=True))) == ["three"]
    assert collect_values(definition, at("one", told(quick=True))) == {"quick": True, "deep": False}
    assert collect_values(definition, at("one", told(quick=True, deep=True)))["deep"] is True


@proves("engine.left-out")
def test_passing_through_a_circle_finds_the_way_out_of_it() -> None:
    definition = workflow(
        activity("one", transitions=[to("two")]),
        activity("two", transitions=[to("two", when("a", False)), to("three", when("a"), default=True)]),
        activity("three"),
    )
    record = at("one", told(a=False), yielded("ask"), answered(skipActivities=["two"]))

    assert targets(definition, record) == ["three"]


@proves("engine.answer-leads")
def test_an_answer_leads_where_it_says_whatever_the_transitions_say() -> None:
    ask = checkpoint("ask", option("back", transitionTo="one"), "on")
    definition = workflow(activity("one", transitions=[to("two")]), activity("two", transitions=[to("one")], checkpoints=[ask]))
    asked = at("two", yielded("ask"))

    assert [(way.to, way.holds) for way in list_transitions(definition, asked) if way.kind == "answer"] == [("one", None)]
    assert targets(definition, at("two", yielded("ask"), answered("back", transitionTo="one"))) == ["one"]


@proves("engine.independent")
def test_independent_activities_are_entries_and_ends() -> None:
    definition = workflow(activity("one", transitions=[to("two")]), activity("two"), initial=None)

    assert targets(definition, started()) == ["one", "two"]
    assert targets(definition, at("one")) == ["two", TERMINAL]
    assert targets(definition, at("two")) == [TERMINAL]


@proves("engine.ends")
def test_an_activity_that_cannot_be_read_is_no_end_and_not_open() -> None:
    for name in ("two", "end-workflow"):
        definition = workflow(activity("one", transitions=[to(name)])).model_copy(update={"broken": {name: ()}})

        assert not ends_workflow(definition, name)
        assert targets(definition, at("one")) == []
        assert [way.to for way in list_transitions(definition, at("one"))] == [name]


@proves("engine.ways")
def test_an_answer_that_was_given_is_seen_in_the_ways_of_the_others() -> None:
    asking = checkpoint("ask", option("back", transitionTo="one"), "on")
    definition = workflow(activity("one", transitions=[to("two")]), activity("two", checkpoints=[asking]))
    before = at("two")
    given = CheckpointAnswer("ask", "two", 1, "on", {}, "person:a", "cli", "", 0)

    after = replace(before, here=replace(before.here, answers=(given,)))

    assert [way.holds for way in list_transitions(definition, before) if way.kind == "answer"] == [None]
    assert [way.holds for way in list_transitions(definition, after) if way.kind == "answer"] == [False]


LAST = activity("two", transitions=[to("workflow-end")])


@proves("engine.lost-place")
@pytest.mark.parametrize(
    "definition",
    [
        workflow(initial="one"),
        workflow(LAST, initial="one"),
        workflow(LAST, initial=TERMINAL),
        workflow(LAST, initial="workflow-end"),
    ],
)
def test_from_an_activity_that_is_gone_no_way_leads_to_the_end(definition: Workflow) -> None:
    assert targets(definition, at("one")) == []
    assert [ends_workflow(definition, name) for name in targets(definition, started())] == [True]


@proves("engine.lost-place")
def test_nor_does_one_around_a_beginning_that_is_left_out() -> None:
    definition = workflow(activity("one", transitions=[to(TERMINAL)]))
    skipping = replace(at("lost"), skipped=("one",))

    assert targets(definition, skipping) == []
    assert targets(definition, at("lost")) == ["one"]

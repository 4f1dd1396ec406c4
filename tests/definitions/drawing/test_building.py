"""From workflows to graphs."""

from __future__ import annotations

import pytest

from fidelio.definitions.drawing.graph import Edge, Graph, Link, Shape, build_graph
from fidelio.definitions.findings import error
from tests.definitions.drawing.workflows import BOOLEAN, IS_READY, answer, otherwise, way, workflow
from tests.support import proves


def ways(graph: Graph) -> set[tuple[str, str, str]]:
    titles = {node.id: node.title for node in graph.nodes}
    return {(titles[edge.source], titles[edge.target], edge.label) for edge in graph.edges}


@proves("drawing.complete")
def test_every_activity_and_every_way_is_drawn() -> None:
    plan = {
        "id": "plan",
        "name": "Plan",
        "transitions": [way("build", condition=IS_READY), otherwise("research")],
        "checkpoints": [{"id": "ask", "options": [answer("stop", "review")]}],
        "decisions": [
            {"id": "d", "branches": [{"id": "a", "label": "Risky", "transitionTo": "audit"}, {"id": "b", "isDefault": True}]}
        ],
        "loops": [{"id": "each", "name": "Each package", "type": "forEach", "over": "x", "activities": ["pack"]}],
    }
    others = [{"id": name, "name": name.title()} for name in ("build", "research", "review", "audit", "pack")]
    graph = build_graph(workflow(plan, *others, variables=[BOOLEAN]))

    assert [node.title for node in graph.nodes] == ["Start", "Plan", "Build", "Research", "Review", "Audit", "Pack", "End"]
    assert ways(graph) >= {
        ("Start", "Plan", ""),
        ("Plan", "Build", "is_ready"),
        ("Plan", "Research", "otherwise"),
        ("Plan", "Review", "Stop"),
        ("Plan", "Audit", "Risky"),
        ("Plan", "Pack", "Each package"),
    }


@proves("drawing.complete")
def test_a_workflow_that_is_started_is_drawn_once_however_often_it_is_started() -> None:
    step = {"id": "s", "triggers": [{"workflow": "child"}]}
    graph = build_graph(workflow({"id": "plan", "name": "Plan", "steps": [step], "triggers": [{"workflow": "child"}]}))

    assert [node.title for node in graph.nodes if node.shape is Shape.WORKFLOW] == ["child"]
    assert [edge.labels for edge in graph.edges if edge.link is Link.TRIGGER] == [("starts",)]


@proves("drawing.merged")
def test_two_conditions_for_the_same_way_are_one_arrow() -> None:
    tested = {**IS_READY, "variable": "tested"}
    transitions = [way("build", condition=IS_READY), way("build", condition=tested), otherwise("plan")]
    graph = build_graph(workflow({"id": "plan", "transitions": transitions}, {"id": "build"}))

    assert Edge("plan", "build", Link.CONDITION, ("is_ready", "tested")) in graph.edges


@proves("drawing.merged")
def test_a_way_that_is_open_anyway_does_not_list_the_answers_that_lead_there() -> None:
    checkpoint = {"id": "ask", "options": [answer("go", "build"), answer("again", "plan")]}
    graph = build_graph(
        workflow({"id": "plan", "transitions": [otherwise("build")], "checkpoints": [checkpoint]}, {"id": "build"})
    )

    assert Edge("plan", "build", Link.NEXT) in graph.edges
    assert Edge("plan", "plan", Link.ANSWER, ("Again",)) in graph.edges


@proves("drawing.ends")
@pytest.mark.parametrize("name", ["__terminal__", "workflow-end", "end-workflow"])
def test_a_name_that_means_the_end_leads_to_the_end(name: str) -> None:
    graph = build_graph(workflow({"id": "plan", "name": "Plan", "transitions": [way(name)]}))

    assert ("Plan", "End", "") in ways(graph)
    assert not any(node.warning for node in graph.nodes)


@proves("drawing.ends")
def test_an_activity_that_bears_such_a_name_is_an_activity() -> None:
    last = {"id": "end-workflow", "name": "Clean up"}
    graph = build_graph(workflow({"id": "plan", "name": "Plan", "transitions": [way("end-workflow")]}, last))

    assert ("Plan", "Clean up", "") in ways(graph)


@proves("drawing.ends")
def test_conditions_that_may_all_fail_leave_a_way_to_the_end() -> None:
    first = {"id": "plan", "name": "Plan", "transitions": [way("build", condition=IS_READY)]}
    graph = build_graph(workflow(first, {"id": "build"}, variables=[BOOLEAN]))

    assert ("Plan", "End", "otherwise") in ways(graph)


@proves("drawing.ends")
def test_conditions_that_cover_every_case_leave_none() -> None:
    transitions = [way("build", condition=IS_READY), way("plan", condition={**IS_READY, "value": False})]
    first = {"id": "plan", "name": "Plan", "transitions": transitions}
    graph = build_graph(workflow(first, {"id": "build"}, variables=[BOOLEAN]))

    assert ("Plan", "End", "otherwise") not in ways(graph)


@proves("drawing.ends")
def test_a_decision_that_always_leads_on_leaves_none_either() -> None:
    leads_on = {"id": "x", "isDefault": True, "transitionTo": "build"}
    stops = {"id": "y", "condition": IS_READY}
    plan = {"id": "plan", "name": "Plan", "decisions": [{"id": "d", "branches": [stops, leads_on]}]}

    assert ("Plan", "End", "") not in ways(build_graph(workflow(plan, {"id": "build"}, variables=[BOOLEAN])))


@proves("drawing.independent")
def test_independent_activities_have_neither_start_nor_end() -> None:
    graph = build_graph(workflow({"id": "start-it"}, {"id": "end-it"}, initialActivity=None))

    assert {node.shape for node in graph.nodes} == {Shape.ACTIVITY}
    assert not graph.edges
    assert not any(node.warning for node in graph.nodes)
    assert graph.subtitle == "demo 1.0.0 · 2 independent activities"


@proves("drawing.flaws")
def test_a_target_that_does_not_exist_is_drawn_as_a_warning() -> None:
    graph = build_graph(workflow({"id": "plan", "transitions": [way("biuld")]}))

    assert [(node.title, node.warning) for node in graph.nodes if node.shape is Shape.MISSING] == [
        ("biuld", "no such activity")
    ]


@proves("drawing.flaws")
def test_a_target_that_cannot_be_read_is_told_apart() -> None:
    broken = {"build": (error("build.yaml", "schema", "It is broken."),)}
    graph = build_graph(workflow({"id": "plan", "transitions": [way("build")]}, broken=broken))

    assert [node.warning for node in graph.nodes if node.shape is Shape.MISSING] == ["cannot be read"]


@proves("drawing.flaws")
def test_an_activity_that_nothing_leads_to_is_drawn_as_a_warning() -> None:
    graph = build_graph(workflow({"id": "plan"}, {"id": "forgotten"}, {"id": "too", "transitions": [way("forgotten")]}))

    assert {node.id for node in graph.nodes if node.warning} == {"forgotten", "too"}


@proves("drawing.marks")
def test_an_activity_shows_what_it_holds() -> None:
    asked = {"id": "ask", "options": [{"id": "yes"}]}
    timed = {"id": "later", "blocking": False, "options": [{"id": "yes"}]}
    plan = {"id": "plan", "required": False, "steps": [{"id": "a"}, {"id": "b"}], "checkpoints": [timed]}
    build = {"id": "build", "checkpoints": [asked, timed], "loops": [{"id": "l", "type": "while"}]}
    marks = {node.id: node.marks for node in build_graph(workflow(plan, build)).nodes}

    assert (marks["plan"].steps, marks["plan"].checkpoints, marks["plan"].locked, marks["plan"].optional) == (2, 1, False, True)
    assert (marks["build"].checkpoints, marks["build"].locked, marks["build"].loops) == (2, True, 1)

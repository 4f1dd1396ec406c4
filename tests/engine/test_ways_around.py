"""Ways around skipped activities: the same as if all were enumerated, without the exponential number of steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fidelio.definitions import TERMINAL
from fidelio.definitions.conditions import all_hold
from fidelio.definitions.models import Workflow
from fidelio.engine import transition_events, transitions
from fidelio.engine.state import Record
from fidelio.engine.transition_events import check_transition, draft_transition
from fidelio.engine.transitions import CandidateTransition, list_transitions, select_open
from tests.engine.builders import Json, activity, at, to, told, when, workflow
from tests.support import proves

Graph = Mapping[str, list[Json]]
NODES = ["n0", "n1", "n2", "n3", "n4", "n5"]
VALUES = {"a": True, "b": False}


def build(graph: Graph) -> Workflow:
    return workflow(*(activity(name, transitions=edges) for name, edges in graph.items()))


def layers(count: int, width: int = 2) -> Graph:
    """A start, layers of activities that each lead to the whole next layer, and a last activity."""
    names = [[f"l{layer}-{place}" for place in range(width)] for layer in range(count)]
    rows = [["start"], *names, ["last"]]
    graph = {name: [to(target) for target in below] for above, below in pairwise(rows) for name in above}
    return {**graph, "last": []}


def skip(record: Record, names: Any) -> Record:
    return replace(record, skipped=tuple(names))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The activities whose transitions were evaluated, one entry for each evaluation."""
    visited, evaluate = [], transitions._evaluate_activity

    def count(workflow: Workflow, values: Any, activity: Any, *rest: Any) -> Any:
        visited.append(activity.id)
        return evaluate(workflow, values, activity, *rest)

    monkeypatch.setattr(transitions, "_evaluate_activity", count)
    return visited


@proves("engine.ways-bounded")
@pytest.mark.parametrize("count", [20, 200, 2000])
def test_each_skipped_layer_is_passed_through_once(count: int, counted: list[str]) -> None:
    graph = layers(count)
    record = skip(at("start"), [name for name in graph if name.startswith("l") and name != "last"])

    found = list_transitions(build(graph), record)

    assert {way.to for way in found} == {"last"}
    assert found[0].via == tuple(f"l{layer}-0" for layer in range(count))
    # Both transitions of the start are searched; every other activity is evaluated once in each search.
    assert 1 <= len(found) <= 2
    assert len(counted) <= 2 * 2 * count + 1


@proves("engine.ways-bounded")
def test_an_unknown_condition_in_each_layer_does_not_multiply_the_ways(counted: list[str]) -> None:
    graph = {
        name: [to(edge["to"], when(f"v{place}")) for place, edge in enumerate(edges)] for name, edges in layers(200, 3).items()
    }
    record = skip(at("start"), [name for name in graph if name.startswith("l") and name != "last"])

    found = list_transitions(build(graph), record)

    assert {way.to for way in found} == {"last", TERMINAL}
    assert len(found) <= 3 * 2 * 5
    assert len(counted) <= 3 * 5 * len(graph)


@proves("engine.ways-bounded")
def test_a_thousand_transitions_into_one_chain_do_not_each_walk_through_it(counted: list[str]) -> None:
    chain = [f"c{number}" for number in range(1000)]
    graph = {name: [to(after)] for name, after in pairwise([*chain, "last"])} | {"last": []}
    graph = {"start": [to(name, when("v", number)) for number, name in enumerate(chain)], **graph}

    found = list_transitions(build(graph), skip(at("start"), chain))

    assert {way.to for way in found} == {"last", TERMINAL}
    assert len(counted) < 2 * transitions.MAX_STEPS


def enumerate_ways(
    graph: Graph, record: Record, skipped: frozenset[str], passed: tuple[str, ...]
) -> Iterator[CandidateTransition]:
    """Every way, by going each path to its end: the definition of the result, in exponential time."""
    name = passed[-1] if passed else record.activity
    own = build({**graph, name: [edge for edge in graph[name] if edge["to"] not in passed]})
    for way in list_transitions(own, replace(record, here=replace(record.here, activity=name))):
        if way.to not in skipped:
            yield way
            continue
        for further in enumerate_ways(graph, record, skipped, (*passed, way.to)):
            truth, is_open = all_hold([way.holds, further.holds]), way.open and further.open
            yield replace(way, to=further.to, holds=truth, via=(way.to, *further.via), open=is_open)


conditions = st.sampled_from([None, None, "a", "b", "unknown"])
edges = st.builds(
    lambda target, name, default: to(target, when(name) if name else None, default=default),
    st.sampled_from(NODES),
    conditions,
    st.sampled_from([False, False, True]),
)
graphs = st.fixed_dictionaries({name: st.lists(edges, max_size=3) for name in NODES})
skips = st.frozensets(st.sampled_from(NODES[1:]))


def first_of(ways: list[CandidateTransition], *keys: str) -> dict[tuple[Any, ...], CandidateTransition]:
    """The first way for each combination of the named fields."""
    return {tuple(getattr(way, key) for key in keys): way for way in reversed(ways)}


def compare(graph: Graph, skipped: frozenset[str]) -> tuple[list[CandidateTransition], list[CandidateTransition]]:
    record = at("n0", told(**VALUES))
    return list_transitions(build(graph), skip(record, skipped)), list(enumerate_ways(graph, record, skipped, ()))


@proves("engine.ways-bounded", "engine.left-out")
@settings(max_examples=150, deadline=None)
@given(graphs, skips)
def test_without_circles_the_first_way_of_each_kind_is_kept(graph: Graph, skipped: frozenset[str]) -> None:
    forward = {name: [edge for edge in edges if name == "n0" or edge["to"] > name] for name, edges in graph.items()}
    found, every = compare(forward, skipped)
    keys = ("to", "open", "holds", "condition", "default", "kind")

    assert first_of(found, *keys) == first_of(every, *keys)
    assert select_open(found) == select_open(every)


@proves("engine.ways-bounded", "engine.left-out")
@settings(max_examples=150, deadline=None)
@given(graphs, skips)
def test_with_circles_every_target_keeps_its_first_way(graph: Graph, skipped: frozenset[str]) -> None:
    found, every = compare(graph, skipped)

    # A path that runs in a circle may seem to end the workflow where another path goes on; only this end may be missing.
    assert {way.to for way in every} - {way.to for way in found} <= {TERMINAL}
    assert all(way in every for way in found)
    for key, way in first_of(found, "to").items():
        assert key == (TERMINAL,) or way == first_of(every, "to")[key]


@proves("engine.ways-bounded")
def test_a_move_around_two_thousand_layers_is_checked_and_recorded() -> None:
    graph = layers(2000)
    record, definition = skip(at("start"), [name for name in graph if name.startswith("l") and name != "last"]), build(graph)

    assert check_transition(definition, record, "last") == []
    assert len(draft_transition(definition, record, "last")[-1].body["passed"]) == 2000


@proves("engine.ways-bounded")
def test_a_target_is_resolved_once_and_not_for_every_transition(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved, resolve = list[str](), transitions.ends_workflow

    def count(workflow: Workflow, target: str) -> bool:
        resolved.append(target)
        return resolve(workflow, target)

    monkeypatch.setattr(transition_events, "ends_workflow", count)
    definition = build({"start": [to("last", when("v", number)) for number in range(200)], "last": []})

    check_transition(definition, at("start"), "workflow-end")
    assert len(resolved) < 20

"""Drawings of hundreds of activities: bounded work, and a picture that says what it leaves out."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.definitions.drawing.coordinates import _count_inversions, _crosses
from fidelio.definitions.drawing.graph import Edge, Graph, Node, Shape
from fidelio.definitions.drawing.layers import MAX_SLOTS, build_net, compute_layers
from fidelio.definitions.drawing.svg import MAX_LINES, draw_svg
from fidelio.definitions.models import And, Or, Simple
from fidelio.definitions.static_conditions import VariableDomain, find_constant_truth
from tests.support import proves

COUNT = 300
NAMES = [f"n{number}" for number in range(COUNT)]


def graph(pairs: Iterable[tuple[int, int]]) -> Graph:
    edges = dict.fromkeys(Edge(NAMES[source], NAMES[target], labels=(f"to {target}",)) for source, target in pairs)
    nodes = [Node(name, name, Shape.START if name == "n0" else Shape.ACTIVITY) for name in NAMES]
    return Graph("large", "", tuple(nodes), tuple(edges))


GRAPHS = {
    "chain": [(at, at + 1) for at in range(COUNT - 1)],
    "chain to one end": [(at, to) for at in range(COUNT - 1) for to in (at + 1, COUNT - 1)],
    "fan": [(0, at) for at in range(1, COUNT)],
    "back edges": [(at, to) for at in range(COUNT - 1) for to in (at + 1, at // 2)],
    "dense": [(source, target) for source in range(COUNT) for target in range(COUNT)],
}


@proves("drawing.large")
@pytest.mark.parametrize("name", GRAPHS)
def test_a_large_graph_is_laid_out_with_a_bounded_number_of_slots(name: str) -> None:
    large = graph(GRAPHS[name])
    net = build_net(large, compute_layers(large))

    # A node has a slot, an edge one in the gap below its node; only the others are bounded.
    assert len(net.slots) <= MAX_SLOTS + COUNT + len(large.edges)
    assert len(net.joints) <= 2 * (MAX_SLOTS + len(large.edges))


@proves("drawing.large")
@pytest.mark.parametrize("name", GRAPHS)
def test_every_activity_of_a_large_graph_is_drawn_and_lines_that_are_not_are_counted(name: str) -> None:
    large = graph(GRAPHS[name])
    picture = ET.fromstring(draw_svg(large))

    texts = {element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")}
    lines = [path for path in picture.iter("{http://www.w3.org/2000/svg}path") if "line" in path.get("class", "").split()]
    left_out = max(0, len(large.edges) - MAX_LINES)
    note = f"{left_out} of {len(large.edges)} lines are not drawn"
    assert texts >= set(NAMES)
    assert (note in texts) is (left_out > 0)
    assert len(lines) >= len(large.edges) - left_out


@proves("drawing.large")
@given(st.lists(st.integers(0, 20), max_size=30))
def test_inversions_are_the_pairs_in_the_wrong_order(numbers: list[int]) -> None:
    assert _count_inversions(numbers) == sum(first > second for first, second in combinations(numbers, 2))


@proves("drawing.large")
@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.tuples(st.integers(0, 30), st.integers(0, 30)))
def test_the_neighbours_decide_whether_a_joint_crosses_a_tie(uppers: set[int], lowers: set[int], here: tuple[int, int]) -> None:
    ties = list(zip(sorted(uppers), sorted(lowers), strict=False))

    assert _crosses(here, ties) == any((here[0] - upper) * (here[1] - lower) <= 0 for upper, lower in ties)


@proves("drawing.large")
def test_a_condition_with_too_many_comparisons_is_not_tried_in_all_cases() -> None:
    def compare(value: int) -> Simple:
        return Simple(type="simple", variable="v", operator="==", value=value)

    wide = Or(type="or", conditions=tuple(compare(value) for value in range(2000)))
    never = And(type="and", conditions=(compare(1), compare(2)))

    assert find_constant_truth(wide, {"v": VariableDomain("number")}) is None
    assert find_constant_truth(never, {"v": VariableDomain("number")}) == "never"

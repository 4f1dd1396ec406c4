"""The geometry of the drawings, for any graph."""

from __future__ import annotations

import re
from itertools import combinations, pairwise

from hypothesis import given, settings

from fidelio.definitions.drawing.geometry import Line, Picture, Rect, shorten, text_width, wrap
from fidelio.definitions.drawing.graph import Edge, Graph, Link, Node, Shape
from fidelio.definitions.drawing.layers import compute_layers
from fidelio.definitions.drawing.layout import compute_layout
from tests.definitions.drawing.graphs import chain, graphs
from tests.support import proves

few = settings(max_examples=60, deadline=None)


def overlap(one: Rect, two: Rect) -> bool:
    apart = (
        one.right <= two.left + 0.1 or two.right <= one.left + 0.1 or one.bottom <= two.top + 0.1 or two.bottom <= one.top + 0.1
    )
    return not apart


def rects(picture: Picture) -> list[Rect]:
    return [*(box.rect for box in picture.boxes), *(line.label.rect for line in picture.lines if line.label)]


def numbers(line: Line) -> list[float]:
    return [float(number) for number in re.findall(r"-?[\d.]+", line.path)]


@proves("drawing.clear")
@few
@given(graphs())
def test_no_box_overlaps_another_and_no_label_overlaps_anything(graph: Graph) -> None:
    picture = compute_layout(graph)

    for one, two in combinations(rects(picture), 2):
        assert not overlap(one, two)


@proves("drawing.clear")
@few
@given(graphs())
def test_everything_lies_within_the_bounds_of_the_picture(graph: Graph) -> None:
    picture = compute_layout(graph)
    bounds = picture.bounds

    for rect in rects(picture):
        assert bounds.left <= rect.left
        assert rect.right <= bounds.right
        assert bounds.top <= rect.top
        assert rect.bottom <= bounds.bottom


@proves("drawing.downwards")
@few
@given(graphs())
def test_every_edge_leads_down_unless_it_leads_back(graph: Graph) -> None:
    layering = compute_layers(graph)

    assert all(layering.layer[edge.source] < layering.layer[edge.target] for edge in layering.forward)
    assert {*layering.forward, *layering.back, *layering.loops} == set(graph.edges)


@proves("drawing.downwards")
@few
@given(graphs())
def test_only_edges_of_a_cycle_lead_back(graph: Graph) -> None:
    layering = compute_layers(graph)

    for edge in layering.back:
        assert edge.source in _ahead(edge.target, graph)


def _ahead(start: str, graph: Graph) -> set[str]:
    ahead, waiting = {start}, [start]
    while waiting:
        new = [edge.target for edge in graph.outgoing(waiting.pop()) if edge.target not in ahead]
        ahead.update(new)
        waiting.extend(new)
    return ahead


@proves("drawing.downwards")
def test_an_edge_that_leads_back_runs_to_the_right_of_everything_it_passes() -> None:
    graph = chain("plan", "build", "review", "release")
    picture = compute_layout(Graph("", "", graph.nodes, (*graph.edges, Edge("review", "plan", Link.CONDITION, ("again",)))))
    back = next(line for line in picture.lines if line.leads_back)

    assert max(numbers(back)[::2]) > max(box.rect.right for box in picture.boxes)


@proves("drawing.downwards")
def test_an_edge_that_leads_back_slips_below_a_node_that_stands_in_its_way() -> None:
    nodes = tuple(Node(name, name) for name in ("top", "left", "right"))
    edges = (Edge("top", "left"), Edge("top", "right"), Edge("left", "top", Link.CONDITION))
    picture = compute_layout(Graph("", "", nodes, edges))
    boxes = {box.node.id: box.rect for box in picture.boxes}
    back = next(line for line in picture.lines if line.leads_back)
    heights = numbers(back)[1::2]

    assert boxes["left"].right < boxes["right"].left
    assert max(heights) > boxes["right"].bottom


@proves("drawing.straight")
def test_the_plain_way_is_one_straight_line_past_a_side_branch() -> None:
    nodes = (Node("s", "Start", Shape.START), *(Node(name, name) for name in ("plan", "extra", "build", "release")))
    edges = (
        Edge("s", "plan"),
        Edge("plan", "extra", Link.CONDITION, ("when there is a great deal of time",)),
        Edge("plan", "build", Link.NEXT, ("otherwise",)),
        Edge("extra", "build"),
        Edge("build", "release"),
    )
    boxes = {box.node.id: box.rect.middle[0] for box in compute_layout(Graph("", "", nodes, edges)).boxes}

    assert all(abs(boxes[one] - boxes[two]) < 0.5 for one, two in pairwise(["s", "plan", "build", "release"]))


@proves("drawing.steady")
@few
@given(graphs())
def test_the_same_graph_gives_the_same_picture(graph: Graph) -> None:
    assert compute_layout(graph) == compute_layout(graph)


@proves("drawing.clear")
def test_a_chain_of_two_thousand_activities_can_be_layered() -> None:
    graph = chain(*(f"a{index}" for index in range(2000)))

    assert max(compute_layers(graph).layer.values()) == 1999


@proves("drawing.clear")
def test_a_text_is_broken_into_lines_that_fit() -> None:
    lines = wrap("needs elicitation and needs research and aVeryLongIdentifierWithoutAnySpace", 120, 12, lines=9)

    assert all(text_width(line, 12) <= 120 for line in lines)
    assert "".join(lines).replace(" ", "") == "needselicitationandneedsresearchandaVeryLongIdentifierWithoutAnySpace"


@proves("drawing.clear")
def test_an_identifier_is_split_at_its_joints() -> None:
    assert wrap("needs_further_discussion", 140, 11.5) == ("needs_further_", "discussion")
    # Where it has none, at the border.
    assert "".join(wrap("needsfurtherdiscussion", 100, 11.5)) == "needsfurtherdiscussion"


@proves("drawing.clear")
def test_lines_of_a_text_are_of_about_the_same_length() -> None:
    one, two = wrap("needs comprehension or needs further discussion", 250, 14)

    assert abs(text_width(one, 14) - text_width(two, 14)) < 60


@proves("drawing.clear")
def test_what_does_not_fit_ends_in_an_ellipsis() -> None:
    assert wrap("one two three four five six", 40, 12, lines=2)[-1].endswith("…")
    assert text_width(shorten("a rather long text", 60, 12), 12) <= 60

"""What a reader sees in the pictures of the bundled workflows: bundles, free labels, a straight main path, text that fits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from fidelio.definitions.drawing.geometry import Line, Picture, Point, Rect, text_width
from fidelio.definitions.drawing.graph import Edge, Graph, Link, Marks, Node, build_graph
from fidelio.definitions.drawing.layers import (
    LABEL_SIZE,
    NOTE_SIZE,
    TITLE_LINE,
    TITLE_SIZE,
    compute_layers,
    describe_node,
    measure_label,
)
from fidelio.definitions.drawing.layout import compute_layout
from fidelio.definitions.drawing.svg import BADGE_RADIUS, draw_svg
from tests.bundled.reading import ALL, workflow
from tests.definitions.drawing.graphs import chain
from tests.support import proves

IMAGES = Path(__file__).parents[3] / "docs" / "images"
_COMMAND = re.compile(r"([MLVQC])([^MLVQC]*)")
_STEPS = [step / 24 for step in range(1, 25)]

# Advance widths of DejaVu Sans in thousandths of its size, regular and semibold: the widest of the usual fonts.
REGULAR = {
    **dict.fromkeys("0123456789", 636),
    **dict(zip("abcdefghijklm", (613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579, 278, 974), strict=True)),
    **dict(zip("nopqrstuvwxyz", (634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525), strict=True)),
    **dict(zip("ABCDEFGHIJKLM", (684, 686, 698, 770, 632, 575, 775, 752, 295, 295, 656, 557, 863), strict=True)),
    **dict(zip("NOPQRSTUVWXYZ", (748, 787, 603, 787, 695, 635, 611, 732, 684, 989, 685, 611, 685), strict=True)),
    **dict(zip(' "()=_<>·', (318, 460, 390, 390, 838, 500, 838, 838, 318), strict=True)),
    **dict(zip(".,:;-'!?…", (318, 318, 337, 337, 361, 275, 401, 531, 1000), strict=True)),
}  # fmt: skip
BOLD = {
    **dict.fromkeys("0123456789", 696),
    **dict(zip("abcdefghijklm", (675, 716, 593, 716, 678, 435, 716, 712, 343, 343, 665, 343, 1042), strict=True)),
    **dict(zip("nopqrstuvwxyz", (712, 687, 716, 716, 493, 595, 478, 712, 652, 924, 645, 652, 582), strict=True)),
    **dict(zip("ABCDEFGHIJKLM", (774, 762, 734, 830, 683, 683, 821, 837, 372, 372, 775, 637, 995), strict=True)),
    **dict(zip("NOPQRSTUVWXYZ", (837, 850, 733, 850, 770, 720, 682, 812, 774, 1103, 771, 724, 725), strict=True)),
    **dict(zip(" -.,'", (348, 415, 380, 380, 306), strict=True)),
}  # fmt: skip


def picture(name: str) -> Picture:
    return compute_layout(build_graph(workflow(name)))


def sample(line: Line) -> Iterator[Point]:
    """Points along the line, close to each other."""
    x = y = 0.0
    for command, rest in _COMMAND.findall(line.path):
        values = [float(number) for number in re.findall(r"-?[\d.]+", rest)]
        ends = [(x, values[0])] if command == "V" else [*zip(values[::2], values[1::2], strict=True)]
        if command != "M":
            control = [(x, y), *ends]
            yield from (_interpolate(control, step) for step in _STEPS)
        x, y = ends[-1]


def _interpolate(control: list[Point], part: float) -> Point:
    while len(control) > 1:
        control = [(a + (c - a) * part, b + (d - b) * part) for (a, b), (c, d) in pairwise(control)]
    return control[0]


def holds(rect: Rect, point: Point) -> bool:
    return rect.left + 1 < point[0] < rect.right - 1 and rect.top + 1 < point[1] < rect.bottom - 1


def width_in(font: dict[str, int], text: str, size: float) -> float:
    return sum(font[character] for character in text) * size / 1000


@proves("drawing.unobstructed")
@pytest.mark.parametrize("name", ALL)
def test_no_line_runs_through_a_label_of_another_or_through_a_box(name: str) -> None:
    drawn = picture(name)
    points = {line.edge: [*sample(line)] for line in drawn.lines}

    labels = [line for line in drawn.lines if line.label]
    crossed = [
        (line.edge.label, edge)
        for line in labels
        for edge in points
        if line.label and edge != line.edge and any(holds(line.label.rect, point) for point in points[edge])
    ]
    pierced = [
        (box.node.id, edge) for box in drawn.boxes for edge, path in points.items() if any(holds(box.rect, at) for at in path)
    ]
    assert (crossed, pierced) == ([], [])


@proves("drawing.bundled")
def test_edges_of_a_kind_that_lead_back_to_the_same_activity_enter_it_together() -> None:
    back = [line for line in picture("work-package").lines if line.leads_back]
    bundles: dict[tuple[str, Link], list[Line]] = {}
    for line in back:
        bundles.setdefault((line.edge.target, line.edge.link), []).append(line)

    assert max(map(len, bundles.values())) >= 3
    for lines in bundles.values():
        assert len({max(x for x, _ in sample(line)) for line in lines}) == 1
        assert len({[*sample(line)][-1] for line in lines}) == 1


@proves("drawing.bundled")
def test_bundles_keep_apart_from_each_other() -> None:
    lanes = {
        (line.edge.target, line.edge.link): max(x for x, _ in sample(line))
        for line in picture("work-package").lines
        if line.leads_back
    }

    assert len(lanes) > 2
    assert all(second - first >= 12 for first, second in pairwise(sorted(lanes.values())))


@proves("drawing.bundled")
def test_an_edge_whose_label_finds_no_room_on_its_branch_has_a_lane_of_its_own() -> None:
    nodes = chain("plan", "build", "review", "release")
    label = "a long condition that takes several lines because there are so many words in it that nobody would read all of them"
    back = [Edge("release", name, Link.CONDITION, (f"{name}: {label}",)) for name in ("plan", "build", "review")]
    drawn = compute_layout(Graph("", "", nodes.nodes, (*nodes.edges, *back)))
    labels = [line.label.rect for line in drawn.lines if line.label]

    lanes = [max(x for x, _ in sample(line)) for line in drawn.lines if line.leads_back]
    assert len({*lanes}) == 3
    assert all(abs(rect.middle[0] - x) < 0.1 for rect, x in zip(labels, lanes, strict=True))


@proves("drawing.steady")
@pytest.mark.parametrize("name", ["hello", "work-package"])
def test_the_pictures_in_the_documentation_are_those_that_the_command_draws(name: str) -> None:
    drawn = draw_svg(build_graph(workflow(name)))

    assert (IMAGES / f"{name}.svg").read_text("utf-8").rstrip("\n") == drawn


@proves("drawing.straight")
@pytest.mark.parametrize("name", ALL)
def test_the_main_path_of_a_bundled_workflow_is_straight(name: str) -> None:
    graph = build_graph(workflow(name))
    middle = {box.node.id: box.rect.middle[0] for box in compute_layout(graph).boxes}
    forward = compute_layers(graph).forward
    here, path = graph.nodes[0].id, [graph.nodes[0].id]
    while following := sorted((edge for edge in forward if edge.source == here), key=lambda edge: edge.link is not Link.NEXT):
        here = following[0].target
        path.append(here)

    assert len(path) > 2
    assert len({round(middle[node]) for node in path}) == 1


@proves("drawing.fonts")
@pytest.mark.parametrize("name", ALL)
def test_every_text_fits_into_its_place_in_the_widest_of_the_usual_fonts(name: str) -> None:
    drawn = picture(name)

    for box in drawn.boxes:
        room = box.rect.right - box.rect.left - 12
        assert all(width_in(BOLD, line, TITLE_SIZE) <= room for line in box.lines)
        assert width_in(REGULAR, describe_node(box.node), NOTE_SIZE) <= room
    for line in drawn.lines:
        if line.label:
            width, _ = measure_label(line.label.lines)
            assert all(width_in(REGULAR, text, LABEL_SIZE) <= width for text in line.label.lines)


@proves("drawing.fonts")
def test_no_usual_character_is_wider_than_assumed() -> None:
    text = "".join(REGULAR) * 3

    assert width_in(REGULAR, text, 10) <= text_width(text, 10)
    assert width_in(BOLD, "".join(BOLD), 10) <= text_width("".join(BOLD), 10, bold=True)


@proves("drawing.fonts")
def test_the_lock_is_on_the_corner_of_the_card_where_no_text_can_reach_it() -> None:
    graph = Graph("G", "", (Node("ask", "A title as wide as its card", marks=Marks(steps=2, checkpoints=1, locked=True)),), ())
    (box,) = compute_layout(graph).boxes
    badge = re.search(r'<circle class="badge" cx="([-\d.]+)" cy="([-\d.]+)"', draw_svg(graph))
    heights = [float(y) for y in re.findall(rf'y="([-\d.]+)" text-anchor="middle" font-size="{TITLE_SIZE}"', draw_svg(graph))]

    assert badge is not None
    assert float(badge[2]) == box.rect.top
    assert float(badge[2]) + BADGE_RADIUS < heights[0] - TITLE_SIZE * 0.8
    assert heights[0] - box.rect.top > TITLE_LINE

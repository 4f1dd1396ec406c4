"""Mermaid, SVG and plain text."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fidelio.definitions.describe import render_workflow
from fidelio.definitions.drawing.graph import Edge, Graph, Link, Marks, Node, Shape, build_graph
from fidelio.definitions.drawing.mermaid import draw_mermaid, escape_text
from fidelio.definitions.drawing.svg import draw_svg
from fidelio.definitions.drawing.text import ASCII, UNICODE, choose_signs, draw_text
from fidelio.definitions.library import Library, Root
from tests.definitions.drawing.graphs import graphs
from tests.support import proves
from tests.support.shared import shared_workflow_roots

few = settings(max_examples=40, deadline=None)
SVG = "{http://www.w3.org/2000/svg}"

RELEASE = Graph(
    "Release",
    "release 1.0.0 · 2 activities",
    (
        Node("s", "Start", Shape.START),
        Node("plan", "Plan", marks=Marks(steps=2, checkpoints=1, locked=True)),
        Node("ship", "Ship it"),
        Node("x", "lost", Shape.MISSING, warning="no such activity"),
        Node("w", "child", Shape.WORKFLOW),
        Node("e", "End", Shape.END),
    ),
    (
        Edge("s", "plan"),
        Edge("plan", "ship", Link.NEXT, ("otherwise",)),
        Edge("plan", "plan", Link.ANSWER, ("Think again",)),
        Edge("plan", "x", Link.CONDITION, ("is odd",)),
        Edge("ship", "plan", Link.DECISION, ("It broke",)),
        Edge("ship", "w", Link.TRIGGER, ("starts",)),
        Edge("ship", "e"),
    ),
)


@proves("drawing.mermaid", "drawing.flaws", "drawing.marks")
def test_a_workflow_as_mermaid() -> None:
    assert draw_mermaid(RELEASE).splitlines() == [
        "---",
        'title: "Release"',
        "---",
        "flowchart TD",
        '    n0(["Start"])',
        '    n1("Plan<br>\N{LOCK} 2 steps · 1 checkpoint")',
        '    n2("Ship it")',
        '    n3["lost<br>no such activity"]',
        '    n4[["child"]]',
        '    n5(["End"])',
        "    n0 ==> n1",
        '    n1 ==>|"otherwise"| n2',
        '    n1 -.->|"Think again"| n1',
        '    n1 -->|"is odd"| n3',
        '    n2 -->|"It broke"| n1',
        '    n2 -.->|"starts"| n4',
        "    n2 ==> n5",
        "    classDef flawed stroke:#b42318,stroke-width:1.5px,stroke-dasharray:5 4",
        "    class n3 flawed",
    ]


@proves("drawing.mermaid")
@given(st.text())
def test_no_text_can_end_its_quotes_or_begin_markup_in_mermaid(text: str) -> None:
    assert not re.search(r'["<>`\n\[\]{}|&]|#(?!\d+;)|(?<!\d);', escape_text(text))


@proves("drawing.mermaid")
@given(st.text(st.characters(min_codepoint=33, max_codepoint=126)))
def test_an_escaped_text_means_what_it_meant(text: str) -> None:
    assert re.sub(r"#(\d+);", lambda code: chr(int(code[1])), escape_text(text)) == text


@proves("drawing.mermaid")
def test_a_text_that_begins_like_a_list_is_no_list_in_mermaid() -> None:
    assert escape_text("1. Plan") == "1#46; Plan"


@proves("drawing.svg-alone")
@few
@given(graphs())
def test_the_svg_of_any_graph_is_well_formed_and_refers_to_nothing_outside(graph: Graph) -> None:
    text = draw_svg(graph)
    root = ET.fromstring(text)

    assert root.tag == f"{SVG}svg"
    assert not root.findall(f".//{SVG}script")
    assert not re.search(r"(?:href|src|@import|url\()\s*=?\s*[\"']?(?!#)http", text)
    assert all(link.startswith("#fidelio-tip-") for link in re.findall(r"url\(([^)]*)\)", text))


@proves("drawing.svg-alone")
def test_characters_that_xml_cannot_hold_are_left_out() -> None:
    ET.fromstring(draw_svg(Graph("a\x00b\x1b", "", (Node("n", "\x07]]>&<"),), ())))


@proves("drawing.svg-heard")
def test_the_svg_says_what_it_shows() -> None:
    root = ET.fromstring(draw_svg(RELEASE))
    named = {element.get("id"): element.text for element in root if element.get("id")}

    assert root.get("role") == "img"
    assert [named[name] for name in (root.get("aria-labelledby") or "").split()] == [
        "Release",
        (
            "2 activities. Start leads to Plan. Plan leads to Ship it (otherwise). Plan leads to Plan (Think again). "
            "Plan leads to lost (is odd). Ship it leads to Plan (It broke). Ship it leads to child (starts). "
            "Ship it leads to End."
        ),
    ]


@proves("drawing.svg-dark")
def test_the_svg_has_colours_for_dark_paper() -> None:
    text = draw_svg(RELEASE)
    dark = text[text.index("@media (prefers-color-scheme: dark)") : text.index("</style>")]

    assert all(f".line.{link}" in dark for link in Link)


@proves("drawing.steady")
def test_the_same_workflow_gives_the_same_svg() -> None:
    assert draw_svg(RELEASE) == draw_svg(replace(RELEASE))


@proves("drawing.text", "drawing.marks")
def test_a_workflow_as_plain_text() -> None:
    assert draw_text(RELEASE, 60).splitlines() == [
        "◉ → Plan",
        "● Plan ⚿  2 steps · 1 checkpoint",
        "├─ → Ship it: otherwise",
        "├─ ↺ Plan: Think again",
        "└─ → lost (no such activity): is odd",
        "● Ship it",
        "├─ ↺ Plan: It broke",
        "├─ ⇒ child",
        "└─ → End",
    ]


@proves("drawing.text")
@few
@given(graphs(), st.integers(20, 100))
def test_plain_text_keeps_to_the_width_and_can_be_ascii(graph: Graph, width: int) -> None:
    assert all(len(line) <= width for line in draw_text(graph, width).splitlines())
    assert draw_text(graph, width, signs=ASCII).isascii()


@proves("drawing.text")
@pytest.mark.parametrize(
    ("encoding", "signs"), [("utf-8", UNICODE), ("ascii", ASCII), ("latin-1", ASCII), (None, ASCII), ("?", ASCII)]
)
def test_the_signs_fit_the_terminal(encoding: str | None, signs: object) -> None:
    assert choose_signs(encoding) is signs


@proves("drawing.real-files")
@pytest.mark.parametrize("root", shared_workflow_roots(), ids=lambda root: root.name)
def test_every_workflow_that_others_wrote_can_be_drawn_and_shown(root: Path) -> None:
    library = Library([Root(root, "shared")])
    for entry in library.list():
        workflow = library.workflow(entry.id)
        graph = build_graph(workflow)
        ET.fromstring(draw_svg(graph))

        assert len(graph.nodes) >= len(workflow.activities)
        assert all(activity.name in draw_text(graph, 200) for activity in workflow.activities)
        assert all(activity.name in render_workflow(workflow, width=110) for activity in workflow.activities)


@proves("drawing.real-files")
def test_a_workflow_without_activities_can_be_drawn() -> None:
    empty = Graph("Empty", "", (), ())

    ET.fromstring(draw_svg(empty))
    assert draw_text(empty) == ""
    assert draw_mermaid(empty).endswith("flowchart TD")

"""Small graphs to draw, and a strategy for any graph at all."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

from fidelio.definitions.drawing.graph import Edge, Graph, Link, Marks, Node, Shape

_TITLES = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), min_size=1, max_size=60)
_LABELS = st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=0x17F), min_size=1, max_size=70), max_size=2)
_MARKS = st.builds(Marks, st.integers(0, 30), st.integers(0, 12), st.booleans(), st.integers(0, 3), st.integers(0, 3))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any graph with up to nine nodes: cycles, loops, islands, long labels and odd characters included."""
    count = draw(st.integers(1, 9))
    shapes = draw(st.lists(st.sampled_from(Shape), min_size=count, max_size=count))
    nodes = tuple(Node(f"n{index}", draw(_TITLES), shape, draw(_MARKS)) for index, shape in enumerate(shapes))
    numbers = st.integers(0, count - 1)
    pairs = draw(st.sets(st.tuples(numbers, numbers), max_size=14))
    edges = tuple(
        Edge(f"n{a}", f"n{b}", draw(st.sampled_from(Link)), tuple(draw(_LABELS)))
        for a, b in sorted(pairs)
        if _allowed(shapes[a])
    )
    return Graph(draw(_TITLES), "", nodes, edges)


def _allowed(shape: Shape) -> bool:
    return shape not in (Shape.END, Shape.MISSING, Shape.WORKFLOW)


def chain(*names: str) -> Graph:
    """Activities one after the other."""
    nodes = tuple(Node(name, name.title()) for name in names)
    return Graph("Chain", "", nodes, tuple(Edge(a, b) for a, b in itertools.pairwise(names)))

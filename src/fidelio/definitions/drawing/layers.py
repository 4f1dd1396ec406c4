"""Assign each node to a layer.

Edges that lead back are excluded first, because they cannot point down; the longest path from a start determines the layer.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fidelio.definitions.drawing.geometry import text_width, wrap
from fidelio.definitions.drawing.graph import Edge, Graph, Link, Node, Shape, describe_marks

_LINK_RANK = {link: position for position, link in enumerate(Link)}


@dataclass(frozen=True, slots=True)
class Layering:
    """The layer of every node, and the edges by what can be done with them."""

    layer: dict[str, int]
    forward: tuple[Edge, ...]
    back: tuple[Edge, ...]
    loops: tuple[Edge, ...]


def compute_layers(graph: Graph) -> Layering:
    loops = tuple(edge for edge in graph.edges if edge.source == edge.target)
    proper = tuple(edge for edge in graph.edges if edge.source != edge.target)
    leading_back = _find_back_edges(graph, proper)
    forward = tuple(edge for edge in proper if edge not in leading_back)
    back = tuple(edge for edge in proper if edge in leading_back)
    return Layering(_layers(graph.nodes, forward), forward, back, loops)


def _group_by_source(edges: Sequence[Edge]) -> dict[str, list[Edge]]:
    leaving: dict[str, list[Edge]] = defaultdict(list)
    for edge in edges:
        leaving[edge.source].append(edge)
    return leaving


def _find_back_edges(graph: Graph, edges: Sequence[Edge]) -> frozenset[Edge]:
    """The edges that close a cycle when one walks from the start and takes the plainest way first."""
    leaving = _group_by_source(sorted(edges, key=lambda edge: _LINK_RANK[edge.link]))
    entered = {edge.target for edge in edges}
    roots = sorted(graph.nodes, key=lambda node: (node.shape is not Shape.START, node.id in entered))
    seen: set[str] = set()
    back: set[Edge] = set()
    for root in roots:
        if root.id not in seen:
            _walk(root.id, leaving, seen, back)
    return frozenset(back)


def _walk(root: str, leaving: dict[str, list[Edge]], seen: set[str], back: set[Edge]) -> None:
    # An explicit stack: a chain of a thousand activities must not meet the interpreter's recursion limit.
    seen.add(root)
    on_way = {root}
    stack: list[tuple[str, Iterator[Edge]]] = [(root, iter(leaving[root]))]
    while stack:
        here, rest = stack[-1]
        edge = next(rest, None)
        if edge is None:
            on_way.discard(here)
            stack.pop()
        elif edge.target in on_way:
            back.add(edge)
        elif edge.target not in seen:
            seen.add(edge.target)
            on_way.add(edge.target)
            stack.append((edge.target, iter(leaving[edge.target])))


def _layers(nodes: Sequence[Node], forward: Sequence[Edge]) -> dict[str, int]:
    layer = {node.id: 0 for node in nodes}
    leaving = _group_by_source(forward)
    for node_id in _sort_topologically(nodes, forward, leaving):
        for edge in leaving[node_id]:
            layer[edge.target] = max(layer[edge.target], layer[node_id] + 1)
    return {node.id: _final_layer(node, leaving, layer) for node in nodes}


def _sort_topologically(nodes: Sequence[Node], forward: Sequence[Edge], leaving: dict[str, list[Edge]]) -> list[str]:
    waiting = {node.id: 0 for node in nodes}
    for edge in forward:
        waiting[edge.target] += 1
    ready = deque(node_id for node_id, count in waiting.items() if not count)
    order: list[str] = []
    while ready:
        order.append(ready.popleft())
        for edge in leaving[order[-1]]:
            waiting[edge.target] -= 1
            if not waiting[edge.target]:
                ready.append(edge.target)
    return order


def _final_layer(node: Node, leaving: dict[str, list[Edge]], layer: dict[str, int]) -> int:
    """End nodes are in the last layer, and a node without incoming edges directly above its targets."""
    if node.shape is Shape.END:
        return max(layer.values())
    below = [layer[edge.target] for edge in leaving[node.id]]
    if layer[node.id] == 0 and below and node.shape is not Shape.START:
        return max(0, min(below) - 1)
    return layer[node.id]


TITLE_SIZE = 14.0
NOTE_SIZE = 11.5
LABEL_SIZE = 11.5
LABEL_LINE = 15.0
TITLE_LINE = 18.0
_TITLE_LIMIT = 215.0
_LABEL_LIMIT = 150.0
_LOCK_WIDTH = 18.0
LOOP_WIDTH = 26.0


@dataclass(frozen=True, slots=True)
class Slot:
    """One place. `left` and `right` reach from its centre line to its borders, `lines` is what is written there.

    `left` and `room` include an edge from the node to itself; `right` and `height` are those of the box alone.
    """

    layer: int
    left: float
    right: float
    height: float
    room: float
    node: Node | None = None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Joint:
    """Two places in neighbouring layers that an edge joins; a heavier one is kept straighter."""

    upper: int
    lower: int
    weight: float


@dataclass(frozen=True, slots=True)
class Net:
    """All places, their joints, and the chain of places that each forward edge runs through."""

    slots: tuple[Slot, ...]
    joints: tuple[Joint, ...]
    chains: tuple[tuple[Edge, tuple[int, ...]], ...]
    slot_of: dict[str, int]

    @property
    def layers(self) -> list[list[int]]:
        rows: list[list[int]] = [[] for _ in range(1 + max((slot.layer for slot in self.slots), default=-1))]
        for index, slot in enumerate(self.slots):
            rows[slot.layer].append(index)
        return rows


def build_net(graph: Graph, layering: Layering) -> Net:
    loop_of = {edge.source: edge for edge in layering.loops}
    slots = [_node_slot(node, 2 * layering.layer[node.id], loop_of.get(node.id)) for node in graph.nodes]
    slot_of = {node.id: index for index, node in enumerate(graph.nodes)}
    joints: list[Joint] = []
    chains: list[tuple[Edge, tuple[int, ...]]] = []
    main = _find_main_path(graph, layering)
    for edge in layering.forward:
        chain = _make_chain(edge, slot_of, slots)
        chains.append((edge, chain))
        joints.extend(_make_joints(chain, 3.0 if edge in main else 1.0))
    return Net(tuple(slots), tuple(joints), tuple(chains), slot_of)


def _node_slot(node: Node, layer: int, loop: Edge | None) -> Slot:
    lines = title_lines(node)
    half = _content_width(node, lines) / 2 + 18
    height = 22 + TITLE_LINE * len(lines) + (17 if describe_node(node) else 0)
    if node.shape in (Shape.START, Shape.END):
        height -= 8
    else:
        half = max(half, 62)
    beside, tall = _loop_size(loop)
    return Slot(layer, half + beside, half, height, max(height, tall), node, lines)


def title_lines(node: Node) -> tuple[str, ...]:
    return wrap(node.title, _TITLE_LIMIT, TITLE_SIZE, lines=3, bold=True)


def label_lines(edge: Edge) -> tuple[str, ...]:
    return wrap(edge.label, _LABEL_LIMIT, LABEL_SIZE, lines=5)


def describe_node(node: Node) -> str:
    """The small line below the title: what is wrong, else what is inside."""
    return node.warning or " · ".join(describe_marks(node.marks))


def _content_width(node: Node, lines: Iterable[str]) -> float:
    title = max(text_width(line, TITLE_SIZE, bold=True) for line in lines) if node.title.strip() else 0
    note = text_width(describe_node(node), NOTE_SIZE) + (_LOCK_WIDTH if node.marks.locked and not node.warning else 0)
    return max(title, note)


def label_size(lines: tuple[str, ...]) -> tuple[float, float]:
    """Width and height of a label with the small margin around its text; nothing for no text."""
    if not lines:
        return 0.0, 0.0
    return max(text_width(line, LABEL_SIZE) for line in lines) + 14, LABEL_LINE * len(lines) + 6


def _loop_size(loop: Edge | None) -> tuple[float, float]:
    """The width and height that an edge from a node to itself takes beside it."""
    if loop is None:
        return 0.0, 0.0
    width, height = label_size(label_lines(loop))
    return LOOP_WIDTH + width, height


def _make_chain(edge: Edge, slot_of: dict[str, int], slots: list[Slot]) -> tuple[int, ...]:
    first, last = slot_of[edge.source], slot_of[edge.target]
    lines = label_lines(edge)
    width, height = label_size(lines)
    between: list[int] = []
    for layer in range(slots[first].layer + 1, slots[last].layer):
        # A label is placed directly below the node that its edge leaves.
        labelled = layer == slots[first].layer + 1 and bool(lines)
        between.append(len(slots))
        half = width / 2 if labelled else 5.0
        tall = height if labelled else 0.0
        slots.append(Slot(layer, half, half, tall, tall, None, lines if labelled else ()))
    return (first, *between, last)


def _find_main_path(graph: Graph, layering: Layering) -> frozenset[Edge]:
    """The way of a run in which nothing special happens. It is drawn as one straight line where that is possible."""
    way: list[Edge] = []
    here = next((node.id for node in graph.nodes if node.shape is Shape.START), None)
    plain: dict[str, Edge] = {}
    for edge in sorted(layering.forward, key=lambda edge: edge.link is not Link.NEXT):
        plain.setdefault(edge.source, edge)
    while here is not None and here in plain:
        way.append(plain[here])
        here = way[-1].target
    return frozenset(way)


def _make_joints(chain: tuple[int, ...], importance: float) -> Iterable[Joint]:
    for position, (upper, lower) in enumerate(pairwise(chain)):
        inner = 0 < position < len(chain) - 2
        yield Joint(upper, lower, importance * (8.0 if inner else 2.0))

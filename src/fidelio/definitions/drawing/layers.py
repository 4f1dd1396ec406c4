"""Assign nodes to layers, and edges to the slots of the layers that they cross.

Edges that lead back are excluded first, because they cannot point down; the longest path from a start determines the layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise

from fidelio.definitions.drawing.geometry import text_width, wrap
from fidelio.definitions.drawing.graph import Edge, Graph, Link, Node, Shape, describe_marks, group_by_source

_LINK_RANK = {link: position for position, link in enumerate(Link)}


@dataclass(frozen=True, slots=True)
class Layering:
    """The layer of every node, and the edges by direction: down, back up, and from a node to itself."""

    layer: dict[str, int]
    forward: tuple[Edge, ...]
    back: tuple[Edge, ...]
    loops: tuple[Edge, ...]


def compute_layers(graph: Graph) -> Layering:
    loops = tuple(edge for edge in graph.edges if edge.source == edge.target)
    proper = tuple(edge for edge in graph.edges if edge.source != edge.target)
    back_edges = _find_back_edges(graph, proper)
    forward = tuple(edge for edge in proper if edge not in back_edges)
    back = tuple(edge for edge in proper if edge in back_edges)
    return Layering(_assign_layers(graph.nodes, forward), forward, back, loops)


def _find_back_edges(graph: Graph, edges: Sequence[Edge]) -> frozenset[Edge]:
    """The edges that close a cycle in a depth-first search from the start that follows the most general edges first."""
    outgoing = group_by_source(sorted(edges, key=lambda edge: _LINK_RANK[edge.link]))
    entered = {edge.target for edge in edges}
    roots = sorted(graph.nodes, key=lambda node: (node.shape is not Shape.START, node.id in entered))
    seen: set[str] = set()
    back: set[Edge] = set()
    for root in roots:
        if root.id not in seen:
            _search_depth_first(root.id, outgoing, seen, back)
    return frozenset(back)


def _search_depth_first(root: str, outgoing: dict[str, list[Edge]], seen: set[str], back: set[Edge]) -> None:
    # An explicit stack: a chain of a thousand activities would exceed the interpreter's recursion limit.
    seen.add(root)
    on_path = {root}
    stack: list[tuple[str, Iterator[Edge]]] = [(root, iter(outgoing[root]))]
    while stack:
        here, rest = stack[-1]
        edge = next(rest, None)
        if edge is None:
            on_path.discard(here)
            stack.pop()
        elif edge.target in on_path:
            back.add(edge)
        elif edge.target not in seen:
            seen.add(edge.target)
            on_path.add(edge.target)
            stack.append((edge.target, iter(outgoing[edge.target])))


def _assign_layers(nodes: Sequence[Node], forward: Sequence[Edge]) -> dict[str, int]:
    outgoing = group_by_source(forward)
    layer = {node.id: 0 for node in nodes}
    targets = {node.id: [edge.target for edge in outgoing[node.id]] for node in nodes}
    for node_id in reversed([*TopologicalSorter(targets).static_order()]):
        for target in targets[node_id]:
            layer[target] = max(layer[target], layer[node_id] + 1)
    return {node.id: _adjust_layer(node, targets[node.id], layer) for node in nodes}


def _adjust_layer(node: Node, targets: Sequence[str], layer: dict[str, int]) -> int:
    """End nodes are in the last layer, and a node without incoming edges directly above its targets."""
    if node.shape is Shape.END:
        return max(layer.values())
    if layer[node.id] == 0 and targets and node.shape is not Shape.START:
        return min(layer[target] for target in targets) - 1
    return layer[node.id]


TITLE_SIZE = 14.0
NOTE_SIZE = 11.5
LABEL_SIZE = 11.5
LABEL_LINE = 15.0
TITLE_LINE = 18.0
_TITLE_LIMIT = 215.0
_LABEL_LIMIT = 150.0
LOOP_WIDTH = 26.0
MAX_SLOTS = 6_000
_DIRECT_SPAN = 2
# More than the inner sections of any other edge, so that nothing bends the main path.
_MAIN_PATH = 12.0


@dataclass(frozen=True, slots=True)
class Slot:
    """A position in a layer for a node or a passing edge. `left` and `right` are the distances from its centre to its borders.

    `left` and `full_height` include an edge from the node to itself; `right` and `height` are those of the box alone. `lines`
    is the text of the node or of the edge's label.
    """

    layer: int
    left: float
    right: float
    height: float
    full_height: float
    node: Node | None = None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Joint:
    """A section of an edge between two slots in neighbouring layers; the heavier, the straighter it is drawn."""

    upper: int
    lower: int
    weight: float


@dataclass(frozen=True, slots=True)
class Net:
    """All slots, their joints, and the chain of slots that each forward edge runs through."""

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
    slots = [_make_slot(node, 2 * layering.layer[node.id], loop_of.get(node.id)) for node in graph.nodes]
    slot_of = {node.id: index for index, node in enumerate(graph.nodes)}
    joints: list[Joint] = []
    chains: list[tuple[Edge, tuple[int, ...]]] = []
    main = _find_main_path(graph, layering)
    direct = _find_direct_edges(layering)
    for edge in layering.forward:
        chain = _make_chain(edge, slot_of, slots, direct=edge in direct)
        chains.append((edge, chain))
        # A direct edge passes over layers without a slot, so its last section joins no neighbours and pulls at nothing.
        joints.extend(_make_joints(chain[:-1] if edge in direct else chain, _MAIN_PATH if edge in main else 1.0))
    return Net(tuple(slots), tuple(joints), tuple(chains), slot_of)


def _find_direct_edges(layering: Layering) -> frozenset[Edge]:
    """The longest edges of a large graph, which get no slots in the layers that they cross.

    A slot for every layer that every edge crosses would be millions for a few hundred activities.
    """
    layer, used = layering.layer, 0
    direct = list[Edge]()
    for edge in sorted(layering.forward, key=lambda edge: layer[edge.target] - layer[edge.source]):
        span = 2 * (layer[edge.target] - layer[edge.source])
        used += span
        if used > MAX_SLOTS and span > _DIRECT_SPAN:
            direct.append(edge)
    return frozenset(direct)


def _make_slot(node: Node, layer: int, loop: Edge | None) -> Slot:
    lines = wrap_title(node)
    half = _measure_content(node, lines) / 2 + 18
    height = 22 + TITLE_LINE * len(lines) + (17 if describe_node(node) else 0)
    if node.shape in (Shape.START, Shape.END):
        height -= 8
    else:
        half = max(half, 62)
    loop_width, loop_height = _measure_loop(loop)
    return Slot(layer, half + loop_width, half, height, max(height, loop_height), node, lines)


def wrap_title(node: Node) -> tuple[str, ...]:
    return wrap(node.title, _TITLE_LIMIT, TITLE_SIZE, lines=3, bold=True)


def wrap_label(edge: Edge, limit: float = _LABEL_LIMIT) -> tuple[str, ...]:
    return wrap(edge.label, limit, LABEL_SIZE, lines=5)


def describe_node(node: Node) -> str:
    """The line below the title: the warning, else the marks."""
    return node.warning or " · ".join(describe_marks(node.marks))


def _measure_content(node: Node, lines: Iterable[str]) -> float:
    title = max(text_width(line, TITLE_SIZE, bold=True) for line in lines) if node.title.strip() else 0
    return max(title, text_width(describe_node(node), NOTE_SIZE))


def measure_label(lines: tuple[str, ...]) -> tuple[float, float]:
    """Width and height of a label with a margin around its text; 0 for an empty label."""
    if not lines:
        return 0.0, 0.0
    return max(text_width(line, LABEL_SIZE) for line in lines) + 14, LABEL_LINE * len(lines) + 6


def _measure_loop(loop: Edge | None) -> tuple[float, float]:
    """The width and height of an edge from a node to itself, next to the node."""
    if loop is None:
        return 0.0, 0.0
    width, height = measure_label(wrap_label(loop))
    return LOOP_WIDTH + width, height


def _make_chain(edge: Edge, slot_of: dict[str, int], slots: list[Slot], *, direct: bool) -> tuple[int, ...]:
    first, last = slot_of[edge.source], slot_of[edge.target]
    lines = wrap_label(edge)
    width, height = measure_label(lines)
    between: list[int] = []
    crossed = range(slots[first].layer + 1, slots[last].layer)
    for layer in crossed[: bool(lines)] if direct else crossed:
        # A label is placed directly below the node that its edge leaves.
        labelled = layer == slots[first].layer + 1 and bool(lines)
        between.append(len(slots))
        half = width / 2 if labelled else 5.0
        tall = height if labelled else 0.0
        slots.append(Slot(layer, half, half, tall, tall, None, lines if labelled else ()))
    return (first, *between, last)


def _find_main_path(graph: Graph, layering: Layering) -> frozenset[Edge]:
    """The edges of a run without special conditions. They are drawn as a straight line where possible."""
    path: list[Edge] = []
    here = next((node.id for node in graph.nodes if node.shape is Shape.START), None)
    plain: dict[str, Edge] = {}
    for edge in sorted(layering.forward, key=lambda edge: edge.link is not Link.NEXT):
        plain.setdefault(edge.source, edge)
    while here is not None and here in plain:
        path.append(plain[here])
        here = path[-1].target
    return frozenset(path)


def _make_joints(chain: tuple[int, ...], importance: float) -> Iterable[Joint]:
    for position, (upper, lower) in enumerate(pairwise(chain)):
        inner = 0 < position < len(chain) - 2
        yield Joint(upper, lower, importance * (8.0 if inner else 2.0))

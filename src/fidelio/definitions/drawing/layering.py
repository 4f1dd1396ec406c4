"""Assign each node to a layer.

Edges that lead back are excluded first, because they cannot point down; the longest path from a start determines the layer.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fidelio.definitions.drawing.graph import Edge, Graph, Link, Node, Shape

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

"""Graph algorithms for lint: reachability and cycles, in linear time and without recursion."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

Adjacency = Mapping[str, Iterable[str]]


def find_reachable(starts: Iterable[str], graph: Adjacency) -> set[str]:
    """The starts and everything that can be reached from them."""
    waiting = list(starts)
    found = set(waiting)
    while waiting:
        new = [target for target in graph.get(waiting.pop(), ()) if target not in found]
        found.update(new)
        waiting.extend(new)
    return found


def reverse_edges(graph: Adjacency) -> dict[str, list[str]]:
    """The graph with all edges reversed."""
    back: dict[str, list[str]] = defaultdict(list)
    for source, targets in graph.items():
        for target in targets:
            back[target].append(source)
    return dict(back)


def find_cycles(graph: Adjacency) -> list[set[str]]:
    """The strongly connected components; a single node counts only if it has an edge to itself."""
    back, assigned, found = reverse_edges(graph), set[str](), list[set[str]]()
    # Kosaraju: follow the reversed edges in reverse postorder.
    for start in reversed(_list_postorder(graph)):
        if start in assigned:
            continue
        together = _collect_component(start, back, assigned)
        if len(together) > 1 or start in graph.get(start, ()):
            found.append(together)
    return found


def _collect_component(start: str, back: Adjacency, assigned: set[str]) -> set[str]:
    together, waiting = {start}, [start]
    assigned.add(start)
    while waiting:
        new = [name for name in dict.fromkeys(back.get(waiting.pop(), ())) if name not in assigned]
        assigned.update(new)
        together.update(new)
        waiting.extend(new)
    return together


def _list_postorder(graph: Adjacency) -> list[str]:
    """All nodes in postorder of a depth-first search. Not recursive, because a chain may have thousands of nodes."""
    left, seen = list[str](), set[str]()
    for start in graph:
        if start in seen:
            continue
        seen.add(start)
        trail: list[tuple[str, Iterator[str]]] = [(start, iter(graph[start]))]
        while trail:
            name, targets = trail[-1]
            ahead = next((target for target in targets if target not in seen), None)
            if ahead is None:
                left.append(name)
                trail.pop()
            else:
                seen.add(ahead)
                trail.append((ahead, iter(graph.get(ahead, ()))))
    return left

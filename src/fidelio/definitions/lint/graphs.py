"""Graph algorithms for lint: reachability and cycles, in linear time and without recursion."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

Adjacency = Mapping[str, Iterable[str]]


def find_reachable(starts: Iterable[str], ways: Adjacency) -> set[str]:
    """The starts and everything that can be reached from them."""
    waiting = list(starts)
    found = set(waiting)
    while waiting:
        new = [target for target in ways.get(waiting.pop(), ()) if target not in found]
        found.update(new)
        waiting.extend(new)
    return found


def reverse_edges(ways: Adjacency) -> dict[str, list[str]]:
    """Every way in the other direction."""
    back: dict[str, list[str]] = defaultdict(list)
    for source, targets in ways.items():
        for target in targets:
            back[target].append(source)
    return dict(back)


def find_cycles(ways: Adjacency) -> list[set[str]]:
    """The largest sets in which everybody can be reached from everybody; one alone counts only when it leads to itself."""
    back, placed, found = reverse_edges(ways), set[str](), list[set[str]]()
    # Whoever is left last in the walk forwards is the first to be followed backwards (Kosaraju).
    for start in reversed(_list_postorder(ways)):
        if start in placed:
            continue
        together = _collect_component(start, back, placed)
        if len(together) > 1 or start in ways.get(start, ()):
            found.append(together)
    return found


def _collect_component(start: str, back: Adjacency, placed: set[str]) -> set[str]:
    together, waiting = {start}, [start]
    placed.add(start)
    while waiting:
        new = [name for name in dict.fromkeys(back.get(waiting.pop(), ())) if name not in placed]
        placed.update(new)
        together.update(new)
        waiting.extend(new)
    return together


def _list_postorder(ways: Adjacency) -> list[str]:
    """All names in the order in which a walk into the depth leaves them. Not recursive: a chain may be thousands long."""
    left, seen = list[str](), set[str]()
    for start in ways:
        if start in seen:
            continue
        seen.add(start)
        trail: list[tuple[str, Iterator[str]]] = [(start, iter(ways[start]))]
        while trail:
            name, targets = trail[-1]
            ahead = next((target for target in targets if target not in seen), None)
            if ahead is None:
                left.append(name)
                trail.pop()
            else:
                seen.add(ahead)
                trail.append((ahead, iter(ways.get(ahead, ()))))
    return left

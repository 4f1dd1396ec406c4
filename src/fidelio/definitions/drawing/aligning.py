"""Straight lines where straight lines are possible.

Placing alone leaves small bends: an edge that runs past three layers wobbles by a few units at each. Here places that an edge
joins are tied into columns that share one x, the most important edges first, and the columns are then set apart again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from fidelio.definitions.drawing.ordering import Rows
from fidelio.definitions.drawing.slots import Joint, Net

_ROUNDS = 24


@dataclass(frozen=True, slots=True)
class Apart:
    """One column stands at least `distance` to the left of another."""

    left: int
    right: int
    distance: float


def aligned(net: Net, rows: Rows, x: Sequence[float], gap: float) -> list[float]:
    """The same places with as many straight edges as their order allows."""
    column = _columns(net, rows)
    apart = _distances(net, rows, column, gap)
    wish = _means(column, x)
    settled = _between_extremes(wish, apart)
    _draw_together(settled, net.joints, column, apart)
    return [settled[column[slot]] for slot in range(len(net.slots))]


def _columns(net: Net, rows: Rows) -> list[int]:
    """For every place the column that it belongs to, named after the topmost place in it."""
    position = {slot: at for row in rows for at, slot in enumerate(row)}
    column = list(range(len(net.slots)))
    tied_above: set[int] = set()
    tied_below: set[int] = set()
    ties: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for joint in sorted(net.joints, key=lambda j: (-j.weight, net.slots[j.upper].layer, position[j.upper])):
        layer, here = net.slots[joint.upper].layer, (position[joint.upper], position[joint.lower])
        if joint.upper in tied_below or joint.lower in tied_above or _crosses(here, ties[layer]):
            continue
        ties[layer].append(here)
        tied_below.add(joint.upper)
        tied_above.add(joint.lower)
        column[joint.lower] = joint.upper
    # Rows come from top to bottom, so the place above has found the head of its column already.
    for row in rows:
        for slot in row:
            column[slot] = column[column[slot]]
    return column


def _crosses(here: tuple[int, int], ties: Sequence[tuple[int, int]]) -> bool:
    return any((here[0] - upper) * (here[1] - lower) <= 0 for upper, lower in ties)


def _distances(net: Net, rows: Rows, column: list[int], gap: float) -> list[Apart]:
    return [
        Apart(column[one], column[two], net.slots[one].right + net.slots[two].left + gap)
        for row in rows
        for one, two in pairwise(row)
    ]


def _means(column: list[int], x: Sequence[float]) -> dict[int, float]:
    members: dict[int, list[float]] = defaultdict(list)
    for slot, head in enumerate(column):
        members[head].append(x[slot])
    return {head: sum(values) / len(values) for head, values in members.items()}


def _between_extremes(wish: dict[int, float], apart: Sequence[Apart]) -> dict[int, float]:
    """Pushing everything right until it fits is allowed, and so is pushing left; so is therefore the middle of the two."""
    order = _left_to_right(wish, apart)
    pushed_right, pushed_left = dict(wish), dict(wish)
    by_right, by_left = _grouped(apart)
    for head in order:
        pushed_right[head] = max([wish[head], *(pushed_right[a.left] + a.distance for a in by_right[head])])
    for head in reversed(order):
        pushed_left[head] = min([wish[head], *(pushed_left[a.right] - a.distance for a in by_left[head])])
    return {head: (pushed_right[head] + pushed_left[head]) / 2 for head in wish}


def _grouped(apart: Sequence[Apart]) -> tuple[dict[int, list[Apart]], dict[int, list[Apart]]]:
    by_right: dict[int, list[Apart]] = defaultdict(list)
    by_left: dict[int, list[Apart]] = defaultdict(list)
    for pair in apart:
        by_right[pair.right].append(pair)
        by_left[pair.left].append(pair)
    return by_right, by_left


def _left_to_right(wish: dict[int, float], apart: Sequence[Apart]) -> list[int]:
    waiting = dict.fromkeys(wish, 0)
    _, by_left = _grouped(apart)
    for pair in apart:
        waiting[pair.right] += 1
    ready = [head for head, count in waiting.items() if not count]
    order: list[int] = []
    while ready:
        order.append(ready.pop())
        for pair in by_left[order[-1]]:
            waiting[pair.right] -= 1
            if not waiting[pair.right]:
                ready.append(pair.right)
    return order


def _draw_together(x: dict[int, float], joints: Sequence[Joint], column: list[int], apart: Sequence[Apart]) -> None:
    """Moves each column towards those it is joined with, as far as its neighbours let it."""
    by_right, by_left = _grouped(apart)
    joined: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for joint in joints:
        one, two = column[joint.upper], column[joint.lower]
        if one != two:
            joined[one].append((two, joint.weight))
            joined[two].append((one, joint.weight))
    for _ in range(_ROUNDS):
        for head, others in joined.items():
            wish = sum(x[other] * weight for other, weight in others) / sum(weight for _, weight in others)
            least = max((x[a.left] + a.distance for a in by_right[head]), default=-inf)
            most = min((x[a.right] - a.distance for a in by_left[head]), default=inf)
            x[head] = max(least, min(wish, most))

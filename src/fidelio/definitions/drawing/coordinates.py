"""Compute the coordinates of slots, with straight edges where possible.

Barycentric placement leaves small bends in edges that pass several layers. Therefore slots that an edge joins are tied into
columns with the same x, the most important edges first, and the columns are then separated again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from fidelio.definitions.drawing.layers import Joint, Net, Slot

_ROUNDS = 24


@dataclass(frozen=True, slots=True)
class MinimumDistance:
    """One column is at least `distance` to the left of another."""

    left: int
    right: int
    distance: float


def align_columns(net: Net, rows: Rows, x: Sequence[float], gap: float) -> list[float]:
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


def _distances(net: Net, rows: Rows, column: list[int], gap: float) -> list[MinimumDistance]:
    return [
        MinimumDistance(column[first], column[second], net.slots[first].right + net.slots[second].left + gap)
        for row in rows
        for first, second in pairwise(row)
    ]


def _means(column: list[int], x: Sequence[float]) -> dict[int, float]:
    members: dict[int, list[float]] = defaultdict(list)
    for slot, head in enumerate(column):
        members[head].append(x[slot])
    return {head: sum(values) / len(values) for head, values in members.items()}


def _between_extremes(wish: dict[int, float], apart: Sequence[MinimumDistance]) -> dict[int, float]:
    """Pushing everything right until it fits is allowed, and so is pushing left; so is therefore the middle of the two."""
    order = _left_to_right(wish, apart)
    pushed_right, pushed_left = dict(wish), dict(wish)
    by_right, by_left = _grouped(apart)
    for head in order:
        pushed_right[head] = max([wish[head], *(pushed_right[a.left] + a.distance for a in by_right[head])])
    for head in reversed(order):
        pushed_left[head] = min([wish[head], *(pushed_left[a.right] - a.distance for a in by_left[head])])
    return {head: (pushed_right[head] + pushed_left[head]) / 2 for head in wish}


def _grouped(apart: Sequence[MinimumDistance]) -> tuple[dict[int, list[MinimumDistance]], dict[int, list[MinimumDistance]]]:
    by_right: dict[int, list[MinimumDistance]] = defaultdict(list)
    by_left: dict[int, list[MinimumDistance]] = defaultdict(list)
    for pair in apart:
        by_right[pair.right].append(pair)
        by_left[pair.left].append(pair)
    return by_right, by_left


def _left_to_right(wish: dict[int, float], apart: Sequence[MinimumDistance]) -> list[int]:
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


def _draw_together(x: dict[int, float], joints: Sequence[Joint], column: list[int], apart: Sequence[MinimumDistance]) -> None:
    """Moves each column towards those it is joined with, as far as its neighbours let it."""
    by_right, by_left = _grouped(apart)
    joined: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for joint in joints:
        first, second = column[joint.upper], column[joint.lower]
        if first != second:
            joined[first].append((second, joint.weight))
            joined[second].append((first, joint.weight))
    for _ in range(_ROUNDS):
        for head, others in joined.items():
            wish = sum(x[other] * weight for other, weight in others) / sum(weight for _, weight in others)
            least = max((x[a.left] + a.distance for a in by_right[head]), default=-inf)
            most = min((x[a.right] - a.distance for a in by_left[head]), default=inf)
            x[head] = max(least, min(wish, most))


_GAP = 26.0
_LAYER_GAP = 26.0
_PLACING_ROUNDS = 40


@dataclass(frozen=True, slots=True)
class Band:
    """The strip of the paper that a layer takes."""

    top: float
    bottom: float

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2


def compute_x(net: Net, rows: Rows) -> list[float]:
    """The x of every place."""
    wishes = _collect_targets(net.joints)
    x = [0.0] * len(net.slots)
    for row in rows:
        _place_row(x, row, net.slots, [(0.0, 1.0)] * len(row))
    for round_number in range(_PLACING_ROUNDS):
        for row in rows if round_number % 2 == 0 else reversed(rows):
            _place_row(x, row, net.slots, [_find_target(slot, wishes, x) for slot in row])
    return align_columns(net, rows, x, _GAP)


def _collect_targets(joints: Sequence[Joint]) -> dict[int, list[tuple[int, float]]]:
    joined: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for joint in joints:
        joined[joint.lower].append((joint.upper, joint.weight))
        joined[joint.upper].append((joint.lower, joint.weight))
    return joined


def _find_target(slot: int, wishes: dict[int, list[tuple[int, float]]], x: list[float]) -> tuple[float, float]:
    total = sum(weight for _, weight in wishes[slot])
    if not total:
        return x[slot], 0.1
    return sum(x[other] * weight for other, weight in wishes[slot]) / total, total


def _place_row(x: list[float], row: list[int], slots: Sequence[Slot], wishes: list[tuple[float, float]]) -> None:
    """Moves one layer as near to its wishes as the order and the distances allow."""
    offsets = _offsets(row, slots)
    blocks: list[tuple[float, float, int]] = []
    for (wish, weight), offset in zip(wishes, offsets, strict=True):
        blocks.append((wish - offset, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            blocks.append(_pool_blocks(blocks.pop(), blocks.pop()))
    settled = [where for where, _, count in blocks for _ in range(count)]
    for slot, offset, where in zip(row, offsets, settled, strict=True):
        x[slot] = where + offset


def _pool_blocks(first: tuple[float, float, int], second: tuple[float, float, int]) -> tuple[float, float, int]:
    weight = first[1] + second[1]
    return (first[0] * first[1] + second[0] * second[1]) / weight, weight, first[2] + second[2]


def _offsets(row: list[int], slots: Sequence[Slot]) -> list[float]:
    offsets = [0.0]
    for first, second in pairwise(row):
        offsets.append(offsets[-1] + slots[first].right + slots[second].left + _GAP)
    return offsets[: len(row)]


def compute_bands(net: Net, rows: Rows, x: list[float], top: float) -> list[Band]:
    """The vertical range of every layer. Wide edges increase the gap, so that no curve becomes too flat."""
    reach = _horizontal_spans(net, x)
    bands: list[Band] = []
    for index, row in enumerate(rows):
        height = max((net.slots[slot].room for slot in row), default=0.0)
        bands.append(Band(top, top + height))
        top += height + _LAYER_GAP + min(44.0, reach[index] * 0.14)
    return bands


def _horizontal_spans(net: Net, x: list[float]) -> dict[int, float]:
    reach: dict[int, float] = defaultdict(float)
    for joint in net.joints:
        layer = net.slots[joint.upper].layer
        reach[layer] = max(reach[layer], abs(x[joint.upper] - x[joint.lower]))
    return reach


_ORDERING_SWEEPS = 12

Rows = list[list[int]]


def order_layers(net: Net) -> Rows:
    above, below = _neighbours(net.joints)
    rows = net.layers
    best, fewest = _copy(rows), _crossings(rows, below)
    for round_number in range(_ORDERING_SWEEPS):
        if not fewest:
            break
        downwards = round_number % 2 == 0
        _sweep(rows, above if downwards else below, downwards=downwards)
        _swap_neighbours(rows, above, below)
        crossings = _crossings(rows, below)
        if crossings < fewest:
            best, fewest = _copy(rows), crossings
    return best


def _neighbours(joints: Sequence[Joint]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    above: dict[int, list[int]] = defaultdict(list)
    below: dict[int, list[int]] = defaultdict(list)
    for joint in joints:
        above[joint.lower].append(joint.upper)
        below[joint.upper].append(joint.lower)
    return above, below


def _copy(rows: Rows) -> Rows:
    return [list(row) for row in rows]


def _sweep(rows: Rows, fixed: dict[int, list[int]], *, downwards: bool) -> None:
    indexes = range(1, len(rows)) if downwards else range(len(rows) - 2, -1, -1)
    for index in indexes:
        neighbour_row = rows[index - 1 if downwards else index + 1]
        position = {slot: float(at) for at, slot in enumerate(neighbour_row)}
        own = {slot: float(at) for at, slot in enumerate(rows[index])}
        rows[index].sort(key=lambda slot: _mean([position[n] for n in fixed[slot]], own[slot]))


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _swap_neighbours(rows: Rows, above: dict[int, list[int]], below: dict[int, list[int]]) -> None:
    for index, row in enumerate(rows):
        upper = {slot: at for at, slot in enumerate(rows[index - 1])} if index else {}
        lower = {slot: at for at, slot in enumerate(rows[index + 1])} if index + 1 < len(rows) else {}
        for at in range(len(row) - 1):
            one, two = row[at], row[at + 1]
            gain = _pair(one, two, above, upper) + _pair(one, two, below, lower)
            gain -= _pair(two, one, above, upper) + _pair(two, one, below, lower)
            if gain > 0:
                row[at], row[at + 1] = two, one


def _pair(left: int, right: int, joined: dict[int, list[int]], position: dict[int, int]) -> int:
    """How many edges of `left` cross edges of `right` when they stand in that order."""
    return sum(position[a] > position[b] for a in joined[left] for b in joined[right])


def _crossings(rows: Rows, below: dict[int, list[int]]) -> int:
    total = 0
    for row, lower in pairwise(rows):
        position = {slot: at for at, slot in enumerate(lower)}
        ends = [position[n] for slot in row for n in sorted(below[slot], key=position.__getitem__)]
        total += sum(ends[i] > ends[j] for i in range(len(ends)) for j in range(i + 1, len(ends)))
    return total

"""Order the slots of each layer and compute their coordinates, with few crossings and straight edges where possible.

The order comes from barycenter sweeps. Barycentric coordinates leave small bends in edges that pass several layers. Therefore
slots that an edge joins are tied into columns with the same x, the most important edges first, and the columns are then
separated again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from fidelio.definitions.drawing.layers import Joint, Net, Slot

_ATTRACTION_ROUNDS = 24


@dataclass(frozen=True, slots=True)
class MinimumDistance:
    """A column is at least `distance` to the left of another."""

    left: int
    right: int
    distance: float


def align_columns(net: Net, rows: Rows, x: Sequence[float], gap: float) -> list[float]:
    """Move the slots so that as many edges are straight as the order of the slots allows."""
    column = _assign_columns(net, rows)
    distances = _compute_distances(net, rows, column, gap)
    target = _compute_means(column, x)
    positions = _balance_extremes(target, distances)
    _attract_columns(positions, net.joints, column, distances)
    return [positions[column[slot]] for slot in range(len(net.slots))]


def _assign_columns(net: Net, rows: Rows) -> list[int]:
    """The column of every slot; a column is named after its topmost slot."""
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
    # Rows are processed from top to bottom, so the slot above already knows the head of its column.
    for row in rows:
        for slot in row:
            column[slot] = column[column[slot]]
    return column


def _crosses(here: tuple[int, int], ties: Sequence[tuple[int, int]]) -> bool:
    return any((here[0] - upper) * (here[1] - lower) <= 0 for upper, lower in ties)


def _compute_distances(net: Net, rows: Rows, column: list[int], gap: float) -> list[MinimumDistance]:
    return [
        MinimumDistance(column[first], column[second], net.slots[first].right + net.slots[second].left + gap)
        for row in rows
        for first, second in pairwise(row)
    ]


def _compute_means(column: list[int], x: Sequence[float]) -> dict[int, float]:
    members: dict[int, list[float]] = defaultdict(list)
    for slot, head in enumerate(column):
        members[head].append(x[slot])
    return {head: sum(values) / len(values) for head, values in members.items()}


def _balance_extremes(target: dict[int, float], distances: Sequence[MinimumDistance]) -> dict[int, float]:
    """The middle between two valid solutions: everything pushed right until it fits, and everything pushed left."""
    order = _sort_left_to_right(target, distances)
    pushed_right, pushed_left = dict(target), dict(target)
    by_right, by_left = _group_distances(distances)
    for head in order:
        pushed_right[head] = max([target[head], *(pushed_right[a.left] + a.distance for a in by_right[head])])
    for head in reversed(order):
        pushed_left[head] = min([target[head], *(pushed_left[a.right] - a.distance for a in by_left[head])])
    return {head: (pushed_right[head] + pushed_left[head]) / 2 for head in target}


def _group_distances(
    distances: Sequence[MinimumDistance],
) -> tuple[dict[int, list[MinimumDistance]], dict[int, list[MinimumDistance]]]:
    by_right: dict[int, list[MinimumDistance]] = defaultdict(list)
    by_left: dict[int, list[MinimumDistance]] = defaultdict(list)
    for pair in distances:
        by_right[pair.right].append(pair)
        by_left[pair.left].append(pair)
    return by_right, by_left


def _sort_left_to_right(target: dict[int, float], distances: Sequence[MinimumDistance]) -> list[int]:
    waiting = dict.fromkeys(target, 0)
    _, by_left = _group_distances(distances)
    for pair in distances:
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


def _attract_columns(
    x: dict[int, float], joints: Sequence[Joint], column: list[int], distances: Sequence[MinimumDistance]
) -> None:
    """Move each column towards those it is joined with, as far as its neighbours allow."""
    by_right, by_left = _group_distances(distances)
    joined: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for joint in joints:
        first, second = column[joint.upper], column[joint.lower]
        if first != second:
            joined[first].append((second, joint.weight))
            joined[second].append((first, joint.weight))
    for _ in range(_ATTRACTION_ROUNDS):
        for head, others in joined.items():
            target = sum(x[other] * weight for other, weight in others) / sum(weight for _, weight in others)
            least = max((x[a.left] + a.distance for a in by_right[head]), default=-inf)
            most = min((x[a.right] - a.distance for a in by_left[head]), default=inf)
            x[head] = max(least, min(target, most))


_GAP = 26.0
_LAYER_GAP = 26.0
_MOVING_ROUNDS = 40


@dataclass(frozen=True, slots=True)
class Band:
    """The vertical range of a layer."""

    top: float
    bottom: float

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2


def compute_x(net: Net, rows: Rows) -> list[float]:
    """The x coordinate of every slot."""
    targets = _collect_targets(net.joints)
    x = [0.0] * len(net.slots)
    for row in rows:
        _move_row(x, row, net.slots, [(0.0, 1.0)] * len(row))
    for round_number in range(_MOVING_ROUNDS):
        for row in rows if round_number % 2 == 0 else reversed(rows):
            _move_row(x, row, net.slots, [_find_target(slot, targets, x) for slot in row])
    return align_columns(net, rows, x, _GAP)


def _collect_targets(joints: Sequence[Joint]) -> dict[int, list[tuple[int, float]]]:
    joined: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for joint in joints:
        joined[joint.lower].append((joint.upper, joint.weight))
        joined[joint.upper].append((joint.lower, joint.weight))
    return joined


def _find_target(slot: int, targets: dict[int, list[tuple[int, float]]], x: list[float]) -> tuple[float, float]:
    total = sum(weight for _, weight in targets[slot])
    if not total:
        return x[slot], 0.1
    return sum(x[other] * weight for other, weight in targets[slot]) / total, total


def _move_row(x: list[float], row: list[int], slots: Sequence[Slot], targets: list[tuple[float, float]]) -> None:
    """Move the slots of a row as near to their targets as the order and the distances allow."""
    offsets = _compute_offsets(row, slots)
    blocks: list[tuple[float, float, int]] = []
    for (target, weight), offset in zip(targets, offsets, strict=True):
        blocks.append((target - offset, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            blocks.append(_pool_blocks(blocks.pop(), blocks.pop()))
    positions = [where for where, _, count in blocks for _ in range(count)]
    for slot, offset, where in zip(row, offsets, positions, strict=True):
        x[slot] = where + offset


def _pool_blocks(first: tuple[float, float, int], second: tuple[float, float, int]) -> tuple[float, float, int]:
    weight = first[1] + second[1]
    return (first[0] * first[1] + second[0] * second[1]) / weight, weight, first[2] + second[2]


def _compute_offsets(row: list[int], slots: Sequence[Slot]) -> list[float]:
    offsets = [0.0]
    for first, second in pairwise(row):
        offsets.append(offsets[-1] + slots[first].right + slots[second].left + _GAP)
    return offsets[: len(row)]


def compute_bands(net: Net, rows: Rows, x: list[float], top: float) -> list[Band]:
    """The vertical range of every layer. Wide edges increase the gap, so that no curve becomes too flat."""
    spans = _compute_spans(net, x)
    bands: list[Band] = []
    for index, row in enumerate(rows):
        height = max((net.slots[slot].full_height for slot in row), default=0.0)
        bands.append(Band(top, top + height))
        top += height + _LAYER_GAP + min(44.0, spans[index] * 0.14)
    return bands


def _compute_spans(net: Net, x: list[float]) -> dict[int, float]:
    spans: dict[int, float] = defaultdict(float)
    for joint in net.joints:
        layer = net.slots[joint.upper].layer
        spans[layer] = max(spans[layer], abs(x[joint.upper] - x[joint.lower]))
    return spans


_ORDERING_SWEEPS = 12

Rows = list[list[int]]


def order_layers(net: Net) -> Rows:
    """The slots of each layer in an order with few crossing edges."""
    above, below = _find_neighbours(net.joints)
    rows = net.layers
    best, fewest = _copy_rows(rows), _count_crossings(rows, below)
    for round_number in range(_ORDERING_SWEEPS):
        if not fewest:
            break
        downwards = round_number % 2 == 0
        _sweep(rows, above if downwards else below, downwards=downwards)
        _swap_neighbours(rows, above, below)
        crossings = _count_crossings(rows, below)
        if crossings < fewest:
            best, fewest = _copy_rows(rows), crossings
    return best


def _find_neighbours(joints: Sequence[Joint]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    above: dict[int, list[int]] = defaultdict(list)
    below: dict[int, list[int]] = defaultdict(list)
    for joint in joints:
        above[joint.lower].append(joint.upper)
        below[joint.upper].append(joint.lower)
    return above, below


def _copy_rows(rows: Rows) -> Rows:
    return [list(row) for row in rows]


def _sweep(rows: Rows, fixed: dict[int, list[int]], *, downwards: bool) -> None:
    indexes = range(1, len(rows)) if downwards else range(len(rows) - 2, -1, -1)
    for index in indexes:
        neighbour_row = rows[index - 1 if downwards else index + 1]
        position = {slot: float(at) for at, slot in enumerate(neighbour_row)}
        own = {slot: float(at) for at, slot in enumerate(rows[index])}
        rows[index].sort(key=lambda slot: _compute_mean([position[n] for n in fixed[slot]], own[slot]))


def _compute_mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _swap_neighbours(rows: Rows, above: dict[int, list[int]], below: dict[int, list[int]]) -> None:
    for index, row in enumerate(rows):
        upper = {slot: at for at, slot in enumerate(rows[index - 1])} if index else {}
        lower = {slot: at for at, slot in enumerate(rows[index + 1])} if index + 1 < len(rows) else {}
        for at in range(len(row) - 1):
            first, second = row[at], row[at + 1]
            gain = _count_pair_crossings(first, second, above, upper) + _count_pair_crossings(first, second, below, lower)
            gain -= _count_pair_crossings(second, first, above, upper) + _count_pair_crossings(second, first, below, lower)
            if gain > 0:
                row[at], row[at + 1] = second, first


def _count_pair_crossings(left: int, right: int, joined: dict[int, list[int]], position: dict[int, int]) -> int:
    """The number of edges of `left` that cross edges of `right` if `left` comes first."""
    return sum(position[a] > position[b] for a in joined[left] for b in joined[right])


def _count_crossings(rows: Rows, below: dict[int, list[int]]) -> int:
    total = 0
    for row, lower in pairwise(rows):
        position = {slot: at for at, slot in enumerate(lower)}
        ends = [position[n] for slot in row for n in sorted(below[slot], key=position.__getitem__)]
        total += sum(ends[i] > ends[j] for i in range(len(ends)) for j in range(i + 1, len(ends)))
    return total

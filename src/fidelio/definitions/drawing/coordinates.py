"""Order the slots of each layer and compute their coordinates, with few crossings and straight edges where possible.

The order comes from barycenter sweeps. Slots that an edge joins are tied into columns with the same x, the most important edges
first; so an edge that passes several layers has no small bends. The columns start as near to the middle as they fit.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise
from math import inf

from fidelio.definitions.drawing.layers import Joint, Net

_GAP = 26.0
_LAYER_GAP = 26.0
_ATTRACTION_ROUNDS = 24


@dataclass(frozen=True, slots=True)
class MinimumDistance:
    """A column is at least `distance` to the left of another."""

    left: int
    right: int
    distance: float


def compute_x(net: Net, rows: Rows) -> list[float]:
    """The x coordinate of every slot: each column moves towards those it is joined with, as far as its neighbours allow."""
    column = _assign_columns(net, rows)
    distances = _compute_distances(net, rows, column)
    x = _separate_columns(column, distances)
    joined = _join_columns(net.joints, column)
    to_the_left, to_the_right = _find_adjacent(distances)
    columns = [
        (head, others, sum([weight for _, weight in others]), [*to_the_left[head].items()], [*to_the_right[head].items()])
        for head, others in joined.items()
    ]
    for _ in range(_ATTRACTION_ROUNDS):
        for head, others, total, lefts, rights in columns:
            target = sum([x[other] * weight for other, weight in others]) / total
            least = max([x[left] + distance for left, distance in lefts], default=-inf)
            most = min([x[right] - distance for right, distance in rights], default=inf)
            x[head] = max(least, min(target, most))
    return [x[head] for head in column]


_Adjacent = dict[int, dict[int, float]]


def _find_adjacent(distances: Sequence[MinimumDistance]) -> tuple[_Adjacent, _Adjacent]:
    """For each column the columns to its left and to its right, with the greatest of the minimum distances."""
    to_the_left: _Adjacent = defaultdict(dict)
    to_the_right: _Adjacent = defaultdict(dict)
    for pair in distances:
        distance = max(pair.distance, to_the_left[pair.right].get(pair.left, 0.0))
        to_the_left[pair.right][pair.left] = to_the_right[pair.left][pair.right] = distance
    return to_the_left, to_the_right


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
        insort(ties[layer], here)
        tied_below.add(joint.upper)
        tied_above.add(joint.lower)
        column[joint.lower] = joint.upper
    # Rows are processed from top to bottom, so the slot above already knows the head of its column.
    for row in rows:
        for slot in row:
            column[slot] = column[column[slot]]
    return column


def _crosses(here: tuple[int, int], ties: Sequence[tuple[int, int]]) -> bool:
    """Whether the joint crosses or touches a tie. The ties are sorted and do not cross, so its neighbours decide."""
    at = bisect(ties, here)
    return any((here[0] - upper) * (here[1] - lower) <= 0 for upper, lower in ties[max(at - 1, 0) : at + 1])


def _compute_distances(net: Net, rows: Rows, column: list[int]) -> list[MinimumDistance]:
    pairs = [
        MinimumDistance(column[first], column[second], net.slots[first].right + net.slots[second].left + _GAP)
        for row in rows
        for first, second in pairwise(row)
    ]
    order = {head: number for number, head in enumerate(_sort_left_to_right(set(column), pairs))}
    return sorted(pairs, key=lambda pair: order[pair.left])


def _sort_left_to_right(columns: Iterable[int], pairs: Sequence[MinimumDistance]) -> Iterable[int]:
    left_of: dict[int, list[int]] = {head: [] for head in columns}
    for pair in pairs:
        left_of[pair.right].append(pair.left)
    return TopologicalSorter(left_of).static_order()


def _join_columns(joints: Sequence[Joint], column: list[int]) -> dict[int, list[tuple[int, float]]]:
    joined: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for joint in joints:
        first, second = column[joint.upper], column[joint.lower]
        if first != second:
            joined[first].append((second, joint.weight))
            joined[second].append((first, joint.weight))
    return joined


def _separate_columns(columns: Iterable[int], distances: Sequence[MinimumDistance]) -> dict[int, float]:
    """The middle between two valid solutions: everything pushed right until it fits, and everything pushed left."""
    pushed_right = dict.fromkeys(columns, 0.0)
    pushed_left = dict(pushed_right)
    for pair in distances:
        pushed_right[pair.right] = max(pushed_right[pair.right], pushed_right[pair.left] + pair.distance)
    for pair in reversed(distances):
        pushed_left[pair.left] = min(pushed_left[pair.left], pushed_left[pair.right] - pair.distance)
    return {head: (pushed_right[head] + pushed_left[head]) / 2 for head in pushed_right}


@dataclass(frozen=True, slots=True)
class Band:
    """The vertical range of a layer."""

    top: float
    bottom: float

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2


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


def _count_crossings(rows: Rows, below: dict[int, list[int]]) -> int:
    total = 0
    for row, lower in pairwise(rows):
        position = {slot: at for at, slot in enumerate(lower)}
        ends = [position[n] for slot in row for n in sorted(below[slot], key=position.__getitem__)]
        total += _count_inversions(ends)
    return total


def _count_inversions(numbers: Iterable[int]) -> int:
    """The number of pairs in the wrong order. A layer may have thousands of edges, too many to compare all pairs."""
    total, before = 0, list[int]()
    for number in numbers:
        at = bisect(before, number)
        total += len(before) - at
        before.insert(at, number)
    return total

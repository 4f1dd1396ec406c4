"""Order the slots within each layer so that few edges cross.

Each slot moves to the mean position of its neighbours in the layer above, then below, several times; adjacent slots are swapped
if that removes crossings. The best order is used. The algorithm is deterministic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from fidelio.definitions.drawing.slots import Joint, Net

_ROUNDS = 12

Rows = list[list[int]]


def order_layers(net: Net) -> Rows:
    above, below = _neighbours(net.joints)
    rows = net.layers
    best, fewest = _copy(rows), _crossings(rows, below)
    for round_number in range(_ROUNDS):
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

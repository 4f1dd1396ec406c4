"""Where each place stands on the paper.

Down the page the layers are stacked with room for the curves between them. Across, every place wants to stand below and above
what it is joined with; a layer gives each of its places the nearest position to that wish that keeps all of them apart. That is
a least-squares problem with an exact answer per layer (pooling neighbours that collide), repeated until the picture is calm.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fidelio.definitions.drawing.aligning import aligned
from fidelio.definitions.drawing.ordering import Rows
from fidelio.definitions.drawing.slots import Joint, Net, Slot

_GAP = 26.0
_ROOM_BETWEEN = 26.0
_ROUNDS = 40


@dataclass(frozen=True, slots=True)
class Band:
    """The strip of the paper that a layer takes."""

    top: float
    bottom: float

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2


def across(net: Net, rows: Rows) -> list[float]:
    """The x of every place."""
    wishes = _wishes(net.joints)
    x = [0.0] * len(net.slots)
    for row in rows:
        _put(x, row, net.slots, [(0.0, 1.0)] * len(row))
    for round_number in range(_ROUNDS):
        for row in rows if round_number % 2 == 0 else reversed(rows):
            _put(x, row, net.slots, [_wish(slot, wishes, x) for slot in row])
    return aligned(net, rows, x, _GAP)


def _wishes(joints: Sequence[Joint]) -> dict[int, list[tuple[int, float]]]:
    joined: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for joint in joints:
        joined[joint.lower].append((joint.upper, joint.weight))
        joined[joint.upper].append((joint.lower, joint.weight))
    return joined


def _wish(slot: int, wishes: dict[int, list[tuple[int, float]]], x: list[float]) -> tuple[float, float]:
    total = sum(weight for _, weight in wishes[slot])
    if not total:
        return x[slot], 0.1
    return sum(x[other] * weight for other, weight in wishes[slot]) / total, total


def _put(x: list[float], row: list[int], slots: Sequence[Slot], wishes: list[tuple[float, float]]) -> None:
    """Moves one layer as near to its wishes as the order and the distances allow."""
    offsets = _offsets(row, slots)
    blocks: list[tuple[float, float, int]] = []
    for (wish, weight), offset in zip(wishes, offsets, strict=True):
        blocks.append((wish - offset, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            blocks.append(_pooled(blocks.pop(), blocks.pop()))
    settled = [where for where, _, count in blocks for _ in range(count)]
    for slot, offset, where in zip(row, offsets, settled, strict=True):
        x[slot] = where + offset


def _pooled(one: tuple[float, float, int], two: tuple[float, float, int]) -> tuple[float, float, int]:
    weight = one[1] + two[1]
    return (one[0] * one[1] + two[0] * two[1]) / weight, weight, one[2] + two[2]


def _offsets(row: list[int], slots: Sequence[Slot]) -> list[float]:
    offsets = [0.0]
    for one, two in pairwise(row):
        offsets.append(offsets[-1] + slots[one].right + slots[two].left + _GAP)
    return offsets[: len(row)]


def down(net: Net, rows: Rows, x: list[float], top: float) -> list[Band]:
    """The strip of every layer. Where edges run far across there is more room, so that no curve gets flat."""
    reach = _reach(net, x)
    bands: list[Band] = []
    for index, row in enumerate(rows):
        height = max((net.slots[slot].room for slot in row), default=0.0)
        bands.append(Band(top, top + height))
        top += height + _ROOM_BETWEEN + min(44.0, reach[index] * 0.14)
    return bands


def _reach(net: Net, x: list[float]) -> dict[int, float]:
    reach: dict[int, float] = defaultdict(float)
    for joint in net.joints:
        layer = net.slots[joint.upper].layer
        reach[layer] = max(reach[layer], abs(x[joint.upper] - x[joint.lower]))
    return reach

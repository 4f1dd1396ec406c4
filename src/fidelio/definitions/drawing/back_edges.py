"""Route the edges that lead back, at the right side of the picture.

Such an edge leaves its node sideways, rises in its own lane and enters its target from the side. If another node is in between,
it runs through the gap below or above the layer.

Shorter edges get the inner lanes. Heights and ports are assigned in an order in which nested edges do not cross.
"""

from __future__ import annotations

from bisect import bisect, bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from fidelio.definitions.drawing.coordinates import Band
from fidelio.definitions.drawing.geometry import Box, Label, Line, Point, Rect, rounded_path
from fidelio.definitions.drawing.graph import Edge
from fidelio.definitions.drawing.layers import measure_label, wrap_label

_CLEAR = 20.0
_SLIP, _SLIP_STEP, _MAX_SLIP = 8.0, 5.0, 20.0
_PORT, _PORT_STEP = 14.0, 9.0
_TIP = 1.5
_LABEL_HEIGHTS = (0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74, 0.18, 0.82)


@dataclass(slots=True)
class BackEdgeRouter:
    """Assigns a lane to each edge. `taken` contains the occupied areas, including every lane assigned so far."""

    boxes: dict[str, Box]
    bands: dict[str, Band]
    taken: list[Rect]
    _out: dict[Edge, list[Point]] = field(default_factory=dict)
    _in: dict[Edge, list[Point]] = field(default_factory=dict)
    # The occupied areas as (-right, top, bottom), the rightmost first: the first that overlaps decides, of thousands.
    _by_right: list[tuple[float, float, float]] = field(default_factory=list)
    _heights: list[float] = field(default_factory=list)

    def route_edges(self, edges: Sequence[Edge]) -> list[Line]:
        inner_first = sorted(edges, key=self._measure_span)
        outgoing, incoming = defaultdict[str, list[Edge]](list), defaultdict[str, list[Edge]](list)
        for edge in inner_first:
            outgoing[edge.source].append(edge)
            incoming[edge.target].append(edge)
        for name in outgoing.keys() | incoming.keys():
            self._assign_ports(name, outgoing[name], incoming[name])
        self._heights = sorted(
            [*(points[-1][1] for points in self._out.values()), *(points[0][1] for points in self._in.values())]
        )
        self._by_right = sorted((-rect.right, rect.top, rect.bottom) for rect in self.taken)
        return [self._route_edge(edge) for edge in inner_first]

    def _measure_span(self, edge: Edge) -> float:
        return self.boxes[edge.source].rect.top - self.boxes[edge.target].rect.top

    def _assign_ports(self, name: str, outgoing: Sequence[Edge], incoming: Sequence[Edge]) -> None:
        """Determine where each line leaves or enters a box."""
        rect = self.boxes[name].rect
        if not self._is_free_to_the_right(rect):
            self._out.update({edge: self._route_below(name, depth) for depth, edge in enumerate(outgoing)})
            self._in.update({edge: self._route_above(name, depth) for depth, edge in enumerate(incoming)})
            return
        step = (rect.bottom - rect.top) / (len(outgoing) + len(incoming) + 1)
        for at, edge in enumerate(outgoing, start=1):
            self._out[edge] = [(rect.right, rect.top + step * at)]
        for at, edge in enumerate(incoming, start=1):
            self._in[edge] = [(rect.right + _TIP, rect.bottom - step * at)]

    def _is_free_to_the_right(self, rect: Rect) -> bool:
        others = (box.rect for box in self.boxes.values())
        return not any(other.left > rect.right and other.overlaps(rect.top, rect.bottom) for other in others)

    def _route_below(self, name: str, depth: int) -> list[Point]:
        rect = self.boxes[name].rect
        x, y = rect.right - _compute_port_offset(depth, rect), self.bands[name].bottom + _compute_slip_offset(depth)
        return [(x, rect.bottom), (x, y)]

    def _route_above(self, name: str, depth: int) -> list[Point]:
        rect = self.boxes[name].rect
        x, y = rect.right - _compute_port_offset(depth, rect), self.bands[name].top - _compute_slip_offset(depth)
        return [(x, y), (x, rect.top - _TIP)]

    def _route_edge(self, edge: Edge) -> Line:
        out, back = self._out[edge], self._in[edge]
        x, label = self._choose_lane(edge, back[0][1], out[-1][1])
        points = [*out, (x, out[-1][1]), (x, back[0][1]), *back]
        return Line(edge, rounded_path(points), label, leads_back=True)

    def _choose_lane(self, edge: Edge, top: float, bottom: float) -> tuple[float, Label | None]:
        lines = wrap_label(edge)
        width, height = measure_label(lines)
        clear = self._find_clear_x(top, bottom)
        # The label can be anywhere along the lane: best where no other line crosses it and the lane stays near the flow.
        heights = [top + (bottom - top) * part for part in _LABEL_HEIGHTS]
        candidates = [(max(clear, self._find_labelled_lane(y, width, height)), y) for y in heights]
        x, y = min(candidates, key=lambda point: (self._count_crossings(edge, point[1], height), round(point[0])))
        self._occupy(Rect(x, top, x, bottom))
        if not lines:
            return x, None
        rect = Rect(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        self._occupy(rect)
        return x, Label(lines, rect)

    def _occupy(self, rect: Rect) -> None:
        self.taken.append(rect)
        insort(self._by_right, (-rect.right, rect.top, rect.bottom))

    def _count_crossings(self, edge: Edge, y: float, height: float) -> int:
        """The number of other lines that cross the lane at this height."""
        margin = height / 2 + 2
        own = (self._out[edge][-1][1], self._in[edge][0][1])
        near = self._heights[bisect(self._heights, y - margin) : bisect_left(self._heights, y + margin)]
        return len(near) - sum(y - margin < other < y + margin for other in own)

    def _find_labelled_lane(self, y: float, width: float, height: float) -> float:
        return self._find_clear_x(y - height / 2 - 4, y + height / 2 + 4) + (width / 2 - 8 if width else 0)

    def _find_clear_x(self, top: float, bottom: float) -> float:
        overlapping = (-right for right, start, end in self._by_right if start < bottom + 1 and top - 1 < end)
        return next(overlapping, -inf) + _CLEAR


def _compute_slip_offset(depth: int) -> float:
    return min(_SLIP + _SLIP_STEP * depth, _MAX_SLIP)


def _compute_port_offset(depth: int, rect: Rect) -> float:
    return min(_PORT + _PORT_STEP * depth, (rect.right - rect.left) / 2 - _PORT)

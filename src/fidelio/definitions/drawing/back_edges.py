"""Route the edges that lead back, at the right side of the picture.

Edges of a kind that lead back to the same node are a bundle: each leaves its node sideways, joins the lane of the bundle, and
they enter their target together. A label is on the part that belongs to its edge alone. An edge whose label finds no free place
there has a lane of its own with the label on it. If another node is at the right of a node, its edges run through the gap below
or above the layer.

Shorter bundles get the inner lanes. Heights and ports are assigned in an order in which nested edges do not cross.
"""

from __future__ import annotations

from bisect import bisect, bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf

from fidelio.definitions.drawing.coordinates import Band
from fidelio.definitions.drawing.geometry import Box, Label, Line, Point, Rect, rounded_path
from fidelio.definitions.drawing.graph import Edge, Link
from fidelio.definitions.drawing.layers import measure_label, wrap_label

_CLEAR = 20.0
_LABEL_GAP = 12.0
_BRANCH_LIMIT = 190.0
_SLIP, _SLIP_STEP, _MAX_SLIP = 8.0, 5.0, 20.0
_PORT, _PORT_STEP = 14.0, 9.0
_TIP = 1.5
_LABEL_HEIGHTS = (0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74, 0.18, 0.82)
_MOST_COMPARED = 500

Bundle = list[Edge]


@dataclass(slots=True)
class BackEdgeRouter:
    """Assigns a lane to each bundle. `taken` contains the occupied areas, including every lane assigned so far."""

    boxes: dict[str, Box]
    bands: dict[str, Band]
    taken: list[Rect]
    _out: dict[Edge, list[Point]] = field(default_factory=dict)
    _in: dict[Edge, list[Point]] = field(default_factory=dict)
    # The occupied areas as (-right, top, bottom, left), the rightmost first: the first that overlaps decides, of thousands.
    _by_right: list[tuple[float, float, float, float]] = field(default_factory=list)
    _heights: list[float] = field(default_factory=list)

    def route_edges(self, edges: Sequence[Edge]) -> list[Line]:
        bundles = self._bundle_edges(edges)
        outgoing, incoming = defaultdict[str, list[Edge]](list), defaultdict[str, list[Bundle]](list)
        for bundle in bundles:
            incoming[bundle[0].target].append(bundle)
            for edge in bundle:
                outgoing[edge.source].append(edge)
        for name in outgoing.keys() | incoming.keys():
            self._assign_ports(name, outgoing[name], incoming[name])
        heights_in = (self._in[bundle[0]][0][1] for bundle in bundles)
        self._heights = sorted([*(points[-1][1] for points in self._out.values()), *heights_in])
        self._by_right = sorted((-rect.right, rect.top, rect.bottom, rect.left) for rect in self.taken)
        return [line for bundle in bundles for line in self._route_bundle(bundle)]

    def _bundle_edges(self, edges: Sequence[Edge]) -> list[Bundle]:
        """Group the edges of a kind to the same node; the shortest bundle is first."""
        bundles = defaultdict[tuple[str, Link], Bundle](list)
        for edge in sorted(edges, key=self._measure_span):
            bundles[edge.target, edge.link].append(edge)
        return sorted(bundles.values(), key=lambda bundle: self._measure_span(bundle[-1]))

    def _measure_span(self, edge: Edge) -> float:
        return self.boxes[edge.source].rect.top - self.boxes[edge.target].rect.top

    def _assign_ports(self, name: str, outgoing: Sequence[Edge], incoming: Sequence[Bundle]) -> None:
        """Determine where each line leaves or enters a box. A bundle has a single inlet."""
        rect = self.boxes[name].rect
        if self._is_free_to_the_right(rect):
            step = (rect.bottom - rect.top) / (len(outgoing) + len(incoming) + 1)
            outlets = [[(rect.right, rect.top + step * at)] for at in range(1, len(outgoing) + 1)]
            inlets = [[(rect.right + _TIP, rect.bottom - step * at)] for at in range(1, len(incoming) + 1)]
        else:
            outlets = [self._route_below(name, depth) for depth in range(len(outgoing))]
            inlets = [self._route_above(name, depth) for depth in range(len(incoming))]
        self._out.update(zip(outgoing, outlets, strict=True))
        self._in.update({edge: inlet for bundle, inlet in zip(incoming, inlets, strict=True) for edge in bundle})

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

    def _route_bundle(self, bundle: Bundle) -> Iterator[Line]:
        labels = {edge: label for edge in bundle if (label := self._label_branch(edge))}
        joined = [edge for edge in bundle if edge in labels or not edge.label]
        if joined:
            x = self._choose_shared_lane(joined, [label.rect.right for label in labels.values()])
            yield from (self._draw_edge(edge, x, labels.get(edge)) for edge in joined)
        for edge in bundle:
            if edge not in joined:
                yield self._draw_edge(edge, *self._choose_own_lane(edge))

    def _draw_edge(self, edge: Edge, x: float, label: Label | None) -> Line:
        out, back = self._out[edge], self._in[edge]
        points = [*out, (x, out[-1][1]), (x, back[0][1]), *back]
        return Line(edge, rounded_path(points), label, leads_back=True)

    def _label_branch(self, edge: Edge) -> Label | None:
        """The label on the line that leaves the node, in the first gap that is wide enough; None if a line would cross it."""
        lines = wrap_label(edge, _BRANCH_LIMIT)
        width, height = measure_label(lines)
        start, y = self._out[edge][-1]
        if not lines or self._count_crossings(y, height, (y,)):
            return None
        left = self._find_gap(start, y, width, height)
        rect = Rect(left, y - height / 2, left + width, y + height / 2)
        self._occupy(rect)
        return Label(lines, rect)

    def _find_gap(self, start: float, y: float, width: float, height: float) -> float:
        top, bottom = y - height / 2 - 4, y + height / 2 + 4
        right_of_start = [*islice(self._iter_overlapping(top, bottom, start), _MOST_COMPARED)]
        if len(right_of_start) == _MOST_COMPARED:
            return self._find_clear_x(top, bottom)
        left = start + _LABEL_GAP
        for other_left, other_right in sorted(right_of_start):
            if other_left >= left + width + _LABEL_GAP:
                break
            left = max(left, other_right + _LABEL_GAP)
        return left

    def _choose_shared_lane(self, edges: Sequence[Edge], label_ends: Sequence[float]) -> float:
        top, bottom = self._in[edges[0]][0][1], max(self._out[edge][-1][1] for edge in edges)
        x = max(self._find_clear_x(top, bottom), *(end + _LABEL_GAP for end in label_ends), -inf)
        self._occupy(Rect(x, top, x, bottom))
        return x

    def _choose_own_lane(self, edge: Edge) -> tuple[float, Label]:
        top, bottom = self._in[edge][0][1], self._out[edge][-1][1]
        lines = wrap_label(edge)
        width, height = measure_label(lines)
        clear = self._find_clear_x(top, bottom)
        # The label can be anywhere along the lane: best where no other line crosses it and the lane stays near the flow.
        heights = [top + (bottom - top) * part for part in _LABEL_HEIGHTS]
        candidates = [(max(clear, self._find_labelled_lane(y, width, height)), y) for y in heights]
        own = (top, bottom)
        x, y = min(candidates, key=lambda point: (self._count_crossings(point[1], height, own), round(point[0])))
        self._occupy(Rect(x, top, x, bottom))
        rect = Rect(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        self._occupy(rect)
        return x, Label(lines, rect)

    def _occupy(self, rect: Rect) -> None:
        self.taken.append(rect)
        insort(self._by_right, (-rect.right, rect.top, rect.bottom, rect.left))

    def _count_crossings(self, y: float, height: float, own: Sequence[float]) -> int:
        """The number of other lines that would cross a label at this height."""
        margin = height / 2 + 2
        near = self._heights[bisect(self._heights, y - margin) : bisect_left(self._heights, y + margin)]
        return len(near) - sum(y - margin < other < y + margin for other in own)

    def _find_labelled_lane(self, y: float, width: float, height: float) -> float:
        return self._find_clear_x(y - height / 2 - 4, y + height / 2 + 4) + width / 2 - 8

    def _find_clear_x(self, top: float, bottom: float) -> float:
        overlapping = (-right for right, start, end, _ in self._by_right if start < bottom + 1 and top - 1 < end)
        return next(overlapping, -inf) + _CLEAR

    def _iter_overlapping(self, top: float, bottom: float, beyond: float) -> Iterator[tuple[float, float]]:
        """The left and right borders of the occupied areas in this range of heights that end to the right of `beyond`."""
        for right, start, end, left in self._by_right:
            if -right <= beyond + 0.1:
                return
            if start < bottom and top < end:
                yield left, -right


def _compute_slip_offset(depth: int) -> float:
    return min(_SLIP + _SLIP_STEP * depth, _MAX_SLIP)


def _compute_port_offset(depth: int, rect: Rect) -> float:
    return min(_PORT + _PORT_STEP * depth, (rect.right - rect.left) / 2 - _PORT)

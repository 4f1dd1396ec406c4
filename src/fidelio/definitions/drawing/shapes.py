"""Geometry of a picture: boxes, lines and labels with coordinates, and SVG paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fidelio.definitions.drawing.graph import Edge, Node

Point = tuple[float, float]
_CORNER = 9.0


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle by its borders."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def middle(self) -> Point:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2

    def meets(self, top: float, bottom: float) -> bool:
        return self.top < bottom and top < self.bottom

    def moved(self, across: float) -> Rect:
        return Rect(self.left + across, self.top, self.right + across, self.bottom)


@dataclass(frozen=True, slots=True)
class Box:
    """A node with its place."""

    node: Node
    rect: Rect
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Label:
    """A text on a line, with the rectangle that it keeps free of the line."""

    lines: tuple[str, ...]
    rect: Rect


@dataclass(frozen=True, slots=True)
class Line:
    """An edge with its path, as SVG path data, and its label if it has one."""

    edge: Edge
    path: str
    label: Label | None = None
    leads_back: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything that is drawn, and the rectangle that holds it."""

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    bounds: Rect


def fmt(value: float) -> str:
    """As few characters as the eye needs: one decimal, and none for whole numbers."""
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")


def curve_path(points: Sequence[Point]) -> str:
    """A line that leaves and reaches every point vertically, so that it is smooth and stays between the layers."""
    path = f"M{fmt(points[0][0])} {fmt(points[0][1])}"
    for (x0, y0), (x1, y1) in pairwise(points):
        half = fmt((y0 + y1) / 2)
        if abs(x0 - x1) >= 0.5:
            path += f"C{fmt(x0)} {half} {fmt(x1)} {half} {fmt(x1)} {fmt(y1)}"
        elif y1 > y0:
            path += f"V{fmt(y1)}"
    return path


def rounded_path(points: Sequence[Point]) -> str:
    """Straight pieces with rounded corners."""
    path = f"M{fmt(points[0][0])} {fmt(points[0][1])}"
    for before, here, after in zip(points, points[1:], points[2:], strict=False):
        start, end = _towards(here, before), _towards(here, after)
        path += f"L{fmt(start[0])} {fmt(start[1])}"
        path += f"Q{fmt(here[0])} {fmt(here[1])} {fmt(end[0])} {fmt(end[1])}"
    return path + f"L{fmt(points[-1][0])} {fmt(points[-1][1])}"


def _towards(corner: Point, other: Point) -> Point:
    length = abs(other[0] - corner[0]) + abs(other[1] - corner[1])
    part = min(_CORNER, length / 2) / length if length else 0.0
    return corner[0] + (other[0] - corner[0]) * part, corner[1] + (other[1] - corner[1]) * part

"""Geometry of a picture: boxes, lines and labels with coordinates, SVG paths, and the width and wrapping of text."""

from __future__ import annotations

import unicodedata
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

    def overlaps(self, top: float, bottom: float) -> bool:
        return self.top < bottom and top < self.bottom


@dataclass(frozen=True, slots=True)
class Box:
    """A node with its position and the lines of its title."""

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
    """An edge with its path, as SVG path data, and its label, if any."""

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
    """Format a coordinate with at most a single decimal, which is precise enough for a picture."""
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")


def curve_path(points: Sequence[Point]) -> str:
    """Path data of a curve that is vertical at every point, so that it is smooth and stays between the layers."""
    path = f"M{fmt(points[0][0])} {fmt(points[0][1])}"
    for (x0, y0), (x1, y1) in pairwise(points):
        half = fmt((y0 + y1) / 2)
        if abs(x0 - x1) >= 0.5:
            path += f"C{fmt(x0)} {half} {fmt(x1)} {half} {fmt(x1)} {fmt(y1)}"
        elif y1 > y0:
            path += f"V{fmt(y1)}"
    return path


def rounded_path(points: Sequence[Point]) -> str:
    """Path data of straight segments with rounded corners."""
    path = f"M{fmt(points[0][0])} {fmt(points[0][1])}"
    for before, here, after in zip(points, points[1:], points[2:], strict=False):
        start, end = _move_towards(here, before), _move_towards(here, after)
        path += f"L{fmt(start[0])} {fmt(start[1])}"
        path += f"Q{fmt(here[0])} {fmt(here[1])} {fmt(end[0])} {fmt(end[1])}"
    return path + f"L{fmt(points[-1][0])} {fmt(points[-1][1])}"


def _move_towards(corner: Point, other: Point) -> Point:
    length = abs(other[0] - corner[0]) + abs(other[1] - corner[1])
    part = min(_CORNER, length / 2) / length if length else 0.0
    return corner[0] + (other[0] - corner[0]) * part, corner[1] + (other[1] - corner[1]) * part


# For the widest of the usual fonts, DejaVu Sans, which plain Linux has: in all others the text takes less room.
_WIDTHS = {
    **dict.fromkeys("iIjlJ.,:;'|/\\ ", 0.33),
    **dict.fromkeys('ft()[]-"!r·`*', 0.44),
    **dict.fromkeys("=+<>~^#ABCDGHKNOPQRSTUVXYZ&w", 0.79),
    **dict.fromkeys("mMW@%…", 1.0),
}
_ELLIPSIS = "…"
# Characters after which an identifier is split.
_JOINTS = "_-./"


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """The width of a line of text that the usual fonts do not exceed, in the unit of `size`."""
    width = sum(_measure_character(character) for character in text)
    return width * size * (1.13 if bold else 1.0)


def _measure_character(character: str) -> float:
    if width := _WIDTHS.get(character):
        return width
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    if unicodedata.combining(character):
        return 0.0
    return 0.75 if character.isupper() else 0.62


def wrap(text: str, limit: float, size: float, *, lines: int = 4, bold: bool = False) -> tuple[str, ...]:
    """Break a text into at most `lines` lines no wider than `limit`; a text that does not fit ends in an ellipsis.

    The lines have about the same length, because a last line with a single short word looks like a mistake.
    """
    done = _fill_lines(text, limit, size, bold=bold)
    if len(done) > lines:
        return (*done[: lines - 1], shorten(" ".join(done[lines - 1 :]), limit, size, bold=bold))
    return tuple(_balance_lines(done, text, limit, size, bold=bold))


def _balance_lines(done: list[str], text: str, limit: float, size: float, *, bold: bool) -> list[str]:
    longest_word = max((text_width(word, size, bold=bold) for word in text.split()), default=0.0)
    narrower = limit - size / 2
    while len(done) > 1 and narrower >= longest_word:
        tighter = _fill_lines(text, narrower, size, bold=bold)
        if len(tighter) > len(done):
            break
        done, narrower = tighter, narrower - size / 2
    return done


def _fill_lines(text: str, limit: float, size: float, *, bold: bool) -> list[str]:
    done: list[str] = []
    for word in (piece for whole in text.split() for piece in _break_word(whole, limit, size, bold=bold)):
        joined = f"{done[-1]} {word}" if done else word
        if done and text_width(joined, size, bold=bold) <= limit:
            done[-1] = joined
        else:
            done.append(word)
    return done


def _break_word(word: str, limit: float, size: float, *, bold: bool) -> list[str]:
    """Split a word that is wider than a line, such as a long identifier, so that it does not exceed its box.

    It is split at a joint of the word if there is one, so that `needs_further_discussion` does not leave a single letter.
    """
    pieces = [""]
    for character in word:
        if pieces[-1] and text_width(pieces[-1] + character, size, bold=bold) > limit:
            whole = max(pieces[-1].rfind(joint) for joint in _JOINTS) + 1 or len(pieces[-1])
            pieces[-1:] = [pieces[-1][:whole], pieces[-1][whole:]]
        pieces[-1] += character
    return pieces


def shorten(text: str, limit: float, size: float, *, bold: bool = False) -> str:
    """The text if it fits, else as much of its beginning as fits, with an ellipsis."""
    if text_width(text, size, bold=bold) <= limit:
        return text
    beginning = text
    while beginning and text_width(beginning + _ELLIPSIS, size, bold=bold) > limit:
        beginning = beginning[:-1]
    return beginning.rstrip() + _ELLIPSIS

"""Positions in a text, and the size limits of definition files."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from fidelio.definitions.findings import Finding, error
from fidelio.errors import UnreadableDefinition

# The largest real definition has 21 kB and eight levels. A file beyond these limits is a mistake or an attack.
MAX_BYTES = 2_000_000
MAX_DEPTH = 64
MAX_NODES = 200_000

Path = tuple[str | int, ...]


class Position(NamedTuple):
    """Line and column, counted from 1 as in editors."""

    line: int
    column: int


Positions = dict[Path, Position]


class LineIndex:
    """Converts an offset in a text to line and column."""

    def __init__(self, text: str) -> None:
        self._starts = [0]
        self._starts.extend(index + 1 for index, character in enumerate(text) if character == "\n")

    def position(self, offset: int) -> Position:
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)


def make_error(name: str, rule: str, sentence: str, remedy: str = "", *, at: tuple[int, int] = (0, 0)) -> UnreadableDefinition:
    finding: Finding = error(name, rule, sentence, remedy, at=at)
    return UnreadableDefinition([finding])


def make_depth_error(name: str, at: tuple[int, int] = (0, 0)) -> UnreadableDefinition:
    return make_error(name, "too-large", f"The nesting is deeper than {MAX_DEPTH} levels.", "Flatten the structure.", at=at)


def depth_exceeds(data: object, limit: int = MAX_DEPTH) -> bool:
    level = [data]
    for _ in range(limit + 1):
        level = [child for value in level for child in _children(value)]
        if not level:
            return False
    return True


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []

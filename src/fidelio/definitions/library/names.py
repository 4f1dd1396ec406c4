"""What the name of a file says: `{NN}-{id}.{suffix}`, with any number of digits, or none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fidelio.definitions.library.ids import safe_id
from fidelio.definitions.reading.document import Format, format_of

STRUCTURED: frozenset[Format] = frozenset({"toon", "yaml", "json"})
MARKDOWN: frozenset[Format] = frozenset({"markdown"})

_NUMBERED = re.compile(r"(\d+)-(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PartName:
    """The name of a file, taken apart. `index` keeps its zeros, because artifacts are named after it."""

    file: str
    index: str
    id: str
    format: Format

    @property
    def stem(self) -> str:
        return self.file.rpartition(".")[0]

    def answers_to(self, name: str) -> bool:
        return name in (self.id, self.stem, self.file)

    def has_index(self, index: str) -> bool:
        return bool(self.index) and index.isdecimal() and index.isascii() and int(self.index) == int(index)


def part_name(file: str) -> PartName | None:
    """None for what is no part of a workflow: READMEs, hidden files, other formats."""
    kind = format_of(file)
    stem = file.rpartition(".")[0]
    if kind is None or file.startswith(".") or stem.upper() == "README":
        return None
    numbered = _NUMBERED.fullmatch(stem)
    index, name = numbered.groups() if numbered and numbered.group(1).isascii() else ("", stem)
    return PartName(file, index, name, kind)


def in_order(files: Iterable[str], formats: frozenset[Format]) -> tuple[PartName, ...]:
    """By number as a number, so that 9 comes before 10; then those without one, by name."""
    return tuple(sorted((name for name in _named(files, formats) if safe_id(name.stem)), key=_rank))


def unusable(files: Iterable[str], formats: frozenset[Format]) -> tuple[str, ...]:
    """The files that would be parts if they had a name that somebody can ask for."""
    return tuple(name.file for name in _named(files, formats) if not safe_id(name.stem))


def _named(files: Iterable[str], formats: frozenset[Format]) -> Iterator[PartName]:
    return (name for file in files if (name := part_name(file)) is not None and name.format in formats)


def _rank(name: PartName) -> tuple[bool, int, bool, str]:
    # Where two files share a number, data comes before Markdown: that is what older servers served.
    return not name.index, int(name.index or 0), name.format == "markdown", name.file

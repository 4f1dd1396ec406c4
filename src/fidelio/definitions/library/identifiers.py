"""Ids from outside, made safe before they are used for anything.

An id is only ever compared with names that were found by listing a directory; it never becomes a part of a path. This check
comes first all the same: whoever sends `../../etc/passwd` should be told so, and not that no such workflow was found.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fidelio.definitions.reading.document import Format, format_of
from fidelio.errors import BadId

_LONGEST = 200
_UNSAFE = re.compile(r'[/\\:*?"<>|\x00-\x1f\x7f]')


def checked_id(text: str, what: str = "a workflow") -> str:
    """The id in its normal form, or `BadId`."""
    name = unicodedata.normalize("NFC", text.strip())
    if not name or len(name) > _LONGEST:
        raise BadId(
            f"The id of {what} has 1 to {_LONGEST} characters.",
            remedy="`fidelio list` or the tool list_workflows shows the ids.",
        )
    if name.startswith(".") or _UNSAFE.search(name) or not name.isprintable():
        raise BadId(
            f"{text[:_LONGEST]!r} is no id of {what}.",
            remedy="An id is a plain name, without separators, leading dots and control characters.",
        )
    return name


def safe_id(text: str) -> str | None:
    """What a name on disk is asked for by, or None when nobody can ask for it."""
    try:
        return checked_id(text) if text.isprintable() else None
    except BadId:
        return None


def escaped(name: str) -> str:
    """A name from a directory as text that can be printed anywhere, whatever bytes it is made of."""
    return "".join(sign if sign.isprintable() else _escape(sign) for sign in name)


def _escape(sign: str) -> str:
    # Python stands surrogates in for bytes that are no UTF-8; a person is better served with the byte.
    byte = ord(sign) - 0xDC00
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else sign.encode("unicode_escape").decode()


def split_reference(reference: str, folder: str) -> tuple[str | None, str]:
    """`name`, `workflow/name` or `workflow/folder/name`; `folder/name` stays in the same workflow."""
    parts = [checked_id(part, "a part of a workflow") for part in reference.strip().split("/")]
    if len(parts) > 1 and parts[-2] == folder:
        del parts[-2]
    if len(parts) > 2:
        raise BadId(f"{reference[:_LONGEST]!r} has too many parts.", remedy="Write `name` or `workflow/name`.")
    return (parts[0] if len(parts) == 2 else None), parts[-1]


def inner_folder(text: str) -> str:
    """A directory below another one, given as text; `BadId` when it could be anywhere else."""
    return "/".join(checked_id(step, "a directory") for step in text.strip().removeprefix("./").rstrip("/").split("/"))


def near(name: str, known: Iterable[str]) -> str:
    """A hint with the names that were probably meant, or an empty text."""
    from difflib import get_close_matches  # noqa: PLC0415  needed only after a mistake

    spelt = {candidate.casefold(): candidate for candidate in known}
    found = [spelt[match] for match in get_close_matches(name.casefold(), spelt, n=3)]
    return f"Did you mean {' or '.join(found)}?" if found else ""


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

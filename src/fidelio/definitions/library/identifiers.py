"""Validate ids that come from outside, and parse the file names of components.

An id is only ever compared with names that were found by listing a directory; it never becomes a part of a path. This check
comes first all the same: `../../etc/passwd` is reported as an invalid id, and not as an unknown workflow.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

import msgspec

from fidelio.definitions.reading.document import Format, detect_format
from fidelio.errors import BadId, Command, Hint

_MAX_LENGTH = 200
_UNSAFE = re.compile(r'[/\\:*?"<>|\x00-\x1f\x7f]')


def check_id(text: str, what: str = "a workflow") -> str:
    """The normalized id, or `BadId`."""
    name = unicodedata.normalize("NFC", text.strip())
    if not name or len(name) > _MAX_LENGTH:
        raise BadId(
            f"The id of {what} must have 1 to {_MAX_LENGTH} characters.",
            remedy=Hint(Command("list"), " or the tool list_workflows shows the ids."),
        )
    if name.startswith(".") or _UNSAFE.search(name) or not name.isprintable():
        raise BadId(
            f"{text[:_MAX_LENGTH]!r} is not a valid id of {what}.",
            remedy="An id is a plain name, without separators, leading dots and control characters.",
        )
    return name


def normalize_id(text: str) -> str | None:
    """The id of a name on disk, or None if the name is not a valid id."""
    try:
        return check_id(text) if text.isprintable() else None
    except BadId:
        return None


def escape_name(name: str) -> str:
    """A file name with all unprintable characters and invalid bytes escaped."""
    return "".join(character if character.isprintable() else _escape(character) for character in name)


def _escape(character: str) -> str:
    # Python decodes invalid UTF-8 bytes as surrogates; show the byte.
    byte = ord(character) - 0xDC00
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else character.encode("unicode_escape").decode()


def split_reference(reference: str, folder: str) -> tuple[str | None, str]:
    """`name`, `workflow/name` or `workflow/folder/name`; `folder/name` stays in the same workflow."""
    segments = [check_id(part, "a part of a workflow") for part in reference.strip().split("/")]
    if len(segments) > 1 and segments[-2] == folder:
        del segments[-2]
    if len(segments) > 2:
        raise BadId(f"{reference[:_MAX_LENGTH]!r} has too many parts.", remedy="Write `name` or `workflow/name`.")
    return (segments[0] if len(segments) == 2 else None), segments[-1]


def check_inner_folder(text: str) -> str:
    """A path below another directory; `BadId` if it could lead elsewhere."""
    return "/".join(check_id(step, "a directory") for step in text.strip().removeprefix("./").rstrip("/").split("/"))


def suggest_names(name: str, candidates: Iterable[str]) -> str:
    """A hint with similar names, or an empty text."""
    from difflib import get_close_matches  # noqa: PLC0415  # needed only after a mistake

    spellings = {candidate.casefold(): candidate for candidate in candidates}
    found = [spellings[match] for match in get_close_matches(name.casefold(), spellings, n=3)]
    return f"Did you mean {' or '.join(found)}?" if found else ""


STRUCTURED: frozenset[Format] = frozenset({"toon", "yaml", "json"})
MARKDOWN: frozenset[Format] = frozenset({"markdown"})

_NUMBERED = re.compile(r"(\d+)-(.+)", re.DOTALL)


class ComponentName(msgspec.Struct, frozen=True):
    """A parsed file name. `index` keeps its leading zeros, because artifacts are named after it."""

    file: str
    index: str
    id: str
    format: Format

    @property
    def stem(self) -> str:
        return self.file.rpartition(".")[0]

    def matches(self, name: str) -> bool:
        return name in (self.id, self.stem, self.file)

    def has_index(self, index: str) -> bool:
        return bool(self.index) and index.isdecimal() and index.isascii() and int(self.index) == int(index)


def parse_component_name(file: str) -> ComponentName | None:
    """The parsed name; None for READMEs, hidden files and other formats."""
    kind = detect_format(file)
    stem = file.rpartition(".")[0]
    if kind is None or file.startswith(".") or stem.upper() == "README":
        return None
    numbered = _NUMBERED.fullmatch(stem)
    index, name = numbered.groups() if numbered and numbered.group(1).isascii() else ("", stem)
    return ComponentName(file, index, name, kind)


def sort_components(files: Iterable[str], formats: frozenset[Format]) -> tuple[ComponentName, ...]:
    """Sort by numeric value of the number, then those without a number by name."""
    return tuple(sorted((name for name in _parse_names(files, formats) if normalize_id(name.stem)), key=_sort_key))


def find_unusable_files(files: Iterable[str], formats: frozenset[Format]) -> tuple[str, ...]:
    """The files that would be components if their name were a valid id."""
    return tuple(name.file for name in _parse_names(files, formats) if not normalize_id(name.stem))


def _parse_names(files: Iterable[str], formats: frozenset[Format]) -> Iterator[ComponentName]:
    return (name for file in files if (name := parse_component_name(file)) is not None and name.format in formats)


def _sort_key(name: ComponentName) -> tuple[bool, int, bool, str]:
    # If two files share a number, data comes before Markdown, as in older servers.
    return not name.index, int(name.index or 0), name.format == "markdown", name.file

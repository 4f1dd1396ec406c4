"""A parsed definition file: its bytes, its data and the positions of its keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, Literal, Protocol, cast

from fidelio.definitions.findings import Finding
from fidelio.definitions.reading.positions import MAX_BYTES, LineIndex, Path, Position, Positions, make_error
from fidelio.definitions.toon_writer import encode_toon

Format = Literal["toon", "yaml", "json", "markdown"]

_FORMATS: dict[str, Format] = {
    ".toon": "toon",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".md": "markdown",
    ".markdown": "markdown",
}
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(frozen=True)
class ParsedDocument:
    """A parsed file. `raw` are its bytes, which are served unchanged."""

    name: str
    format: Format
    raw: bytes
    data: Any

    @property
    def text(self) -> str:
        return self.raw.decode("utf-8-sig")

    @cached_property
    def positions(self) -> Positions:
        """The line and column of every key and every list item, by its path."""
        return _load_reader(self.format).locate(self.text)

    @cached_property
    def toon(self) -> str:
        """The text as TOON: TOON and Markdown unchanged, other formats encoded."""
        if self.format in ("toon", "markdown"):
            return self.raw.decode()
        return encode_toon(self.data)

    def check_front_matter(self) -> None:
        """Raise `UnreadableDefinition` if the front matter of a Markdown file is not YAML."""
        if self.format == "markdown":
            _load_reader(self.format).check_front_matter(self.text, self.name)

    def at(self, path: Path) -> Position:
        """The position of `path`, or of the nearest enclosing path with a known position."""
        for length in range(len(path), 0, -1):
            if position := self.positions.get(path[:length]):
                return position
        return Position(1, 1)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Findings for content that is valid but probably a mistake."""
        find = getattr(_load_reader(self.format), "find_suspicious_lines", None)
        return () if find is None else tuple(find(self.text, self.name))


def detect_format(name: str) -> Format | None:
    """The format of a file by its suffix, or None if it is not a definition file."""
    dot = name.rfind(".")
    return _FORMATS.get(name[dot:].lower()) if dot >= 0 else None


def read_text(text: str, name: str) -> ParsedDocument:
    try:
        raw = text.encode()
    except UnicodeEncodeError as problem:
        position = LineIndex(text).position(problem.start)
        raise make_error(
            name, "unreadable", "The text contains an incomplete character (a lone surrogate).", "Write it again.", at=position
        ) from None
    return read_bytes(raw, name)


def read_bytes(raw: bytes, name: str) -> ParsedDocument:
    """Parse the file, or raise `UnreadableDefinition` with the problem and its position."""
    kind = detect_format(name)
    if kind is None:
        known = ", ".join(_FORMATS)
        raise make_error(name, "unreadable", "The suffix of the file is not that of a known format.", f"Use one of {known}.")
    return ParsedDocument(name, kind, raw, _load_reader(kind).parse(decode(raw, name), name))


def decode(raw: bytes, name: str) -> str:
    """Decode the bytes of a file as UTF-8, without a byte-order mark."""
    if len(raw) > MAX_BYTES:
        raise make_error(name, "too-large", f"The file has more than {MAX_BYTES} bytes.", "Split it into several files.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        position = LineIndex(raw[: problem.start].decode(errors="replace")).position(problem.start)
        raise make_error(name, "unreadable", "The file is not UTF-8 text.", "Save it as UTF-8.", at=position) from None
    if control := _CONTROL.search(text):
        position = LineIndex(text).position(control.start())
        sentence = f"There is a control character (U+{ord(control.group()):04X}) in the text."
        raise make_error(name, "unreadable", sentence, "Delete it, or write it as an escape in quotes.", at=position)
    return text


class _Reader(Protocol):
    """The interface of the module of each format."""

    def parse(self, text: str, name: str) -> Any: ...
    def locate(self, text: str) -> Positions: ...
    def check_front_matter(self, text: str, name: str) -> None: ...


def _load_reader(kind: Format) -> _Reader:
    """Import the module of a format on its first use, so that other decoders are not loaded."""
    return cast("_Reader", import_module(f"fidelio.definitions.reading.{kind}"))

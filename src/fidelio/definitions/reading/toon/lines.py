"""Walk over the lines of a TOON text and compute the path of each.

It uses only indentation, dashes, headers and keys, not values, and is independent of the decoder. So it provides positions, and
a cross-check: if it disagrees with the decoder, the file was misread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from fidelio.definitions.reading.positions import Path

_HEADER = re.compile(r"\[(\d+)(:?)([\t|]?)\]")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


class ToonNode(NamedTuple):
    """A key, item or cell: its path and position, and the text of its value if it is not quoted.

    The key is `sure` if it is quoted or in the header of a table: then it cannot be anything else.
    """

    path: Path
    line: int
    column: int
    bare: str = ""
    sure: bool = False

    @property
    def position(self) -> tuple[int, int]:
        return self.line, self.column


class _Column(NamedTuple):
    """A field of a table: its path in the row, and whether it has a cell or only groups others."""

    path: Path
    leaf: bool


class _Scope(msgspec.Struct):
    """The kind of the lines at a depth: fields of an object, items of a list, or rows of a table."""

    depth: int
    path: Path
    kind: str
    fields: tuple[_Column, ...] = ()
    delimiter: str = ","
    count: int = 0


class _Line(NamedTuple):
    number: int
    depth: int
    column: int
    content: str


def walk(text: str) -> Iterator[ToonNode]:
    yield ToonNode((), 1, 1)
    scopes = [_Scope(0, (), "object")]
    for line in _split_lines(text):
        while scopes[-1].depth > line.depth:
            scopes.pop()
        scope = scopes[-1]
        if scope.depth == line.depth:
            yield from _READERS[scope.kind](line, scope, scopes)


def _split_lines(text: str) -> Iterator[_Line]:
    for number, source in enumerate(text.split("\n"), 1):
        content = source.strip(" ") if not source.endswith("\r") else source[:-1].strip(" ")
        if content and content[0] != "#":
            indent = len(source) - len(source.lstrip(" "))
            yield _Line(number, indent // 2, indent + 1, content)


def _read_field(line: _Line, scope: _Scope, scopes: list[_Scope]) -> Iterator[ToonNode]:
    name, rest, quoted = _split_key(line.content)
    if rest is None:
        return
    if rest.startswith("["):
        path = (*scope.path, name) if name or quoted else scope.path
        if path != scope.path:
            yield ToonNode(path, line.number, line.column, sure=quoted)
        yield from _read_header(line, rest, path, scopes)
        return
    path, value = (*scope.path, name), rest[1:].strip(" ")
    yield ToonNode(path, line.number, line.column, _strip_quoted(value), quoted)
    if not value:
        scopes.append(_Scope(line.depth + 1, path, "object"))


def _read_item(line: _Line, scope: _Scope, scopes: list[_Scope]) -> Iterator[ToonNode]:
    path, rest = (*scope.path, scope.count), line.content[2:].strip(" ")
    scope.count += 1
    # The first field of an object is on the line of its dash, one level deeper than the dash.
    inner = _Line(line.number, line.depth + 1, line.column + 2, rest)
    name, after, quoted = _split_key(rest)
    if rest == "[]" or after is None:
        yield ToonNode(path, line.number, line.column, _strip_quoted(rest))
    elif after.startswith("[") and not name and not quoted:
        yield ToonNode(path, line.number, line.column)
        yield from _read_header(line, after, path, scopes)
    else:
        yield ToonNode(path, line.number, line.column)
        scopes.append(_Scope(line.depth + 1, path, "object"))
        yield from _read_field(inner, scopes[-1], scopes)


def _read_row(line: _Line, scope: _Scope, _scopes: list[_Scope]) -> Iterator[ToonNode]:
    path = (*scope.path, scope.count)
    scope.count += 1
    yield ToonNode(path, line.number, line.column)
    yield from _read_cells(line, line.content, path, scope)


def _read_keyed_row(line: _Line, scope: _Scope, _scopes: list[_Scope]) -> Iterator[ToonNode]:
    name, rest, quoted = _split_key(line.content)
    if rest is not None:
        path = (*scope.path, name)
        yield ToonNode(path, line.number, line.column, sure=quoted)
        yield from _read_cells(line, rest[1:].strip(" "), path, scope)


_READERS = {"object": _read_field, "list": _read_item, "table": _read_row, "keyed": _read_keyed_row}


def _read_header(line: _Line, rest: str, path: Path, scopes: list[_Scope]) -> Iterator[ToonNode]:
    """Open the scope of a header, or read the values after it on the same line."""
    match = _HEADER.match(rest)
    if match is None:
        return
    delimiter, after = match.group(3) or ",", rest[match.end() :]
    if after.startswith("{"):
        kind = "keyed" if match.group(2) else "table"
        scopes.append(_Scope(line.depth + 1, path, kind, tuple(_parse_columns(after, delimiter)), delimiter))
        return
    values = after[1:].strip(" ")
    if not values:
        scopes.append(_Scope(line.depth + 1, path, "list", delimiter=delimiter))
        return
    for index, value in enumerate(_split(values, delimiter)):
        yield ToonNode((*path, index), line.number, line.column, _strip_quoted(value))


def _read_cells(line: _Line, text: str, path: Path, scope: _Scope) -> Iterator[ToonNode]:
    cells = iter(_split(text, scope.delimiter))
    for column in scope.fields:
        cell = next(cells, "") if column.leaf else ""
        yield ToonNode((*path, *column.path), line.number, line.column, _strip_quoted(cell), sure=True)


def _parse_columns(text: str, delimiter: str) -> Iterator[_Column]:
    """The fields of `{a,b{c,d}}`, depth first."""
    group: list[str | int] = []
    name: str | None = None
    for part in _split_fields(text, delimiter):
        if part == "{" and name is not None:
            yield _Column((*group, name), leaf=False)
            group.append(name)
        elif part in ("}", delimiter) and name is not None:
            yield _Column((*group, name), leaf=True)
        name = None if part in ("{", "}", delimiter) else _unquote(part)
        if part == "}":
            if not group:
                return
            group.pop()


def _split_fields(text: str, delimiter: str) -> Iterator[str]:
    start = 0
    for index, character in enumerate(_mask_quoted(text)):
        if character in ("{", "}", delimiter):
            if word := text[start:index].strip(" "):
                yield word
            yield character
            start = index + 1


def _split_key(content: str) -> tuple[str, str | None, bool]:
    """The key, the rest of the line from its colon or bracket on, and whether the key is quoted."""
    masked = _mask_quoted(content)
    colon = masked.find(":")
    if content.startswith('"'):
        quoted = _QUOTED.match(content)
        after = content[quoted.end() :].lstrip(" ") if quoted else ""
        return (_unquote(quoted.group()), after, True) if quoted and after and colon >= 0 else ("", None, False)
    if colon < 0:
        return "", None, False
    bracket = masked.find("[")
    end = bracket if 0 <= bracket < colon else colon
    return content[:end].strip(" "), content[end:], False


def _split(text: str, delimiter: str) -> list[str]:
    cells, start = [], 0
    for index, character in enumerate(_mask_quoted(text)):
        if character == delimiter:
            cells.append(text[start:index].strip(" "))
            start = index + 1
    return [*cells, text[start:].strip(" ")]


def _mask_quoted(text: str) -> str:
    """The text with all quoted characters replaced, so that only punctuation outside of quotes is found."""
    if '"' not in text:
        return text
    masked = _QUOTED.sub(lambda quoted: "\0" * len(quoted.group()), text)
    return masked.partition('"')[0]


def _unquote(token: str) -> str:
    if not token.startswith('"'):
        return token
    return str(json.loads(token, strict=False))


def _strip_quoted(value: str) -> str:
    return "" if value.startswith('"') else value

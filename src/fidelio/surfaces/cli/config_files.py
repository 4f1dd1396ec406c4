"""Text edits that add one entry to a JSON or TOML file and leave every other byte as it is.

To read a file and to write it anew loses what a parser does not keep: digits of large numbers, keys that stand there twice, the
ends of lines. So parsers only find the place here and check the outcome. Where the place cannot be found for certain, the file
is not touched, and the error says what a person can write where.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_INDENT = "  "
_BESIDE = "with a comma between it and its neighbours"
_SPACE = re.compile(r"[ \t\r\n]*")
# Numbers are not looked at, so none can be too long to be read.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)


class CannotEdit(Exception):
    """The file is not something we can add to without risk. The text says why, `snippet` is what to write `where`."""

    def __init__(self, reason: str, where: str, snippet: str) -> None:
        super().__init__(reason)
        self.where = where
        self.snippet = snippet


@dataclass(frozen=True, slots=True)
class Entry:
    """A value, its name, and the table of the file in which it belongs."""

    table: str
    name: str
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of a JSON object: `start` is where its key begins, `place` where its value does, `end` where that ends."""

    key: str
    value: Any
    start: int
    place: int
    end: int


def into_json(text: str, entry: Entry) -> str:
    if not text.strip():
        return json_file(entry)
    try:
        whole = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        return _unread(text, entry, f"it is not plain JSON ({error})")
    if not isinstance(whole, dict):
        raise CannotEdit("it does not hold an object", "as the whole of it", json_file(entry))
    return _into_object(text, entry)


def _into_object(text: str, entry: Entry) -> str:
    root = _behind_space(text, 0)
    tables = [member for member in _members(text, root) if member.key == entry.table]
    if not tables:
        return _with_member(text, root, root, entry.table, {entry.name: entry.value})
    table = tables[-1]
    if not isinstance(table.value, dict):
        snippet = _block({entry.table: {entry.name: entry.value}})
        raise CannotEdit(f"its key {entry.table} is not an object", f"in place of {entry.table}", snippet)
    if entry.name in table.value:
        return text
    if len(tables) > 1:
        where = f"inside the braces of the last {entry.table}, {_BESIDE}"
        raise CannotEdit(f"it has the key {entry.table} more than once", where, _block({entry.name: entry.value}))
    return _with_member(text, table.place, table.start, entry.name, entry.value)


def _unread(text: str, entry: Entry, reason: str) -> str:
    """The text as it is where somebody seems to have put the entry in; else a person is told what seems to belong where."""
    if re.search(rf'"{re.escape(entry.name)}"\s*:', text):
        return text
    if "{" not in text:
        raise CannotEdit(reason, "as the whole of it", json_file(entry))
    if f'"{entry.table}"' in text:
        raise CannotEdit(reason, f"inside the braces of {entry.table}, {_BESIDE}", _block({entry.name: entry.value}))
    whole = _block({entry.table: {entry.name: entry.value}})
    raise CannotEdit(reason, f"inside its outermost braces, {_BESIDE}", whole)


def json_file(entry: Entry) -> str:
    return json.dumps({entry.table: {entry.name: entry.value}}, indent=_INDENT, ensure_ascii=False) + "\n"


def into_toml(text: str, entry: Entry) -> str:
    try:
        tables = tomllib.loads(text).get(entry.table, {})
    except (ValueError, RecursionError) as error:
        raise CannotEdit(f"it is not valid TOML ({error})", "at its end", toml_table(entry)) from error
    if not isinstance(tables, dict):
        raise CannotEdit(f"its key {entry.table} is not a table", f"at its end, without {entry.table}", toml_table(entry))
    if entry.name in tables:
        return text
    # A table at the end is safe whatever stands before it, and keeps every comment.
    gap = "" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
    added = text + (gap + toml_table(entry)).replace("\n", _newline(text))
    if not _is_toml(added):
        snippet = f"{entry.name} = {{ {', '.join(_toml_pairs(entry))} }}\n"
        where = f"inside the braces of {entry.table}, {_BESIDE}"
        raise CannotEdit(f"its {entry.table} is written in braces", where, snippet)
    return added


def toml_table(entry: Entry) -> str:
    return "\n".join([f"[{entry.table}.{entry.name}]", *_toml_pairs(entry)]) + "\n"


def _toml_pairs(entry: Entry) -> list[str]:
    # Texts and lists of texts, which TOML writes as JSON does.
    return [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in entry.value.items()]


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _members(text: str, brace: int) -> Iterator[_Member]:
    """The members of the object that begins at `brace`, in a text that is known to be JSON."""
    start = _behind_space(text, brace + 1)
    while text[start] != "}":
        key, end = _DECODER.raw_decode(text, start)
        place = _behind_space(text, _behind_space(text, end) + len(":"))
        value, end = _DECODER.raw_decode(text, place)
        yield _Member(key, value, start, place, end)
        start = _behind_space(text, end)
        if text[start] == ",":
            start = _behind_space(text, start + 1)


def _with_member(text: str, brace: int, owner: int, name: str, value: Any) -> str:
    """One member more at the end of the object at `brace`, in lines where the others stand in lines.

    `owner` is where what holds the object begins; it tells how far an object without members is indented.
    """
    last = next(reversed([*_members(text, brace)]), None)
    at = last.end if last else brace + 1
    indent = _indent_of(text, last.start if last else owner)
    if indent is None:
        added = (", " if last else "") + json.dumps({name: value}, ensure_ascii=False)[1:-1]
    elif last:
        added = f",\n{_block({name: value}, _unit(text), indent)}"
    else:
        closing = "" if "\n" in text[at : _behind_space(text, at)] else f"\n{indent}"
        added = f"\n{_block({name: value}, _unit(text), indent + _unit(text))}{closing}"
    return text[:at] + added.replace("\n", _newline(text)) + text[at:]


def _block(members: dict[str, Any], unit: str = _INDENT, indent: str = "") -> str:
    """The members as lines, without the braces around them."""
    lines = json.dumps(members, indent=unit, ensure_ascii=False).split("\n")[1:-1]
    return "\n".join(indent + line.removeprefix(unit) for line in lines)


def _behind_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _indent_of(text: str, at: int) -> str | None:
    """What stands before it in its line; None where that is more than space."""
    before = text[text.rfind("\n", 0, at) + 1 : at]
    return None if before.strip() else before


def _unit(text: str) -> str:
    """The indentation that the file uses already."""
    lines = (line for line in text.splitlines() if line.strip() and line[0] in " \t")
    return next((line[: len(line) - len(line.lstrip())] for line in lines), _INDENT)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"

"""Text edits that add an entry to a JSON or TOML file without changing any other byte.

Parsing a file and writing it again would lose what the parser does not keep: digits of large numbers, duplicate keys, line
ends. So parsers are only used to find the insertion point and to check the result. If the insertion point is not certain, the
file is not changed, and the error says what a person can write and where.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import msgspec

_INDENT = "  "
_WITH_COMMA = "with a comma between it and its neighbours"
_SPACE = re.compile(r"[ \t\r\n]*")
# Numbers stay text: Python refuses to convert very long ones.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)


class CannotEdit(Exception):
    """The file cannot be edited safely. The message says why; a person can write `snippet` at `where`."""

    def __init__(self, reason: str, where: str, snippet: str) -> None:
        super().__init__(reason)
        self.where = where
        self.snippet = snippet


class ConfigEntry(msgspec.Struct, frozen=True):
    """An entry to add: the table of the file, the name of the entry in it, and its value."""

    table: str
    name: str
    value: dict[str, Any]


class _Member(msgspec.Struct, frozen=True):
    """A member of a JSON object, with the offsets of its key (`start`), of its value, and of its end."""

    key: str
    value: Any
    start: int
    value_start: int
    end: int


def add_to_json(text: str, entry: ConfigEntry) -> str:
    """Add the entry to a JSON file. Returns the text unchanged if it has such an entry. Raises `CannotEdit`."""
    if not text.strip():
        return render_json_file(entry)
    try:
        whole = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        return _suggest_edit(text, entry, f"it is not plain JSON ({error})")
    if not isinstance(whole, dict):
        raise CannotEdit("it does not hold an object", "as its only content", render_json_file(entry))
    return _add_to_object(text, entry)


def _add_to_object(text: str, entry: ConfigEntry) -> str:
    root = _skip_space(text, 0)
    tables = [member for member in _iter_members(text, root) if member.key == entry.table]
    if not tables:
        return _insert_member(text, root, root, entry.table, {entry.name: entry.value})
    table = tables[-1]
    if not isinstance(table.value, dict):
        snippet = _render_members({entry.table: {entry.name: entry.value}})
        raise CannotEdit(f"its key {entry.table} is not an object", f"in place of {entry.table}", snippet)
    if entry.name in table.value:
        return text
    if len(tables) > 1:
        where = f"inside the braces of the last {entry.table}, {_WITH_COMMA}"
        raise CannotEdit(f"it has the key {entry.table} more than once", where, _render_members({entry.name: entry.value}))
    return _insert_member(text, table.value_start, table.start, entry.name, entry.value)


def _suggest_edit(text: str, entry: ConfigEntry, reason: str) -> str:
    """Refuse a file that is not plain JSON, such as JSON with comments, unless it seems to have the entry already."""
    if re.search(rf'"{re.escape(entry.name)}"\s*:', text):
        return text
    if "{" not in text:
        raise CannotEdit(reason, "as its only content", render_json_file(entry))
    if f'"{entry.table}"' in text:
        raise CannotEdit(
            reason, f"inside the braces of {entry.table}, {_WITH_COMMA}", _render_members({entry.name: entry.value})
        )
    whole = _render_members({entry.table: {entry.name: entry.value}})
    raise CannotEdit(reason, f"inside its outermost braces, {_WITH_COMMA}", whole)


def render_json_file(entry: ConfigEntry) -> str:
    """A new JSON file with only this entry."""
    return json.dumps({entry.table: {entry.name: entry.value}}, indent=_INDENT, ensure_ascii=False) + "\n"


def add_to_toml(text: str, entry: ConfigEntry) -> str:
    """Add the entry to a TOML file. Returns the text unchanged if it has such an entry. Raises `CannotEdit`."""
    try:
        tables = tomllib.loads(text).get(entry.table, {})
    except (ValueError, RecursionError) as error:
        raise CannotEdit(f"it is not valid TOML ({error})", "at its end", render_toml_table(entry)) from error
    if not isinstance(tables, dict):
        raise CannotEdit(
            f"its key {entry.table} is not a table", f"at its end, without {entry.table}", render_toml_table(entry)
        )
    if entry.name in tables:
        return text
    # A new table at the end needs no change of the text before it.
    gap = "" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
    added = text + (gap + render_toml_table(entry)).replace("\n", _find_newline(text))
    if not _is_toml(added):
        snippet = f"{entry.name} = {{ {', '.join(_render_toml_pairs(entry))} }}\n"
        where = f"inside the braces of {entry.table}, {_WITH_COMMA}"
        raise CannotEdit(f"its {entry.table} is an inline table", where, snippet)
    return added


def render_toml_table(entry: ConfigEntry) -> str:
    """The entry as a TOML table."""
    return "\n".join([f"[{entry.table}.{entry.name}]", *_render_toml_pairs(entry)]) + "\n"


def _render_toml_pairs(entry: ConfigEntry) -> list[str]:
    # Only strings and lists of strings, which are written the same in TOML and JSON.
    return [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in entry.value.items()]


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _iter_members(text: str, brace: int) -> Iterator[_Member]:
    """The members of the object that begins at `brace`, in a text that is valid JSON."""
    start = _skip_space(text, brace + 1)
    while text[start] != "}":
        key, end = _DECODER.raw_decode(text, start)
        value_start = _skip_space(text, _skip_space(text, end) + len(":"))
        value, end = _DECODER.raw_decode(text, value_start)
        yield _Member(key, value, start, value_start, end)
        start = _skip_space(text, end)
        if text[start] == ",":
            start = _skip_space(text, start + 1)


def _insert_member(text: str, brace: int, owner: int, name: str, value: Any) -> str:
    """Append a member to the object at `brace`, on lines of its own if the other members are.

    `owner` is the offset of the key whose value the object is. Its indentation counts if the object has no members.
    """
    last = next(reversed([*_iter_members(text, brace)]), None)
    at = last.end if last else brace + 1
    indent = _find_indent(text, last.start if last else owner)
    if indent is None:
        added = (", " if last else "") + json.dumps({name: value}, ensure_ascii=False)[1:-1]
    elif last:
        added = f",\n{_render_members({name: value}, _find_indent_unit(text), indent)}"
    else:
        closing = "" if "\n" in text[at : _skip_space(text, at)] else f"\n{indent}"
        added = f"\n{_render_members({name: value}, _find_indent_unit(text), indent + _find_indent_unit(text))}{closing}"
    return text[:at] + added.replace("\n", _find_newline(text)) + text[at:]


def _render_members(members: dict[str, Any], unit: str = _INDENT, indent: str = "") -> str:
    """The members as indented lines, without the braces."""
    lines = json.dumps(members, indent=unit, ensure_ascii=False).split("\n")[1:-1]
    return "\n".join(indent + line.removeprefix(unit) for line in lines)


def _skip_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _find_indent(text: str, at: int) -> str | None:
    """The indentation of the line at `at`; None if other text precedes it in the line."""
    before = text[text.rfind("\n", 0, at) + 1 : at]
    return None if before.strip() else before


def _find_indent_unit(text: str) -> str:
    """The indentation unit that the file uses."""
    lines = (line for line in text.splitlines() if line.strip() and line[0] in " \t")
    return next((line[: len(line) - len(line.lstrip())] for line in lines), _INDENT)


def _find_newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"

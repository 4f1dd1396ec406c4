"""Text edits that add entries to a JSON or TOML file without changing any other byte.

Parsing a file and writing it again would lose what the parser does not keep: digits of large numbers, duplicate keys, line
ends. So parsers are only used to find the insertion point and to check the result. If the insertion point is not certain, the
file is not changed, and the error says what a person can write and where.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Container, Iterator, Mapping
from typing import Any

import msgspec

_INDENT = "  "
_WITH_COMMA = "with a comma between it and its neighbours"
_SPACE = re.compile(r"[ \t\r\n]*")
# Numbers stay text: Python refuses to convert very long ones.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)


class CannotEdit(Exception):
    """The file cannot be edited safely. The message says why; a person can write `snippet` at `where`.

    If `where` is empty, the snippet is what a person can delete.
    """

    def __init__(self, reason: str, where: str, snippet: str) -> None:
        super().__init__(reason)
        self.where = where
        self.snippet = snippet


class ConfigEntries(msgspec.Struct, frozen=True):
    """Entries to add: the table of the file, and their values by their names in it."""

    table: str
    members: dict[str, dict[str, Any]]

    def select_missing(self, known: Container[str]) -> ConfigEntries:
        """The entries that the file lacks."""
        return ConfigEntries(self.table, {name: value for name, value in self.members.items() if name not in known})


class _Member(msgspec.Struct, frozen=True):
    """A member of a JSON object, with the offsets of its key (`start`), of its value, and of its end."""

    key: str
    value: Any
    start: int
    value_start: int
    end: int


def add_to_json(text: str, entries: ConfigEntries) -> str:
    """Add the entries that a JSON file lacks. Returns the text unchanged if it has all. Raises `CannotEdit`."""
    if not text.strip():
        return render_json_file(entries)
    try:
        whole = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        return _suggest_edit(text, entries, f"it is not plain JSON ({error})")
    if not isinstance(whole, dict):
        raise CannotEdit("it does not hold an object", "as its only content", render_json_file(entries))
    return _add_to_object(text, entries)


def _add_to_object(text: str, entries: ConfigEntries) -> str:
    root, name = _skip_space(text, 0), entries.table
    tables = [member for member in _iter_members(text, root) if member.key == name]
    if not tables:
        return _insert_members(text, root, root, {name: entries.members})
    table = tables[-1]
    if not isinstance(table.value, dict):
        raise CannotEdit(f"its key {name} is not an object", f"in place of {name}", _render_members({name: entries.members}))
    missing = entries.select_missing(table.value).members
    if not missing:
        return text
    if len(tables) > 1:
        where = f"inside the braces of the last {name}, {_WITH_COMMA}"
        raise CannotEdit(f"it has the key {name} more than once", where, _render_members(missing))
    return _insert_members(text, table.value_start, table.start, missing)


def _suggest_edit(text: str, entries: ConfigEntries, reason: str) -> str:
    """Refuse a file that is not plain JSON, such as JSON with comments, unless it seems to have the entries already."""
    known = [name for name in entries.members if re.search(rf'"{re.escape(name)}"\s*:', text)]
    missing = entries.select_missing(known)
    if not missing.members:
        return text
    if "{" not in text:
        raise CannotEdit(reason, "as its only content", render_json_file(missing))
    if f'"{entries.table}"' in text:
        where = f"inside the braces of {entries.table}, {_WITH_COMMA}"
        raise CannotEdit(reason, where, _render_members(missing.members))
    whole = _render_members({entries.table: missing.members})
    raise CannotEdit(reason, f"inside its outermost braces, {_WITH_COMMA}", whole)


def render_json_file(entries: ConfigEntries) -> str:
    """A new JSON file with only these entries."""
    return json.dumps({entries.table: entries.members}, indent=_INDENT, ensure_ascii=False) + "\n"


def add_to_toml(text: str, entries: ConfigEntries) -> str:
    """Add the entries that a TOML file lacks. Returns the text unchanged if it has all. Raises `CannotEdit`."""
    name = entries.table
    try:
        table = tomllib.loads(text).get(name, {})
    except (ValueError, RecursionError) as error:
        raise CannotEdit(f"it is not valid TOML ({error})", "at its end", render_toml_tables(entries)) from error
    if not isinstance(table, dict):
        where = f"at its end, after you have deleted the line with the key {name}"
        raise CannotEdit(f"its key {name} is not a table", where, render_toml_tables(entries))
    missing = entries.select_missing(table)
    if not missing.members:
        return text
    # A new table at the end needs no change of the text before it.
    gap = "" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
    added = text + (gap + render_toml_tables(missing)).replace("\n", _find_newline(text))
    if not _is_toml(added):
        pairs = (f"{key} = {{ {', '.join(_render_toml_pairs(value))} }}" for key, value in missing.members.items())
        where = f"inside the braces of {name}, {_WITH_COMMA}"
        raise CannotEdit(f"its {name} is an inline table", where, ", ".join(pairs) + "\n")
    return added


def render_toml_tables(entries: ConfigEntries) -> str:
    """The entries as TOML tables."""
    tables = (
        "\n".join([f"[{entries.table}.{name}]", *_render_toml_pairs(value)]) + "\n" for name, value in entries.members.items()
    )
    return "\n".join(tables)


def _render_toml_pairs(value: Mapping[str, Any]) -> list[str]:
    # Only strings and lists of strings, which are written the same in TOML and JSON.
    return [f"{name} = {json.dumps(part, ensure_ascii=False)}" for name, part in value.items()]


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


def _insert_members(text: str, brace: int, owner: int, members: dict[str, Any]) -> str:
    """Append members to the object at `brace`, on lines of their own if the other members are.

    `owner` is the offset of the key whose value the object is. Its indentation counts if the object has no members.
    """
    last = next(reversed([*_iter_members(text, brace)]), None)
    at = last.end if last else brace + 1
    indent = _find_indent(text, last.start if last else owner)
    if indent is None:
        added = (", " if last else "") + json.dumps(members, ensure_ascii=False)[1:-1]
    elif last:
        added = f",\n{_render_members(members, _find_indent_unit(text), indent)}"
    else:
        closing = "" if "\n" in text[at : _skip_space(text, at)] else f"\n{indent}"
        added = f"\n{_render_members(members, _find_indent_unit(text), indent + _find_indent_unit(text))}{closing}"
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

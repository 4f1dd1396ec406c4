"""Strict JSON reader: no duplicate keys, no numbers outside of JSON, with positions.

The standard decoder parses; it reports no positions, so a scan over the tokens finds them on demand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from fidelio.definitions.reading.positions import (
    LineIndex,
    Path,
    Position,
    Positions,
    depth_exceeds,
    make_depth_error,
    make_error,
)

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_SURROGATE = re.compile("[\ud800-\udfff]")


class _DuplicateKey(ValueError):
    pass


def parse(text: str, name: str) -> Any:
    try:
        data = json.loads(
            text, object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant, parse_float=_parse_finite
        )
    except json.JSONDecodeError as problem:
        position = (problem.lineno, problem.colno)
        raise make_error(
            name, "unreadable", f"This is not JSON: {problem.msg}.", "Correct the text there.", at=position
        ) from None
    except RecursionError:
        raise make_depth_error(name) from None
    except _DuplicateKey:
        key, position = _find_first_duplicate(text)
        remedy = "Delete one of the two, or put both values under one key."
        raise make_error(name, "duplicate-key", f"The key `{key}` is here for the second time.", remedy, at=position) from None
    except ValueError as problem:
        raise make_error(
            name, "unreadable", f"The number {problem} is outside of the range of JSON.", "Put it in quotes."
        ) from None
    _check(text, data, name)
    return data


def _check(text: str, data: object, name: str) -> None:
    if depth_exceeds(data):
        raise make_depth_error(name)
    # Only an escape can bring half a character into text that was decoded from UTF-8.
    if "\\u" in text and _SURROGATE.search(json.dumps(data, ensure_ascii=False)):
        raise make_error(
            name, "unreadable", "An escape encodes an incomplete character (a lone surrogate).", "Write the character itself."
        )


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise _DuplicateKey
    return data


def _refuse_constant(constant: str) -> float:
    raise ValueError(constant)


def _parse_finite(text: str) -> float:
    value = float(text)
    if value in {float("inf"), float("-inf")}:
        raise ValueError(text)
    return value


def locate(text: str) -> Positions:
    lines = LineIndex(text)
    positions: Positions = {}
    for path, offset in _list_offsets(text):
        positions.setdefault(path, lines.position(offset))
    return positions


def _find_first_duplicate(text: str) -> tuple[str, Position]:
    seen: set[Path] = set()
    for path, offset in _list_offsets(text):
        if path in seen:
            return str(path[-1]), LineIndex(text).position(offset)
        seen.add(path)
    raise AssertionError("called only after the decoder has found a duplicate key")


def _list_offsets(text: str) -> Iterator[tuple[Path, int]]:
    """Every key and list item of a valid JSON text, in order. `here` is the path with an index for each open list."""
    here: list[str | int | None] = []
    after_colon = True
    for match in _TOKEN.finditer(text):
        part = match.group()
        if part in "}],:":
            after_colon = _step(here, part)
            continue
        if here and isinstance(here[-1], (str, type(None))) and not after_colon:
            here[-1] = json.loads(part)
            yield _to_path(here), match.start()
            continue
        if not here or isinstance(here[-1], int):
            yield _to_path(here), match.start()
        if part in "{[":
            here.append(None if part == "{" else 0)
            after_colon = False


def _step(here: list[str | int | None], part: str) -> bool:
    """Process punctuation; true if the value of the last key follows."""
    if part in "}]":
        here.pop()
    elif part == "," and isinstance(here[-1], int):
        here[-1] += 1
    return part == ":"


def _to_path(here: list[str | int | None]) -> Path:
    return tuple(step for step in here if step is not None)

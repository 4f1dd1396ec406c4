"""JSON, strictly: every key once, no numbers that JSON cannot carry, and with positions.

The standard decoder reads; it knows no places inside the text, so a small scan over the tokens finds them when they are wanted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from fidelio.definitions.reading.positions import Lines, Path, Position, Positions, depth_exceeds, refuse, too_deep

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


class _Twice(ValueError):
    pass


def parse(text: str, name: str) -> Any:
    try:
        data = json.loads(text, object_pairs_hook=_every_key_once, parse_constant=_no_constant, parse_float=_finite)
    except json.JSONDecodeError as problem:
        place = (problem.lineno, problem.colno)
        raise refuse(name, "unreadable", f"This is not JSON: {problem.msg}.", "Mend the text there.", at=place) from None
    except RecursionError:
        raise too_deep(name) from None
    except _Twice:
        key, place = _first_repetition(text)
        remedy = "Delete one of the two, or put both values under one key."
        raise refuse(name, "duplicate-key", f"The key `{key}` is here for the second time.", remedy, at=place) from None
    except ValueError as problem:
        raise refuse(
            name, "unreadable", f"There is a number that cannot be passed on: {problem}.", "Put it in quotes."
        ) from None
    _check(text, data, name)
    return data


def _check(text: str, data: object, name: str) -> None:
    if depth_exceeds(data):
        raise too_deep(name)
    # Only an escape can bring half a character into text that was decoded from UTF-8.
    if "\\u" in text and _HALF_CHARACTER.search(json.dumps(data, ensure_ascii=False)):
        raise refuse(name, "unreadable", "An escape stands for half of a character.", "Write the character itself.")


def _every_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise _Twice
    return data


def _no_constant(constant: str) -> float:
    raise ValueError(constant)


def _finite(text: str) -> float:
    value = float(text)
    if value in {float("inf"), float("-inf")}:
        raise ValueError(text)
    return value


def locate(text: str) -> Positions:
    lines = Lines(text)
    positions: Positions = {}
    for path, offset in _places(text):
        positions.setdefault(path, lines.position(offset))
    return positions


def _first_repetition(text: str) -> tuple[str, Position]:
    seen: set[Path] = set()
    for path, offset in _places(text):
        if path in seen:
            return str(path[-1]), Lines(text).position(offset)
        seen.add(path)
    raise AssertionError("asked only when the decoder has met a repetition")


def _places(text: str) -> Iterator[tuple[Path, int]]:
    """Every key and list item of a sound JSON text, in reading order. `here` is the path with a number for each open list."""
    here: list[str | int | None] = []
    after_colon = True
    for match in _TOKEN.finditer(text):
        part = match.group()
        if part in "}],:":
            after_colon = _step(here, part)
            continue
        if here and isinstance(here[-1], (str, type(None))) and not after_colon:
            here[-1] = json.loads(part)
            yield _path(here), match.start()
            continue
        if not here or isinstance(here[-1], int):
            yield _path(here), match.start()
        if part in "{[":
            here.append(None if part == "{" else 0)
            after_colon = False


def _step(here: list[str | int | None], part: str) -> bool:
    """Moves past punctuation; true when a value follows that belongs to the key before it."""
    if part in "}]":
        here.pop()
    elif part == "," and isinstance(here[-1], int):
        here[-1] += 1
    return part == ":"


def _path(here: list[str | int | None]) -> Path:
    return tuple(step for step in here if step is not None)

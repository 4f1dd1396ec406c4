"""TOON reader that refuses files it could misread.

The decoder is strict about counts and indentation, but accepts some mistakes: a list without a count becomes a key that begins
with a dash, a line indented with other characters than spaces becomes a key of another object. If that may have happened, the
data is compared with an independent walk over the lines (`toon.lines`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from toon_format import ToonDecodeError, loads

from fidelio.definitions.findings import Finding, warning
from fidelio.definitions.reading.positions import MAX_DEPTH, LineIndex, Path, Position, Positions, make_depth_error, make_error
from fidelio.definitions.reading.toon.lines import ToonNode, walk
from fidelio.errors import UnreadableDefinition

_COUNT = re.compile(r"Declared length (\d+) but found (\d+)")
_KEY = re.compile(r'\s*(?:- )?("(?:[^"\\]|\\.)*"|[^\[\s]*)\[')
_BLOCK_TEXT = re.compile(r":\s*[|>][-+]?\s*$")
_TRAILING_COMMENT = re.compile(r"\s#\s")
_AT_THE_MARGIN = re.compile(r"^(?![ #]|\r?$).", re.MULTILINE)
_BARE_CARRIAGE_RETURN = re.compile("\r(?!\n)")


def parse(text: str, name: str) -> Any:
    if lone := _BARE_CARRIAGE_RETURN.search(text):
        sentence = "A line ends with a carriage return alone, so everything after it would belong to the same line."
        raise make_error(
            name, "half-read", sentence, "Save the file with ordinary line ends.", at=LineIndex(text).position(lone.start())
        )
    try:
        data = loads(text)
    except ToonDecodeError as problem:
        raise _make_decode_error(problem, text, name) from None
    except RecursionError:
        raise make_depth_error(name) from None
    _check(text, data, name)
    return data


def locate(text: str) -> Positions:
    return {entry.path: Position(entry.line, entry.column) for entry in walk(text)}


def find_suspicious_lines(text: str, name: str) -> Iterator[Finding]:
    """Findings for values that are valid but probably not intended: those that contain a comment."""
    for entry in walk(text):
        if _TRAILING_COMMENT.search(entry.bare):
            sentence = "The text after `#` is a part of the value: a comment needs a line of its own."
            yield warning(
                name, "half-read", sentence, "Move it to its own line, or put the value in quotes.", at=entry.position
            )


def _check(text: str, data: object, name: str) -> None:
    """Check the data first, which is cheap, and every line only if the data seems misread."""
    if _seems_misread(data, 0) or not _has_every_top_line(text, data):
        check_agreement(text, data, name)


def _seems_misread(data: object, depth: int) -> bool:
    if depth > MAX_DEPTH:
        return True
    if isinstance(data, dict):
        return any(
            key[:1] == "-" or key != key.strip() or (isinstance(value, (dict, list)) and _seems_misread(value, depth + 1))
            for key, value in data.items()
        )
    return (
        any(isinstance(item, (dict, list)) and _seems_misread(item, depth + 1) for item in data)
        if isinstance(data, list)
        else False
    )


def _has_every_top_line(text: str, data: object) -> bool:
    # Older decoders silently stopped at an unexpected line. The number of lines without indentation shows that.
    return not isinstance(data, dict) or len(_AT_THE_MARGIN.findall(text)) in (len(data), 1)


def check_agreement(text: str, data: object, name: str) -> None:
    """Refuse the file if the decoder and the line walk disagree about its content."""
    decoded = set(_list_paths(data, ()))
    for entry in walk(text):
        if len(entry.path) > MAX_DEPTH:
            raise make_depth_error(name, entry.position)
        if misread := _describe_misreading(entry):
            raise make_error(name, "half-read", *misread, at=entry.position)
        if entry.path not in decoded:
            raise make_error(
                name, "half-read", "The decoder did not read this line.", "Check the indentation.", at=entry.position
            )
        decoded.discard(entry.path)
    if decoded:
        lost = min(decoded, key=len)
        where = ".".join(map(str, lost)) or "the whole file"
        raise make_error(name, "half-read", f"`{where}` was decoded but is on no line of the file.", "Check the indentation.")


def _describe_misreading(entry: ToonNode) -> tuple[str, str] | None:
    key = entry.path[-1] if entry.path else ""
    if not isinstance(key, str) or entry.sure:
        return None
    if key == "-" or key.startswith("- "):
        return (
            "There is a list item where a key is expected.",
            "Give the list its count, such as `steps[2]:`, and indent the items.",
        )
    if key != key.strip():
        return "The line is indented with something else than spaces.", "Indent with two spaces per level."
    return None


def _list_paths(data: object, path: Path) -> Iterator[Path]:
    yield path
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _list_paths(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _list_paths(value, (*path, index))


def _make_decode_error(problem: ToonDecodeError, text: str, name: str) -> UnreadableDefinition:
    line, source = problem.line or 0, problem.source or ""
    position = (line, len(source) - len(source.lstrip()) + 1) if line else (0, 0)
    if count := _COUNT.match(problem.msg):
        return _make_count_error(count, source, name, position)
    if problem.msg.startswith("Duplicate"):
        sentence = f"{problem.msg}: it is here for the second time.".replace("'", "`")
        return make_error(name, "duplicate-key", sentence, "Delete one of the two.", at=position)
    if problem.msg.startswith(("Unexpected indentation", "Indentation jumps")):
        return _make_depth_error(text, name, position)
    # Older versions of the format allowed a hash before the count.
    remedy = "Write the count without the hash, such as [3]." if "[#" in source else _find_remedy(problem.msg)
    return make_error(name, "unreadable", f"This is not TOON: {problem.msg}.", remedy, at=position)


def _make_count_error(count: re.Match[str], source: str, name: str, position: tuple[int, int]) -> UnreadableDefinition:
    key = match.group(1) if (match := _KEY.match(source)) else ""
    declared, found = count.groups()
    sentence = f"`{key or 'the list'}` declares {declared} entries, but {found} can be read."
    remedy = (
        f"Write [{found}], or add and indent the missing entries; an entry begins with `- ` and has no blank line before it."
    )
    return make_error(name, "wrong-count", sentence, remedy, at=position)


def _make_depth_error(text: str, name: str, position: tuple[int, int]) -> UnreadableDefinition:
    before = [line for line in text.split("\n")[: position[0] - 1] if line.strip() and not line.lstrip().startswith("#")]
    if before and _BLOCK_TEXT.search(before[-1]):
        sentence = "Text over several lines does not exist in TOON; nothing from this line on can be read."
        return make_error(
            name, "half-read", sentence, "Write it on one line in quotes, with \\n where a line ends.", at=position
        )
    sentence = "The line is indented deeper than the line before it allows; nothing from here on can be read."
    return make_error(
        name, "half-read", sentence, "Indent with two spaces per level, below a key that ends with a colon.", at=position
    )


_REMEDIES = {
    "Tabs": "Indent with two spaces per level.",
    "Indentation of": "Indent with two spaces per level.",
    "Blank line": "Delete the blank line, or correct the count of the list.",
    "Unexpected characters": 'Put the whole value in quotes, and write quotes inside it as \\".',
    "Invalid escape": 'Only \\\\, \\", \\n, \\r, \\t and \\uXXXX are escapes; write a backslash as \\\\.',
    "Unterminated": "Close the quotes on the same line.",
    "Expected 'key: value'": "Write `key: value`; give a list its count, such as `tags[2]:`.",
    "Expected": "Give every row as many cells as the header names, and put cells with a comma in quotes.",
    "Malformed bracket": "Put a key with brackets in quotes.",
    "Whitespace between": "Put a key with brackets in quotes, or delete the space before them.",
}


def _find_remedy(message: str) -> str:
    return next((remedy for start, remedy in _REMEDIES.items() if message.startswith(start)), "Correct the line.")

"""Encode data as TOON in the subset that all versions of the format share.

Newer versions have shorter forms (tables, keyed tables, `[]`) that older readers misread or refuse. This writer uses only
nested objects, lists with a dash for each item, and lists of plain values on one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# All other text is quoted, so that no reader takes it for a number or a comment.
_PLAIN_TEXT = re.compile(r"\d+\.\d+\.\d+|[A-Za-z](?:[A-Za-z0-9 ._/()'!?;+*=<>&%@~^$-]*[A-Za-z0-9._/()'!?;+*=<>&%@~^$-])?")
_WORDS = frozenset({"true", "false", "null"})
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def encode_toon(value: Any) -> str:
    """The text of any JSON value, without a newline at its end."""
    if isinstance(value, Mapping):
        return "\n".join(_encode_fields(value, 0))
    if _is_list(value):
        return "\n".join(_encode_list("", value, 0))
    return _encode_scalar(value)


def _encode_fields(fields: Mapping[str, Any], depth: int) -> Iterator[str]:
    for key, value in fields.items():
        yield from _encode_field(_encode_key(key), value, depth)


def _encode_field(key: str, value: Any, depth: int) -> Iterator[str]:
    margin = "  " * depth
    if isinstance(value, Mapping):
        yield f"{margin}{key}:"
        yield from _encode_fields(value, depth + 1)
    elif _is_list(value):
        yield from _encode_list(key, value, depth)
    else:
        yield f"{margin}{key}: {_encode_scalar(value)}"


def _encode_list(key: str, values: Sequence[Any], depth: int) -> Iterator[str]:
    head = f"{'  ' * depth}{key}[{len(values)}]:"
    if not values or any(isinstance(value, Mapping) or _is_list(value) for value in values):
        yield head
        for value in values:
            yield from _encode_item(value, depth + 1)
    else:
        yield f"{head} {','.join(map(_encode_scalar, values))}"


def _encode_item(value: Any, depth: int) -> Iterator[str]:
    """A list item: a dash and its value, indented. The first field of an object is on the line of its dash."""
    margin = "  " * depth
    if isinstance(value, Mapping):
        lines = list(_encode_fields(value, depth + 1))
        yield f"{margin}- {lines[0].lstrip()}" if lines else f"{margin}-"
        yield from lines[1:]
    elif _is_list(value):
        first, *rest = _encode_list("", value, depth)
        yield f"{margin}- {first.lstrip()}"
        yield from rest
    else:
        yield f"{margin}- {_encode_scalar(value)}"


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _encode_key(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else _quote(key)


def _encode_scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value if _PLAIN_TEXT.fullmatch(value) and value not in _WORDS else _quote(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return repr(value)


def _quote(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'

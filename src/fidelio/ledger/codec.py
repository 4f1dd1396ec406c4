"""JSON as the ledger keeps it: one text per value, whatever order the caller's keys came in.

The chain commits to the text of a body, so two processes must write the same value as the same text. And what is read back must
be what was given: the encoder underneath would turn a NaN into null and a date into a string without a word, so everything that
is not plain JSON is refused before it gets there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from fidelio.errors import BadRecord
from fidelio.ledger.model import Json

MAX_TEXT = 1 << 20
MAX_DEPTH = 64
# Digits enough for a number of more than 64 bits, when all digits are written alike.
_LONG_NUMBER = b"0" * 19
_ALIKE = bytes.maketrans(b"123456789", b"000000000")
_INTEGERS = range(-(1 << 63), 1 << 64)

_encoder = msgspec.json.Encoder(order="deterministic")
_objects = msgspec.json.Decoder(dict[str, Any])
_lists = msgspec.json.Decoder(list[dict[str, Any]])
_anything = msgspec.json.Decoder()


def encode(value: Json | Sequence[Json], what: str) -> str:
    """The text of `value`. `what` names the value in the error, for whoever has to find it."""
    try:
        raw = _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        _check(value, what, 0)
        raise BadRecord(f"The {what} cannot be written as JSON: {error}.") from error
    if not _is_plainly_sound(raw, value):
        _check(value, what, 0)
    return _bounded(raw.decode(), what)


def encode_record(record: Json | msgspec.Struct) -> str:
    """The text of a session's record. A struct is written as it is: its events were looked through, and it is made of them."""
    if not isinstance(record, msgspec.Struct):
        return encode(record, "record")
    try:
        return _bounded(_encoder.encode(record).decode(), "record")
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadRecord(f"The record cannot be written as JSON: {error}.") from error


def _bounded(text: str, what: str) -> str:
    if len(text) > MAX_TEXT:
        raise BadRecord(
            f"The {what} has {len(text)} characters; the ledger takes up to {MAX_TEXT}.",
            remedy="Put large content into a blob and refer to it by its digest.",
        )
    return text


def decode(raw: str) -> dict[str, Any]:
    return _objects.decode(raw)


def decode_list(raw: str) -> tuple[dict[str, Any], ...]:
    return tuple(_lists.decode(raw))


def _is_plainly_sound(raw: bytes, value: object) -> bool:
    """Whether it is neither too deep nor has a long number, and reads back the same. What is not is looked at closely."""
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH or _LONG_NUMBER in raw.translate(_ALIKE):
        return False
    return bool(_anything.decode(raw) == value)


def _check(value: object, what: str, depth: int) -> None:
    # One call per list or object and none for what is in it.
    if type(value) is dict:
        _check_keys(value, what)
        items: Iterable[object] = value.values()
    elif type(value) is list or type(value) is tuple:
        items = value
    else:
        _check_scalar(value, what)
        return
    if depth >= MAX_DEPTH:
        raise BadRecord(f"The {what} is nested deeper than {MAX_DEPTH} levels.")
    for item in items:
        kind = type(item)
        if not (kind is str or kind is bool or item is None or (kind is int and item in _INTEGERS)):
            _check(item, what, depth + 1)


def _check_keys(value: dict[object, object], what: str) -> None:
    for key in value:
        if type(key) is not str:
            raise BadRecord(f"The {what} has the key {key!r}; JSON keys are text.")


def _check_scalar(value: object, what: str) -> None:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return
    if (kind is int and value in _INTEGERS) or (type(value) is float and math.isfinite(value)):
        return
    raise BadRecord(
        f"The {what} holds {value!r:.80}, which JSON cannot give back unchanged.",
        remedy="Use only text, finite numbers of up to 64 bits, true, false, null, lists and objects.",
    )

"""JSON codec of the ledger: deterministic encoding, and refusal of values that JSON cannot represent exactly.

The hash chain covers the text of a body, so equal values must become equal texts in every process; keys are sorted. msgspec
would encode NaN as null and a date as a string without an error, so everything that is not plain JSON is refused first.
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
# A run of 19 digits may be an integer that does not fit into 64 bits. All digits are mapped to 0 to find such a run.
_LONG_NUMBER = b"0" * 19
_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_INTEGERS = range(-(1 << 63), 1 << 64)

_encoder = msgspec.json.Encoder(order="deterministic")
_object_decoder = msgspec.json.Decoder(dict[str, Any])
_list_decoder = msgspec.json.Decoder(list[dict[str, Any]])
_any_decoder = msgspec.json.Decoder()


def encode(value: Json | Sequence[Json], what: str) -> str:
    """Encode `value` as JSON text. `what` names the value in error messages."""
    try:
        raw = _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        _check(value, what, 0)
        raise BadRecord(f"The {what} cannot be written as JSON: {error}.") from error
    if not _round_trips(raw, value):
        _check(value, what, 0)
    return _check_length(raw.decode(), what)


def encode_record(record: Json | msgspec.Struct) -> str:
    """Encode the record of a session. A struct is not validated: it is folded from events that were validated."""
    if not isinstance(record, msgspec.Struct):
        return encode(record, "record")
    try:
        return _check_length(_encoder.encode(record).decode(), "record")
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadRecord(f"The record cannot be written as JSON: {error}.") from error


def _check_length(text: str, what: str) -> str:
    if len(text) > MAX_TEXT:
        raise BadRecord(
            f"The {what} has {len(text)} characters; the limit is {MAX_TEXT}.",
            remedy="Put large content into a blob and refer to it by its digest.",
        )
    return text


def decode(raw: str) -> dict[str, Any]:
    return _object_decoder.decode(raw)


def decode_list(raw: str) -> tuple[dict[str, Any], ...]:
    return tuple(_list_decoder.decode(raw))


def _round_trips(raw: bytes, value: object) -> bool:
    """Fast test that `raw` decodes to `value` and may be neither too deep nor hold an oversized integer."""
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH or _LONG_NUMBER in raw.translate(_DIGITS_TO_ZERO):
        return False
    return bool(_any_decoder.decode(raw) == value)


def _check(value: object, what: str, depth: int) -> None:
    # Scalars inside a list or object are tested inline: a call for each of them would dominate the cost.
    if type(value) is dict:
        _check_keys(value, what)
        items: Iterable[object] = value.values()
    elif type(value) is list or type(value) is tuple:
        items = value
    else:
        _check_scalar(value, what)
        return
    if depth >= MAX_DEPTH:
        raise BadRecord(f"The {what} is nested deeper than {MAX_DEPTH} levels.", remedy="Flatten it.")
    for item in items:
        kind = type(item)
        if not (kind is str or kind is bool or item is None or (kind is int and item in _INTEGERS)):
            _check(item, what, depth + 1)


def _check_keys(value: dict[object, object], what: str) -> None:
    for key in value:
        if type(key) is not str:
            raise BadRecord(f"The {what} has the key {key!r}; JSON keys are text.", remedy="Use strings as keys.")


def _check_scalar(value: object, what: str) -> None:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return
    if (kind is int and value in _INTEGERS) or (type(value) is float and math.isfinite(value)):
        return
    raise BadRecord(
        f"The {what} holds {value!r:.80}, which JSON cannot represent exactly.",
        remedy="Use only text, finite numbers of up to 64 bits, true, false, null, lists and objects.",
    )

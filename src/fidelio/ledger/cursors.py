"""Opaque cursors for keyset pagination.

A cursor holds the name of its list and the sort key of the last item, not an offset: a page costs the same at any depth, and
items that are added or deleted between two pages neither repeat nor hide others.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from fidelio.errors import BadRecord

MAX_PAGE_SIZE = 10_000


def encode_cursor(list_name: str, *key: int | str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([list_name, *key])).decode().rstrip("=")


def decode_number_cursor(cursor: str | None, list_name: str) -> int | None:
    """The number that `to_cursor(list_name, number)` sealed; None stands for the first page."""
    if cursor is None:
        return None
    key = _decode(cursor, list_name)
    if type(key) is not int or not 0 <= key < 1 << 63:
        raise _invalid_cursor(list_name)
    return key


def decode_text_cursor(cursor: str | None, list_name: str) -> str | None:
    if cursor is None:
        return None
    key = _decode(cursor, list_name)
    if not isinstance(key, str):
        raise _invalid_cursor(list_name)
    return key


def clamp_page_size(limit: int) -> int:
    """Limit a page size to `MAX_PAGE_SIZE`; raise `BadRecord` if it is below 1."""
    if limit < 1:
        raise BadRecord(f"The page size is {limit}.", remedy="Use 1 or more.")
    return min(limit, MAX_PAGE_SIZE)


def _decode(cursor: str, list_name: str) -> object:
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=tuple[str, int | str])
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise _invalid_cursor(list_name) from error
    if found[0] != list_name:
        raise _invalid_cursor(list_name)
    return found[1]


def _invalid_cursor(list_name: str) -> BadRecord:
    return BadRecord(
        f"This is not a cursor of the list of {list_name}.", remedy="Pass the `next` of the previous page without changes."
    )

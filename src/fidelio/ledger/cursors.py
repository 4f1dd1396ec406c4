"""Where the next page begins, as a text the caller hands back and need not understand.

A cursor holds the sort key of the last item and the list it belongs to, never an offset: a page stays cheap however far in it
is, and items that appear or vanish in between neither repeat nor hide others.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from fidelio.errors import BadRecord

LARGEST_PAGE = 10_000


def to_cursor(of: str, *key: int | str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([of, *key])).decode().rstrip("=")


def from_number(cursor: str | None, of: str) -> int | None:
    """The number that `to_cursor(of, number)` sealed; None stands for the first page."""
    if cursor is None:
        return None
    key = _opened(cursor, of)
    if type(key) is not int or not 0 <= key < 1 << 63:
        raise _refusal(of)
    return key


def from_text(cursor: str | None, of: str) -> str | None:
    if cursor is None:
        return None
    key = _opened(cursor, of)
    if not isinstance(key, str):
        raise _refusal(of)
    return key


def page_size(limit: int) -> int:
    """What the caller asked for, inside what one answer may hold."""
    if limit < 1:
        raise BadRecord(f"A page of {limit} items was asked for.", remedy="Ask for at least one.")
    return min(limit, LARGEST_PAGE)


def _opened(cursor: str, of: str) -> object:
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=tuple[str, int | str])
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise _refusal(of) from error
    if found[0] != of:
        raise _refusal(of)
    return found[1]


def _refusal(of: str) -> BadRecord:
    return BadRecord(f"This is not a cursor of the list of {of}.", remedy="Pass on the `next` of the page before, unchanged.")

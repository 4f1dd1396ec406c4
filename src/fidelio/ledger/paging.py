"""Pages: reads a list to its end, and encodes the cursor at which the next page begins.

The reads of a `Ledger` return one bounded page. Code that folds or counts needs all of them: taking one page for the whole is
wrong from the 1,001st item on, and nobody notices before. This is the one place that follows the pages.

A cursor holds the sort key of the last item and the list it belongs to, never an offset: a page stays cheap however far in it
is, and items that appear or vanish in between neither repeat nor hide others. Callers hand it back unchanged.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from fidelio.errors import BadRecord
from fidelio.ledger.contract import Ledger
from fidelio.ledger.model import Event, Page

T = TypeVar("T")
PAGE = 1000


async def event_pages(
    ledger: Ledger, session: str, *, after: int = 0, types: Sequence[str] = ()
) -> AsyncIterator[tuple[Event, ...]]:
    """The events after a sequence number, in order, in pages that are not empty; up to the newest when the last was read."""
    while page := await ledger.events(session, after=after, types=types, limit=PAGE):
        yield page
        if len(page) < PAGE:
            return
        after = page[-1].seq
        # A read from SQLite does not suspend: other calls would wait for all pages of a long session.
        await asyncio.sleep(0)


async def all_events(ledger: Ledger, session: str, *, after: int = 0, types: Sequence[str] = ()) -> list[Event]:
    """What `event_pages` yields, in one list."""
    return [event async for page in event_pages(ledger, session, after=after, types=types) for event in page]


async def all_pages(read: Callable[..., Awaitable[Page[T]]]) -> AsyncIterator[T]:
    """The items of a list with cursors, such as `partial(ledger.sessions, kind="agent")`, over all its pages."""
    cursor: str | None = None
    while True:
        page = await read(cursor=cursor, limit=PAGE)
        for item in page.items:
            yield item
        if (cursor := page.next) is None:
            return
        await asyncio.sleep(0)


LARGEST_PAGE = 10_000


def to_cursor(of: str, *key: int | str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([of, *key])).decode().rstrip("=")


def from_number(cursor: str | None, of: str) -> int | None:
    """The number that `to_cursor(of, number)` sealed; None stands for the first page."""
    if cursor is None:
        return None
    key = _decode(cursor, of)
    if type(key) is not int or not 0 <= key < 1 << 63:
        raise _refusal(of)
    return key


def from_text(cursor: str | None, of: str) -> str | None:
    if cursor is None:
        return None
    key = _decode(cursor, of)
    if not isinstance(key, str):
        raise _refusal(of)
    return key


def page_size(limit: int) -> int:
    """What the caller asked for, inside what one answer may hold."""
    if limit < 1:
        raise BadRecord(f"A page of {limit} items was asked for.", remedy="Ask for at least one.")
    return min(limit, LARGEST_PAGE)


def _decode(cursor: str, of: str) -> object:
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=tuple[str, int | str])
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise _refusal(of) from error
    if found[0] != of:
        raise _refusal(of)
    return found[1]


def _refusal(of: str) -> BadRecord:
    return BadRecord(f"This is not a cursor of the list of {of}.", remedy="Pass on the `next` of the page before, unchanged.")

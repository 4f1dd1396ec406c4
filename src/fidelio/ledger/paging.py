"""Paging: cursors, and functions that read all pages of a list or all events of a session.

The reads of a `Ledger` return a bounded page. Code that folds or counts needs all pages: an error that only appears from the
1,001st item on if it reads the first page only. So all code that needs every item uses this module.
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
from fidelio.ledger.model import Event, Job, Page

T = TypeVar("T")
PAGE = 1000


async def event_pages(
    ledger: Ledger, session: str, *, after: int = 0, types: Sequence[str] = ()
) -> AsyncIterator[tuple[Event, ...]]:
    """Yield the events after a sequence number in non-empty pages, up to the newest event at the last read."""
    while page := await ledger.events(session, after=after, types=types, limit=PAGE):
        yield page
        if len(page) < PAGE:
            return
        after = page[-1].seq
        # A read from SQLite does not suspend: other calls would wait for all pages of a long session.
        await asyncio.sleep(0)


async def all_events(ledger: Ledger, session: str, *, after: int = 0, types: Sequence[str] = ()) -> list[Event]:
    """Read the pages of `event_pages` into a list."""
    return [event async for page in event_pages(ledger, session, after=after, types=types) for event in page]


async def all_jobs(ledger: Ledger, kind: str) -> list[Job]:
    """Read all queued jobs of a kind in due order."""
    found: list[Job] = []
    while page := await ledger.jobs(kind=kind, after=found[-1] if found else None, limit=PAGE):
        found += page
        if len(page) < PAGE:
            break
        await asyncio.sleep(0)
    return found


async def all_pages(read: Callable[..., Awaitable[Page[T]]]) -> AsyncIterator[T]:
    """Yield the items of all pages of a list with cursors, such as `partial(ledger.sessions, kind="agent")`."""
    cursor: str | None = None
    while True:
        page = await read(cursor=cursor, limit=PAGE)
        for item in page.items:
            yield item
        if (cursor := page.next) is None:
            return
        await asyncio.sleep(0)


MAX_PAGE_SIZE = 10_000


def encode_cursor(list_name: str, *key: int | str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([list_name, *key])).decode().rstrip("=")


def decode_number_cursor(cursor: str | None, list_name: str) -> int | None:
    """Decode the number in a cursor of `encode_cursor`; None for the first page."""
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

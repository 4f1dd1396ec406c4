"""Reads a whole list or all events of a session, page by page.

The reads of a `Ledger` return one bounded page. Code that folds or counts needs all of them: taking one page for the whole is
wrong from the 1,001st item on, and nobody notices before. This is the one place that follows the pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

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

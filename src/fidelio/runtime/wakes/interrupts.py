"""Watches a session for an interrupt, or its end, while a wake works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fidelio.ledger import Ledger
from fidelio.retry import cancel_tasks
from fidelio.runtime import events as e


@asynccontextmanager
async def watch_interrupts(ledger: Ledger, session: str, *, after: int) -> AsyncIterator[asyncio.Event]:
    """Yield an event that is set when the session is interrupted or ended, by any process."""
    interrupt = asyncio.Event()

    async def follow() -> None:
        async for _ in ledger.follow(session, after=after, types=(e.USER_INTERRUPT, e.ENDED)):
            interrupt.set()
            return

    task = asyncio.create_task(follow())
    try:
        yield interrupt
    finally:
        await cancel_tasks(task)

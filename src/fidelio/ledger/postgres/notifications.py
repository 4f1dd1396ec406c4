"""How a process hears of what others append: one connection that listens, for everybody in the process who waits.

It is opened when somebody first waits, and opened again by whoever waits when it was lost. A notification only says that
there may be something to read; what there is, is always read from the tables, so one that gets lost costs time and nothing
else.
"""

from __future__ import annotations

import asyncio

import asyncpg

from fidelio.ledger.postgres.database import Database
from fidelio.ledger.postgres.errors import named

CHANNEL = "fidelio_events"
# A way that went silent without a word is found out after this time at the latest.
GLANCE_SECONDS = 15.0


class News:
    """The listening connection. `listen` before reading, then wait for what it returned: nothing falls in between."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._connecting = asyncio.Lock()
        self._changed = asyncio.Event()

    async def listen(self) -> asyncio.Event:
        """Set at the next append of anybody, and when listening ends."""
        async with self._connecting:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._listening()
        return self._changed

    async def close(self) -> None:
        """Ends the waiting of everybody; the database must refuse by now, or they would begin again."""
        async with self._connecting:
            if self._connection is not None:
                self._connection.terminate()
        self._ring()

    async def _listening(self) -> asyncpg.Connection[asyncpg.Record]:
        connection = await self._database.connect()
        connection.add_termination_listener(self._ring)
        try:
            with named(self._database.where):
                await connection.add_listener(CHANNEL, self._ring)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _ring(self, *_: object) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


async def heard(changed: asyncio.Event, seconds: float) -> None:
    """Returns when there may be news, or after `seconds`."""
    try:
        async with asyncio.timeout(min(seconds, GLANCE_SECONDS)):
            await changed.wait()
    except TimeoutError:
        return

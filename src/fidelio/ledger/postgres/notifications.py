"""LISTEN connection: notifications of appended events for all waiting tasks of a process.

It is opened by the first task that waits, and reopened after it was lost. A notification only says that there may be new
events; they are always read from the tables, so a lost notification costs time and nothing else.
"""

from __future__ import annotations

import asyncio

import asyncpg

from fidelio.ledger.postgres.database import Database
from fidelio.ledger.postgres.errors import translate_errors

CHANNEL = "fidelio_events"
# Upper limit of a wait, after which the tables are polled: a broken connection may be silent.
POLL_SECONDS = 15.0


class NotificationListener:
    """The LISTEN connection. Call `listen` before reading and wait for its result afterwards, so that no event is missed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._connect_lock = asyncio.Lock()
        self._notification = asyncio.Event()

    async def listen(self) -> asyncio.Event:
        """Ensure that the connection listens; the result is set at the next append, or when the connection ends."""
        async with self._connect_lock:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect()
        return self._notification

    async def close(self) -> None:
        """Wake all waiting tasks. Call `refuse_new_work` of the database first, or they would listen again."""
        async with self._connect_lock:
            if self._connection is not None:
                self._connection.terminate()
        self._notify()

    async def _connect(self) -> asyncpg.Connection[asyncpg.Record]:
        connection = await self._database.connect()
        connection.add_termination_listener(self._notify)
        try:
            with translate_errors(self._database.address):
                await connection.add_listener(CHANNEL, self._notify)
        except BaseException:
            # Also on cancellation: no other code knows this connection.
            connection.terminate()
            raise
        return connection

    def _notify(self, *_: object) -> None:
        self._notification.set()
        self._notification = asyncio.Event()


async def wait_for_notification(notification: asyncio.Event, seconds: float) -> None:
    """Wait for a notification, at most `seconds`."""
    try:
        async with asyncio.timeout(min(seconds, POLL_SECONDS)):
            await notification.wait()
    except TimeoutError:
        return

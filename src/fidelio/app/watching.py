"""Live updates: a watcher of the ledger in each process tells every open page and stream that something has changed.

It tells only the position of the newest event; whoever follows it then reads what is new. So a page that was away, also while
the server was restarted, misses nothing and shows nothing twice. Nothing polls: the watcher sleeps until the ledger changes,
however many pages and streams are open.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress

from fidelio.app.records import Records
from fidelio.retry import restart_on_failure

# A sign of life keeps the connection open through proxies.
KEEP_ALIVE_SECONDS = 25.0
# A busy ledger commits hundreds of times a second; a person does not need a page that often.
QUIET_SECONDS = 0.05
WAIT_SECONDS = 30.0
MAX_STREAMS = 256


class Watcher:
    """Knows the newest position of the ledger and wakes those who wait for a newer position."""

    def __init__(self, open_records: Callable[[], Awaitable[Records]]) -> None:
        self._open_records = open_records
        self._position = 0
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._streams = 0

    @property
    def has_room(self) -> bool:
        """Whether another page or stream can follow."""
        return self._streams < MAX_STREAMS

    @property
    def streams(self) -> int:
        """How many pages and streams are open."""
        return self._streams

    async def follow(self, after: int) -> AsyncGenerator[int, None]:
        """The newest position: at once if it is beyond `after`, then after changes. The same again is a sign of life.

        Does not end by itself. Close it, or it counts as open until it is collected.
        """
        self._streams += 1
        try:
            self._start()
            while True:
                after = await self._wait(after)
                yield after
        finally:
            self._streams -= 1
            if not self._streams:
                self._stop()

    async def _wait(self, after: int) -> int:
        """The newest position as soon as it is beyond `after`, or `after` when it is time for a sign of life."""
        with suppress(TimeoutError):
            async with asyncio.timeout(KEEP_ALIVE_SECONDS), self._changed:
                await self._changed.wait_for(lambda: self._position > after)
                return self._position
        return after

    def _start(self) -> None:
        if self._task is None or self._task.done():
            # A ledger that is busy for a moment must not leave every open page at its present state. `_stop` cancels it.
            work = restart_on_failure(self._watch, name="Watching the ledger for open pages and streams", until=asyncio.Event())
            self._task = asyncio.create_task(work)

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _watch(self) -> None:
        records = await self._open_records()
        position = await records.wait(after=0, timeout=0)
        while True:
            async with self._changed:
                self._position = position
                self._changed.notify_all()
            # The first commit after a pause is shown at once; those that follow it closely are shown together.
            await asyncio.sleep(QUIET_SECONDS)
            position = await records.wait(after=position, timeout=WAIT_SECONDS)

"""Where messages go: written at once while the client reads, kept back in order while it does not.

The write never blocks the loop, so a client that stops reading cannot keep us from being stopped. How much is kept back is
shown, so that whoever produces replies can stop taking requests.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


class Outlet:
    """One descriptor. `relieved` is called when everything kept back has gone, `broken` when nobody can read any more."""

    def __init__(self, sink: int, *, relieved: Callable[[], None], broken: Callable[[], None]) -> None:
        self._sink = sink
        self._relieved = relieved
        self._broken = broken
        self._kept = bytearray()
        self._empty = asyncio.Event()
        self._empty.set()
        self._gone = False
        self._loop = asyncio.get_running_loop()
        os.set_blocking(sink, False)

    @property
    def kept(self) -> int:
        return len(self._kept)

    def write(self, data: bytes) -> None:
        if self._gone:
            return
        if self._kept:
            self._kept += data
            return
        written = self._try(data)
        if written < len(data) and not self._gone:
            self._kept += data[written:]
            self._empty.clear()
            self._loop.add_writer(self._sink, self._go_on)

    def _try(self, data: bytes | memoryview) -> int:
        try:
            return os.write(self._sink, data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:  # whatever the reason is, this client will not get another byte
            self._give_up()
            return 0

    def _go_on(self) -> None:
        with memoryview(self._kept) as view:
            written = self._try(view)
        if self._gone:
            return
        del self._kept[:written]
        if not self._kept:
            self._stop_waiting()
            self._relieved()

    def _give_up(self) -> None:
        self._gone = True
        if self._kept:
            self._stop_waiting()
        self._broken()

    def _stop_waiting(self) -> None:
        self._loop.remove_writer(self._sink)
        self._kept = bytearray()
        self._empty.set()

    async def flush(self, timeout: float) -> None:
        """Waits until everything has gone, but not for ever: a client that does not read gets no more."""
        try:
            async with asyncio.timeout(timeout):
                await self._empty.wait()
        except TimeoutError:
            self._gone = True
            self._stop_waiting()

"""Non-blocking writer of standard output: writes at once while the client reads, buffers while it does not.

The write never blocks the loop, so a client that stops reading cannot keep us from being stopped. The size of the
buffer is public, so that the loop can stop reading requests.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable


class OutputWriter:
    """One descriptor. `drained` is called when the buffer is empty again, `broken` when the client can no longer read."""

    def __init__(self, sink: int, *, drained: Callable[[], None], broken: Callable[[], None]) -> None:
        self._sink = sink
        self._drained = drained
        self._broken = broken
        self._buffer = bytearray()
        self._empty = asyncio.Event()
        self._empty.set()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        os.set_blocking(sink, False)

    @property
    def unsent(self) -> int:
        return len(self._buffer)

    def write(self, data: bytes) -> None:
        if self._closed:
            return
        if self._buffer:
            self._buffer += data
            return
        written = self._try(data)
        if written < len(data) and not self._closed:
            self._buffer += data[written:]
            self._empty.clear()
            self._loop.add_writer(self._sink, self._write_more)

    def _try(self, data: bytes | memoryview) -> int:
        try:
            return os.write(self._sink, data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:  # whatever the reason is, this client will not get another byte
            self._give_up()
            return 0

    def _write_more(self) -> None:
        with memoryview(self._buffer) as view:
            written = self._try(view)
        if self._closed:
            return
        del self._buffer[:written]
        if not self._buffer:
            self._stop_waiting()
            self._drained()

    def _give_up(self) -> None:
        self._closed = True
        if self._buffer:
            self._stop_waiting()
        self._broken()

    def _stop_waiting(self) -> None:
        self._loop.remove_writer(self._sink)
        self._buffer = bytearray()
        self._empty.set()

    async def flush(self, timeout: float) -> None:
        """Waits until the buffer is empty, at most `timeout` seconds; what a client does not read until then is dropped."""
        try:
            async with asyncio.timeout(timeout):
                await self._empty.wait()
        except TimeoutError:
            self._closed = True
            self._stop_waiting()

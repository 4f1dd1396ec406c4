"""Reader of standard input and non-blocking writer of standard output.

The reader splits the bytes of any kind of file into lines of bounded length. The writer writes at once while the client reads,
and buffers in order while it does not.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

CHUNK = 64 * 1024


class LineSplitter:
    """Cuts a stream into lines. None stands for a line that was too long and was dropped as a whole."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begun = bytearray()
        self._dropping = False

    def feed(self, chunk: bytes) -> Iterator[bytes | None]:
        if chunk and chunk.find(b"\n") == len(chunk) - 1 <= self._limit and not (self._begun or self._dropping):
            # Nearly always: exactly one whole message.
            yield chunk[:-1]
            return
        first, *others = chunk.split(b"\n")
        self._keep(first)
        for following in others:
            yield None if self._dropping else bytes(self._begun)
            self._begun.clear()
            self._dropping = False
            self._keep(following)

    def _keep(self, part: bytes) -> None:
        if self._dropping or len(self._begun) + len(part) > self._limit:
            self._dropping = True
            self._begun.clear()
        else:
            self._begun += part


class InputReader(Protocol):
    """A source of bytes that can be paused."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


async def open_reader(source: int, received: Callable[[bytes], None], ended: Callable[[], None]) -> InputReader:
    """Calls `received` with every chunk, then `ended` once."""
    if _can_be_polled(source):
        return _PipeReader(source, received, ended)
    return _FileReader(source, received, ended)


def _can_be_polled(source: int) -> bool:
    mode = os.fstat(source).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(source)


class _PipeReader:
    """Reads whenever there is something, without the layers of a transport in between: this runs for every message."""

    def __init__(self, source: int, received: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._source = source
        self._received = received
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._is_reading = False
        self._closed = False
        os.set_blocking(source, False)
        self.resume()

    def _read(self) -> None:
        try:
            chunk = os.read(self._source, CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # torn away: there will be nothing more
            chunk = b""
        if chunk:
            self._received(chunk)
        else:
            self.close()
            self._ended()

    def pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._source)

    def resume(self) -> None:
        if not self._is_reading and not self._closed:
            self._is_reading = True
            self._loop.add_reader(self._source, self._read)

    def close(self) -> None:
        self._closed = True
        self.pause()


class _FileReader:
    """A file or a device cannot be polled, so a thread reads it."""

    def __init__(self, source: int, received: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._source = source
        self._received = received
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._may_read = threading.Event()
        self._may_read.set()
        self._closed = False
        threading.Thread(target=self._read, name="fidelio-stdin", daemon=True).start()

    def _read(self) -> None:
        while self._may_read.wait() and not self._closed:
            chunk = self._next()
            # One chunk at a time: whoever receives it says whether there may be more.
            self._may_read.clear()
            if not self._deliver(chunk) or not chunk:
                return

    def _next(self) -> bytes:
        try:
            return os.read(self._source, CHUNK)
        except OSError:  # closed or torn away: there will be nothing more
            return b""

    def _deliver(self, chunk: bytes) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._receive, chunk)
        except RuntimeError:  # the loop has ended, and nobody waits for the rest
            return False
        return True

    def _receive(self, chunk: bytes) -> None:
        self._may_read.set()
        if chunk:
            self._received(chunk)
        else:
            self._ended()

    def pause(self) -> None:
        self._may_read.clear()

    def resume(self) -> None:
        self._may_read.set()

    def close(self) -> None:
        self._closed = True
        self._may_read.set()


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

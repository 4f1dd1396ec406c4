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
    """Splits a stream into lines. None stands for a line over the limit, which is dropped as a whole."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._partial = bytearray()
        self._is_dropping = False

    def feed(self, chunk: bytes) -> Iterator[bytes | None]:
        first, *rest = chunk.split(b"\n")
        self._append(first)
        for part in rest:
            yield None if self._is_dropping else bytes(self._partial)
            self._partial.clear()
            self._is_dropping = False
            self._append(part)

    def _append(self, part: bytes) -> None:
        if self._is_dropping or len(self._partial) + len(part) > self._limit:
            self._is_dropping = True
            self._partial.clear()
        else:
            self._partial += part


class InputReader(Protocol):
    """A source of bytes that can be paused."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


async def open_reader(source: int, on_chunk: Callable[[bytes], None], on_end: Callable[[], None]) -> InputReader:
    """Start a reader that calls `on_chunk` with every chunk, then `on_end` once."""
    if _can_be_polled(source):
        return _PipeReader(source, on_chunk, on_end)
    return _FileReader(source, on_chunk, on_end)


def _can_be_polled(source: int) -> bool:
    mode = os.fstat(source).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(source)


class _PipeReader:
    """Reads a pipe or socket when the event loop reports data; faster than an asyncio transport."""

    def __init__(self, source: int, on_chunk: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._source = source
        self._on_chunk = on_chunk
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._is_reading = False
        self._is_closed = False
        os.set_blocking(source, False)
        self.resume()

    def _read(self) -> None:
        try:
            chunk = os.read(self._source, CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # closed from outside: treat as end of file
            chunk = b""
        if chunk:
            self._on_chunk(chunk)
        else:
            self.close()
            self._on_end()

    def pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._source)

    def resume(self) -> None:
        if not self._is_reading and not self._is_closed:
            self._is_reading = True
            self._loop.add_reader(self._source, self._read)

    def close(self) -> None:
        self._is_closed = True
        self.pause()


class _FileReader:
    """Reads a file or a device, which cannot be polled, in a thread."""

    def __init__(self, source: int, on_chunk: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._source = source
        self._on_chunk = on_chunk
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._may_read = threading.Event()
        self._may_read.set()
        self._is_closed = False
        threading.Thread(target=self._read, name="fidelio-stdin", daemon=True).start()

    def _read(self) -> None:
        while self._may_read.wait() and not self._is_closed:
            chunk = self._read_chunk()
            # Wait until the loop has received the chunk: it may pause the reader.
            self._may_read.clear()
            if not self._deliver(chunk) or not chunk:
                return

    def _read_chunk(self) -> bytes:
        try:
            return os.read(self._source, CHUNK)
        except OSError:  # closed from outside: treat as end of file
            return b""

    def _deliver(self, chunk: bytes) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._receive, chunk)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _receive(self, chunk: bytes) -> None:
        self._may_read.set()
        if chunk:
            self._on_chunk(chunk)
        else:
            self._on_end()

    def pause(self) -> None:
        self._may_read.clear()

    def resume(self) -> None:
        self._may_read.set()

    def close(self) -> None:
        self._is_closed = True
        self._may_read.set()


class OutputWriter:
    """Writes to a descriptor. Calls `on_drained` when the buffer becomes empty, `on_broken` when writing fails."""

    def __init__(self, sink: int, *, on_drained: Callable[[], None], on_broken: Callable[[], None]) -> None:
        self._sink = sink
        self._on_drained = on_drained
        self._on_broken = on_broken
        self._buffer = bytearray()
        self._empty = asyncio.Event()
        self._empty.set()
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        os.set_blocking(sink, False)

    @property
    def unsent(self) -> int:
        return len(self._buffer)

    def write(self, data: bytes) -> None:
        if self._is_closed:
            return
        if self._buffer:
            self._buffer += data
            return
        count = self._try_write(data)
        if count < len(data) and not self._is_closed:
            self._buffer += data[count:]
            self._empty.clear()
            self._loop.add_writer(self._sink, self._write_more)

    def _try_write(self, data: bytes | memoryview) -> int:
        try:
            return os.write(self._sink, data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:  # the client cannot be reached any more, whatever the reason
            self._close_broken()
            return 0

    def _write_more(self) -> None:
        with memoryview(self._buffer) as view:
            count = self._try_write(view)
        if self._is_closed:
            return
        del self._buffer[:count]
        if not self._buffer:
            self._stop_waiting()
            self._on_drained()

    def _close_broken(self) -> None:
        self._is_closed = True
        if self._buffer:
            self._stop_waiting()
        self._on_broken()

    def _stop_waiting(self) -> None:
        self._loop.remove_writer(self._sink)
        self._buffer = bytearray()
        self._empty.set()

    async def flush(self, timeout: float) -> None:
        """Wait until the buffer is empty, at most `timeout` seconds; then drop what the client has not read."""
        try:
            async with asyncio.timeout(timeout):
                await self._empty.wait()
        except TimeoutError:
            self._is_closed = True
            self._stop_waiting()

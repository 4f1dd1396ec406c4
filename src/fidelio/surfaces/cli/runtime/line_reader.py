"""Lines of standard input without blocking the event loop.

A thread that waits for a terminal cannot be ended, so the process would hang at its exit until the person presses a key.
Terminals and pipes are therefore watched by the event loop. A file never blocks and is read in a thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TextIO

_CHUNK = 65_536
# A line that is longer is cut into several, so that an endless one does not fill the memory.
_LONGEST = 1_000_000


class LineReader:
    """Reads lines. Used as a context manager, it watches the stream only during the block."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._is_ended = False
        self._arrived = asyncio.Event()
        self._descriptor = -1
        self._is_watching = False

    @property
    def is_terminal(self) -> bool:
        return self._stream.isatty()

    def __enter__(self) -> Self:
        try:
            self._descriptor = self._stream.fileno()
            self._watch()
        except (OSError, ValueError):
            # A file, or a stream without a descriptor.
            self._descriptor = -1
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._unwatch()

    async def read(self) -> str | None:
        """The next line without its end; None at the end of the input. May be cancelled: nothing is lost."""
        if self._descriptor < 0:
            text = await asyncio.to_thread(self._stream.readline, _LONGEST)
            return text.rstrip("\r\n") if text else None
        while (line := self._pop_line()) is None and not self._is_ended:
            self._watch()
            self._arrived.clear()
            await self._arrived.wait()
        return line

    @contextmanager
    def released(self) -> Iterator[None]:
        """Watch nothing during the block, in which another reader uses the stream."""
        self._unwatch()
        try:
            yield
        finally:
            self._watch()

    def _watch(self) -> None:
        if not self._is_watching and self._descriptor >= 0:
            asyncio.get_running_loop().add_reader(self._descriptor, self._fill)
            self._is_watching = True

    def _unwatch(self) -> None:
        if self._is_watching:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._is_watching = False

    def _fill(self) -> None:
        """Read what is there. Only the event loop calls it, when a read does not block: a second read could."""
        try:
            chunk = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            # The terminal was closed.
            chunk = b""
        self._buffer += chunk
        self._is_ended = not chunk
        # A program that writes without end is read no further until somebody wants its lines.
        if self._is_ended or len(self._buffer) >= _LONGEST:
            self._unwatch()
        self._arrived.set()

    def _pop_line(self) -> str | None:
        end = self._buffer.find(b"\n") + 1
        if not end and (self._is_ended or len(self._buffer) >= _LONGEST):
            end = min(len(self._buffer), _LONGEST)
        if not end:
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[:end]
        return line.decode(self._stream.encoding or "utf-8", "replace").rstrip("\r\n")

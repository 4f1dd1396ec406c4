"""Reading a file that somebody else is still writing, line by line.

The output of an agent is a file and not a pipe, because a pipe ends with the process that reads it. There is nothing to wait on
in a growing file, so it is looked at often while it grows and seldom while it does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import BinaryIO

_CHUNK = 1 << 18
_SHORTEST, _LONGEST = 0.005, 0.1


async def chunks(file: BinaryIO, is_over: Callable[[], bool]) -> AsyncIterator[bytes]:
    """What is in the file and what comes after, until nothing more can come. Empty where there was nothing for a while."""
    pause = _SHORTEST
    while True:
        # Asked before reading: what was written before the end is then read after it.
        over = is_over()
        chunk = file.read(_CHUNK)
        yield chunk
        if chunk:
            pause = _SHORTEST
            await asyncio.sleep(0)
        elif over:
            return
        else:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST)


class Lines:
    """Cuts chunks into lines. How long one may be is not decided here: whoever feeds counts what it feeds."""

    def __init__(self) -> None:
        self._line = bytearray()

    def feed(self, chunk: bytes) -> list[str]:
        """The lines that the chunk completes."""
        first, *others = chunk.split(b"\n")
        self._line += first
        finished = []
        for part in others:
            finished.append(self._take())
            self._line += part
        return finished

    def rest(self) -> list[str]:
        """The last line, when it does not end in a newline."""
        return [self._take()] if self._line else []

    def _take(self) -> str:
        line = self._line.decode("utf-8", "replace").removesuffix("\r")
        self._line.clear()
        return line

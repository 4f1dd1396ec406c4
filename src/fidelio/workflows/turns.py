"""Turns: the calls of one process on one session are carried out one after the other.

All at once, every one of them but the first would have decided in vain and would have to decide again. Nearly always a call is
alone, so that has to cost nothing: a session that nobody works on is not in here.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """Whoever takes a turn gives it back, and the next in line has it."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}

    async def take(self, session: str) -> None:
        line = self._lines.get(session)
        if line is None:
            self._lines[session] = deque()
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            # The turn may have come in the same moment; then nobody else would give it back.
            if not mine.cancelled():
                self.give(session)
            raise

    def give(self, session: str) -> None:
        line = self._lines[session]
        while line:
            following = line.popleft()
            if not following.done():
                following.set_result(None)
                return
        del self._lines[session]

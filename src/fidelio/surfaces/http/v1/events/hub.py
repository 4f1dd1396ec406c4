"""The open event streams of a process: how many there may be, and the task that follows the ledger for all of them.

A stream is only told that there is something to read, so an idle one costs nothing, however many others there are.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus

from fidelio.retry import restart_on_failure
from fidelio.runtime.reading import SessionReader
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.surfaces.http.v1.errors import ApiProblem

# Below the number of connections that a peer may have, so that its other requests get through.
MAX_STREAMS = 240


class StreamHub:
    """The open streams of a process, by the sessions whose events they show."""

    most = MAX_STREAMS

    def __init__(self) -> None:
        self._signals: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._count = 0
        self._follower: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    def check_room(self) -> None:
        """Refuse another stream if there are too many. Raises 429."""
        if self._count >= self.most:
            message = f"{self._count} event streams are open, and the server keeps no more. Close some of them."
            headers = {"retry-after": "5"}
            raise ApiProblem(message, status=HTTPStatus.TOO_MANY_REQUESTS, type_="rate_limit_error", headers=headers)

    @contextmanager
    def open(self, context: RuntimeContext) -> Iterator[StreamSignal]:
        """A stream, which is counted until it is closed."""
        self._count += 1
        if self._follower is None:
            self._stopping = asyncio.Event()
            follow = restart_on_failure(
                lambda: self._follow(context), name="The follower of event streams", until=self._stopping
            )
            self._follower = asyncio.create_task(follow)
        signal = StreamSignal(self._signals)
        try:
            yield signal
        finally:
            signal.close()
            self._count -= 1
            if not self._count:
                self._stop()

    def _stop(self) -> None:
        self._stopping.set()
        if self._follower is not None:
            self._follower.cancel()
        self._follower = None

    async def _follow(self, context: RuntimeContext) -> None:
        log = SessionReader(context)
        newest = await log.wait(after=0, timeout=0)
        # What was committed before this moment, also after a failure of this task, is not followed: every stream looks once.
        for signals in self._signals.values():
            for signal in signals:
                signal.set()
        async for event in log.follow(after=newest):
            for signal in self._signals.get(event.session, ()):
                signal.set()


class StreamSignal:
    """Tells a stream that there is something to read."""

    def __init__(self, signals: defaultdict[str, set[asyncio.Event]]) -> None:
        self._signals, self._sessions = signals, set[str]()
        self.event = asyncio.Event()

    def watch(self, sessions: Iterable[str]) -> None:
        for session in set(sessions) - self._sessions:
            self._sessions.add(session)
            self._signals[session].add(self.event)

    def close(self) -> None:
        for session in self._sessions:
            self._signals[session].discard(self.event)
            if not self._signals[session]:
                del self._signals[session]

    async def wait(self, seconds: float) -> bool:
        """Wait until there is something to read; False if there was nothing for so long."""
        try:
            async with asyncio.timeout(seconds):
                await self.event.wait()
        except TimeoutError:
            return False
        self.event.clear()
        return True

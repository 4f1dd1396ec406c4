"""Who waits for news, and how the writer tells them.

Inside one process nobody polls: the writer knows what it has just committed and wakes exactly those who wait for it. Only while
somebody waits does it also look, a dozen times a second, whether another process has written.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from types import TracebackType
from typing import Self

from fidelio.errors import LedgerClosed


class Watch:
    """One wait for news, of one session or of any. Registered before the caller looks, so nothing falls in between."""

    def __init__(self, signals: Signals, session: str | None) -> None:
        self.session = session
        self.loop = asyncio.get_running_loop()
        self.news = asyncio.Event()
        self._signals = signals

    def __enter__(self) -> Self:
        self._signals.add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._signals.remove(self)


class Signals:
    """All watches of one ledger, over every event loop that uses it."""

    def __init__(self, first_watch: Callable[[], None]) -> None:
        self._watches: set[Watch] = set()
        self._lock = threading.Lock()
        self._first_watch = first_watch
        self._closed = False

    def __bool__(self) -> bool:
        return bool(self._watches)

    def add(self, watch: Watch) -> None:
        with self._lock:
            if self._closed:
                raise LedgerClosed("The ledger was closed.", remedy="Open it again.")
            first = not self._watches
            self._watches.add(watch)
        if first:
            self._first_watch()

    def remove(self, watch: Watch) -> None:
        with self._lock:
            self._watches.discard(watch)

    def close(self) -> None:
        """From here on nobody may wait, because nobody would be told; those who do are told now."""
        with self._lock:
            self._closed = True
        self.tell(None)

    def tell(self, sessions: Collection[str] | None) -> None:
        """There is news of these sessions, or (None) of some session somewhere."""
        if not self._watches:
            return
        by_loop: dict[asyncio.AbstractEventLoop, list[Watch]] = defaultdict(list)
        with self._lock:
            for watch in self._watches:
                if sessions is None or watch.session is None or watch.session in sessions:
                    by_loop[watch.loop].append(watch)
        for loop, watches in by_loop.items():
            call_in(loop, _wake, watches)


def call_in(loop: asyncio.AbstractEventLoop, callback: Callable[[list[Watch]], None], watches: list[Watch]) -> None:
    try:
        loop.call_soon_threadsafe(callback, watches)
    except RuntimeError:
        # The loop was closed while its tasks still waited: nobody is left to be told.
        return


def _wake(watches: Iterable[Watch]) -> None:
    for watch in watches:
        watch.news.set()

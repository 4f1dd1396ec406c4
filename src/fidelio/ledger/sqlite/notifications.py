"""Notifications of new events to tasks that wait for them.

Within a process the writer notifies the listeners of the sessions it has committed. Only while there are listeners does it also
poll, about 13 times a second, for commits of other processes.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from types import TracebackType
from typing import Self

from fidelio.errors import LedgerClosed


class Listener:
    """A task that waits for events of a session, or of any. Register it before reading, so that no event is missed."""

    def __init__(self, notifier: Notifier, session: str | None) -> None:
        self.session = session
        self.loop = asyncio.get_running_loop()
        self.notification = asyncio.Event()
        self._notifier = notifier

    def __enter__(self) -> Self:
        self._notifier.add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._notifier.remove(self)


class Notifier:
    """The listeners of a ledger, in all event loops that use it."""

    def __init__(self, on_first_listener: Callable[[], None]) -> None:
        self._listeners: set[Listener] = set()
        self._lock = threading.Lock()
        self._on_first_listener = on_first_listener
        self._is_closed = False

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, listener: Listener) -> None:
        with self._lock:
            if self._is_closed:
                raise LedgerClosed("The ledger was closed.", remedy="Open it again.")
            first = not self._listeners
            self._listeners.add(listener)
        if first:
            self._on_first_listener()

    def remove(self, listener: Listener) -> None:
        with self._lock:
            self._listeners.discard(listener)

    def close(self) -> None:
        """Notify all listeners for the last time and refuse new listeners, which would wait for ever."""
        with self._lock:
            self._is_closed = True
        self.notify(None)

    def notify(self, sessions: Collection[str] | None) -> None:
        """Notify the listeners of these sessions; None stands for all listeners."""
        if not self._listeners:
            return
        by_loop: dict[asyncio.AbstractEventLoop, list[Listener]] = defaultdict(list)
        with self._lock:
            for listener in self._listeners:
                if sessions is None or listener.session is None or listener.session in sessions:
                    by_loop[listener.loop].append(listener)
        for loop, listeners in by_loop.items():
            _call_in_loop(loop, _set_all, listeners)


def _call_in_loop(
    loop: asyncio.AbstractEventLoop, callback: Callable[[list[Listener]], None], listeners: list[Listener]
) -> None:
    try:
        loop.call_soon_threadsafe(callback, listeners)
    except RuntimeError:
        # The loop was closed, so its tasks no longer wait.
        return


def _set_all(listeners: Iterable[Listener]) -> None:
    for listener in listeners:
        listener.notification.set()

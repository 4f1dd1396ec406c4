"""Locks: by key inside a process, and by file between processes.

Calls of one process on one session are carried out one after the other: all at once, every one of them but the first would have
to decide again. Nearly always a call is alone, so that has to cost nothing: a key that nobody holds takes no memory.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import socket
from collections import deque
from pathlib import Path

from fidelio.home import Home


class KeyedLock:
    """One asyncio lock per key, first come, first served."""

    def __init__(self) -> None:
        self._waiters: dict[str, deque[asyncio.Future[None]]] = {}

    async def acquire(self, key: str) -> None:
        queue = self._waiters.get(key)
        if queue is None:
            self._waiters[key] = deque()
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            # The lock may have been handed over in the same moment; then nobody else would release it.
            if not mine.cancelled():
                self.release(key)
            raise

    def release(self, key: str) -> None:
        queue = self._waiters[key]
        while queue:
            following = queue.popleft()
            if not following.done():
                following.set_result(None)
                return
        del self._waiters[key]


def host_name(home: Home) -> str:
    """The host of this home on this machine, whichever process that is: the lock sees to it that there is one at a time."""
    return f"{socket.gethostname()[:100]}:{hashlib.sha256(str(home.path).encode(errors='replace')).hexdigest()[:12]}"


def host_lock(home: Home) -> Lock:
    """The right to carry out the agents of this home."""
    return Lock(home.ensure().agents_lock)


def is_hosted(home: Home) -> bool:
    """Whether some process carries out the agents of this home now."""
    lock = host_lock(home)
    if not lock.take():
        return True
    lock.release()
    return False


def worker_lock(home: Home) -> Lock:
    """The right to wait for that one in the background; a second one waiting would be of no use."""
    return Lock(home.ensure().worker_lock)


class Lock:
    """A right that one holder has at a time. It lasts until `release`, or until the process ends in whatever way."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    @property
    def held(self) -> bool:
        return self._handle is not None

    def take(self) -> bool:
        """False: another process, or another holder in this one, has it."""
        # Not passed on to children: an agent that outlives its host must not keep the next one from its work.
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return False
        self._handle = handle
        return True

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

"""Locks: `KeyedLock` between the calls of one process, `FileLock` between processes.

The lock files of a home decide which process is its agent host.
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
    """One asyncio lock per key, first come first served.

    Calls on one session that ran concurrently would all but the first decide in vain and have to decide again. A key that
    nobody holds has no entry, so the usual call, which is alone, costs one lookup.
    """

    def __init__(self) -> None:
        self._waiters: dict[str, deque[asyncio.Future[None]]] = {}

    async def acquire(self, key: str) -> None:
        waiters = self._waiters.get(key)
        if waiters is None:
            self._waiters[key] = deque()
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            # The lock may have been handed over in the same moment; then nobody else would release it.
            if not mine.cancelled():
                self.release(key)
            raise

    def release(self, key: str) -> None:
        waiters = self._waiters[key]
        while waiters:
            following = waiters.popleft()
            if not following.done():
                following.set_result(None)
                return
        del self._waiters[key]


class FileLock:
    """An exclusive lock on a file. It is held until `release`, or until the process ends in whatever way."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    @property
    def is_held(self) -> bool:
        return self._handle is not None

    def acquire(self) -> bool:
        """Try once, without waiting. False: another process, or another holder in this one, has it."""
        # Not inherited by children: an agent that outlives its host must not keep the next host from taking over.
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


def host_name(home: Home) -> str:
    """The name of the agent host of this home on this machine, whichever process it is: the lock admits one at a time."""
    return f"{socket.gethostname()[:100]}:{hashlib.sha256(str(home.path).encode(errors='replace')).hexdigest()[:12]}"


def host_lock(home: Home) -> FileLock:
    """Held by the agent host of this home."""
    return FileLock(home.ensure().agents_lock)


def is_hosted(home: Home) -> bool:
    """Whether some process is the agent host of this home now."""
    lock = host_lock(home)
    if not lock.acquire():
        return True
    lock.release()
    return False


def worker_lock(home: Home) -> FileLock:
    """Held by the background process that hosts, or waits to host, the agents of this home: a second one would be useless."""
    return FileLock(home.ensure().worker_lock)

"""Locks: `KeyedLock` between the calls in a process, `FileLock` between processes.

The lock files of a home decide which process is its agent host.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import socket
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fidelio.clock import now_ms
from fidelio.home import Home


class KeyedLock:
    """An asyncio lock for each key; waiters acquire it in the order in which they came.

    Of concurrent calls on one session only the first could commit, and the others would have to decide again. A key that is
    not held has no entry, so a call without concurrency costs one dictionary lookup.
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
            # The lock may have been passed to this waiter in the same moment; then no other code would release it.
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
    """An exclusive `flock` on a file, held until `release` or until the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    @property
    def is_held(self) -> bool:
        return self._handle is not None

    def acquire(self) -> bool:
        """Try to acquire without waiting. False: another process, or another holder in this process, has the lock."""
        # Not inherited by children: an agent that outlives its host must not keep the next host from taking over.
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return False
        self._handle = handle
        _note_holder(handle)
        return True

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


class LockHolder(NamedTuple):
    """The process that holds a lock, and since when in milliseconds."""

    process: int
    since: int


def find_holder(path: Path) -> LockHolder | None:
    """Who holds the lock of a file; None if nobody does, or an earlier version of Fidelio, which noted nothing."""
    try:
        note = path.read_text("ascii").split()
    except (OSError, UnicodeDecodeError):
        return None
    lock = FileLock(path)
    if len(note) != 2 or lock.acquire():
        lock.release()
        return None
    return LockHolder(int(note[0]), int(note[1]))


def _note_holder(handle: int) -> None:
    """Write who holds a lock into its file, for people who look for the process."""
    with suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()} {now_ms()}\n".encode(), 0)


def host_name(home: Home) -> str:
    """The name of the agent host of this home on this machine. It names no process: the lock admits a single host."""
    return f"{socket.gethostname()[:100]}:{hashlib.sha256(str(home.path).encode(errors='replace')).hexdigest()[:12]}"


def host_lock(home: Home) -> FileLock:
    """The lock that the agent host of this home holds."""
    return FileLock(home.ensure().agents_lock)


def is_hosted(home: Home) -> bool:
    """Whether a process is the agent host of this home now. Looking leaves no file behind."""
    if not home.agents_lock.exists():
        return False
    lock = host_lock(home)
    if not lock.acquire():
        return True
    lock.release()
    return False


def worker_lock(home: Home) -> FileLock:
    """The lock of the background worker that hosts, or waits to host, the agents of this home."""
    return FileLock(home.ensure().worker_lock)

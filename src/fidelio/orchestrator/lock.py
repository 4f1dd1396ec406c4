"""Who does something for a home that only one may do: known by a lock that the system takes back when its holder dies."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
from pathlib import Path

from fidelio.home import Home


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

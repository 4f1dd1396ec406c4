"""The mark of a run that its processes carry whatever they do with their environment.

It is a limit that limits nothing: how long a real-time task may compute without a pause. It is unlimited unless somebody sets
it, and we set it to more than a hundred years. Like every limit it goes on from a process to those it starts, through every
change of program, parent, group and session, and it can be read of processes that hide their environment.

Only the lower of the two limits is set, so an agent that is itself a host can mark agents of its own.
"""

from __future__ import annotations

import hashlib
import resource
from contextlib import suppress

# There is no such limit on other systems than Linux, and agents do not run as processes there.
_LIMIT: int | None = getattr(resource, "RLIMIT_RTTIME", None)
_LOWEST = 1 << 52
_BYTES = 6


def mark_of(run: str) -> int:
    return _LOWEST + int.from_bytes(hashlib.sha256(run.encode("utf-8", "replace")).digest()[:_BYTES])


def put_mark(pid: int, run: str) -> None:
    """Marks a child that is held, so that whatever it starts later is marked as well.

    Where this limit is in use for what it is meant for, or may not be set, the child is known by its environment alone.
    """
    _replace(pid, mark_of(run))


def remove_mark(pid: int) -> None:
    """For a child that is to outlive the run below which it was started."""
    _replace(pid, resource.RLIM_INFINITY)


def read_mark(pid: int) -> int | None:
    """None for a process that has none, is gone, or is not ours to look at."""
    if _LIMIT is None:
        return None
    try:
        lower, _ = resource.prlimit(pid, _LIMIT)
    except OSError:
        return None
    return lower if _is_mark(lower) else None


def _replace(pid: int, mark: int) -> None:
    if _LIMIT is None:
        return
    with suppress(OSError, ValueError):
        lower, upper = resource.prlimit(pid, _LIMIT)
        if lower == resource.RLIM_INFINITY or _is_mark(lower):
            resource.prlimit(pid, _LIMIT, (mark, upper))


def _is_mark(limit: int) -> bool:
    return _LOWEST <= limit < _LOWEST + (1 << 8 * _BYTES)

"""Cache of results that depend on files, valid until any of the files changes.

While a result is computed, every file and directory that it uses is recorded with its signature. A later request costs one stat
call for each of them. A result that depends on a file written within the last two seconds is computed again, because the clock
of a file system is too coarse: an edit that keeps the size can fall into the same tick.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from fidelio.clock import now_ms

# Coarser than the clock of any file system in use.
TICK_MS = 2_000
Signature = tuple[int, int, int, int, int]
Touched = dict[str, Signature | None]
T = TypeVar("T")


def make_signature(status: os.stat_result) -> Signature:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev


def read_signature(path: str) -> Signature | None:
    try:
        return make_signature(os.stat(path))  # noqa: PTH116  # done for every file on every access; Path costs several times as much
    except OSError:
        return None


def _is_settled(found: Signature | None) -> bool:
    return found is None or now_ms() - max(found[0], found[1]) // 1_000_000 > TICK_MS


class _CachedResult(NamedTuple):
    """A result and what it depends on, when `made_at` or last checked. `settled`: no file was changed a moment before that."""

    value: Any
    touched: Touched
    settled: bool
    made_at: float

    def is_unchanged(self) -> bool:
        # Inlined: this runs for every file of a workflow with every call, and a function call costs a fifth of the check.
        stat = os.stat
        if not self.settled:
            return False
        for path, cached in self.touched.items():
            try:
                found = stat(path)
            except OSError:
                if cached is not None:
                    return False
            else:
                if (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev) != cached:
                    return False
        return True


def _shows_in_directory(missing: str, touched: Touched) -> bool:
    """Whether creating the missing path would change a recorded directory; creating the target of a link would not."""
    return missing.rpartition(os.sep)[0] in touched and not os.path.lexists(missing)


class _Recording(threading.local):
    """What the result that this thread computes depends on; None if it computes none."""

    touched: Touched | None = None


class Memo:
    """The cache of the definitions: files with what was parsed from them, directories, and workflows made of them.

    Loading a workflow of 15 files takes 80 ms; checking the 18 paths that it depends on takes 26 microseconds, 3 percent of a
    session call. The memo is shared by the roots of a library, because a result may depend on several of them. There is no
    lock: in the worst case two threads compute the same result.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._results: dict[Hashable, _CachedResult] = {}
        self._recording = _Recording()

    def touch(self, path: str, found: Signature | None) -> None:
        """Record that the result that is being computed depends on the path. None means that the path does not exist."""
        if self._recording.touched is not None:
            self._recording.touched[path] = found

    def get_or_make(self, key: Hashable, make: Callable[[T | None], T], *, max_age: float = 0.0) -> T:
        """The cached result of `make`, if it is still valid. Exceptions are not cached.

        `make` is passed the earlier result, if any, and may return it again. For `max_age` seconds the files are not checked.
        """
        cached = self._results.get(key)
        if cached is not None and max_age and self._clock() - cached.made_at < max_age:
            pass
        elif cached is None or not cached.is_unchanged():
            cached = self._results[key] = self._make(make, cached.value if cached is not None else None)
        elif max_age:
            cached = self._results[key] = cached._replace(made_at=self._clock())
        if self._recording.touched is not None:
            self._recording.touched.update(cached.touched)
        value: T = cached.value
        return value

    def _make(self, make: Callable[[T | None], T], previous: T | None) -> _CachedResult:
        outer, own, made_at = self._recording.touched, Touched(), self._clock()
        self._recording.touched = own
        try:
            value = make(previous)
        finally:
            self._recording.touched = outer
            if outer is not None:
                outer.update(own)
        checked = {path: found for path, found in own.items() if found or not _shows_in_directory(path, own)}
        return _CachedResult(value, checked, all(map(_is_settled, own.values())), made_at)

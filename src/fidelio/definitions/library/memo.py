"""Cache of results that depend on files, valid until any of the files changes.

While a result is computed, every file and directory that it uses is recorded with its signature. A later request costs one stat
call for each of them. A result that depends on a file written within the last two seconds is computed again, because the clock
of a file system is too coarse.

Results that are requested often are watched with inotify, if it is available, and then need no stat calls while nothing
changes. They are still checked every second, because not every change causes an inotify event.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from fidelio.clock import now_ms

if TYPE_CHECKING:
    from fidelio.definitions.library.inotify import DirectoryWatch

# Coarser than the clock of any file system in use.
TICK_MS = 2_000
# Setting up a watch takes as long as many checks, and most results are requested only a few times.
CHECKS_BEFORE_WATCHING = 8
RECHECK_SECONDS = 1.0
Signature = tuple[int, int, int, int, int]
T = TypeVar("T")


def make_signature(status: os.stat_result) -> Signature:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev


def read_signature(path: str) -> Signature | None:
    try:
        return make_signature(os.stat(path))  # noqa: PTH116  # done for every file on every access; Path costs several times as much
    except OSError:
        return None


def is_settled(found: Signature) -> bool:
    return now_ms() - max(found[0], found[1]) // 1_000_000 > TICK_MS


def _is_unchanged(touched: dict[str, Signature | None]) -> bool:
    # Inlined: this runs for every file of a workflow with every call, and a function call costs as much as the check.
    stat = os.stat
    for path, cached in touched.items():
        if cached is None:
            if os.access(path, os.F_OK):
                return False
            continue
        try:
            found = stat(path)
        except OSError:
            return False
        if (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev) != cached:
            return False
    return True


def _shows_in_directory(missing: str, touched: dict[str, Signature | None]) -> bool:
    """Whether creating the missing path would change a recorded directory; creating the target of a link would not."""
    return missing.rpartition(os.sep)[0] in touched and not os.path.lexists(missing)


def _find_directories(touched: dict[str, Signature | None]) -> frozenset[str]:
    """The directories to watch for changes of these paths; empty if links or missing paths make watching incomplete."""
    if not all(touched.values()) or any(os.path.realpath(path) != os.path.normpath(path) for path in touched):
        return frozenset()
    # Not the parent of a directory: moving the directory causes an event of its own, and its siblings are irrelevant.
    return frozenset(str(path if path.is_dir() else path.parent) for path in map(Path, touched))


class _CachedResult:
    """A cached result. It needs no check while the watch counts `quiet_at` changes, until the time `quiet_until`."""

    __slots__ = ("checks", "directories", "quiet_at", "quiet_until", "settled", "touched", "value")

    def __init__(self, value: Any, touched: dict[str, Signature | None], *, settled: bool) -> None:
        self.value = value
        self.touched = touched
        self.settled = settled
        self.checks = 0
        self.directories: frozenset[str] | None = None
        self.quiet_at: int | None = None
        self.quiet_until = 0.0


class Memo:
    """The cache of a library; shared by its roots, because a result may depend on several of them."""

    def __init__(self) -> None:
        self._results: dict[Hashable, _CachedResult] = {}
        self._touched: dict[str, Signature | None] | None = None
        self._watch: DirectoryWatch | None = None
        self._may_watch = True

    def touch(self, path: str, found: Signature | None) -> None:
        """Record that the result that is being computed depends on the path. None means that the path does not exist."""
        if self._touched is not None:
            self._touched[path] = found

    def get_or_make(self, key: Hashable, make: Callable[[], T]) -> T:
        """The cached result of `make`, if it is still valid. Exceptions are not cached."""
        cached = self._results.get(key)
        if cached is None or not self._holds(cached):
            cached = self._results[key] = self._make(make)
        elif self._touched is not None:
            self._touched.update(cached.touched)
        value: T = cached.value
        return value

    def _holds(self, cached: _CachedResult) -> bool:
        if not cached.settled:
            return False
        watch = self._watch
        if watch is not None and cached.quiet_at == watch.count_changes() and monotonic() < cached.quiet_until:
            return True
        # First the watch, then the check: a change between the two is noticed by one of them.
        quiet_at = self._watch_position(cached)
        if not _is_unchanged(cached.touched):
            return False
        cached.quiet_at, cached.quiet_until = quiet_at, monotonic() + RECHECK_SECONDS
        return True

    def _watch_position(self, cached: _CachedResult) -> int | None:
        """The number of changes the watch has counted; None if the result is not watched."""
        cached.checks += 1
        if cached.checks < CHECKS_BEFORE_WATCHING or not self._may_watch:
            return None
        if cached.directories is None:
            cached.directories = _find_directories(cached.touched)
        watch = self._watch or self._start_watch()
        return watch.count_changes() if watch is not None and cached.directories and watch.add(cached.directories) else None

    def _start_watch(self) -> DirectoryWatch | None:
        try:
            from fidelio.definitions.library.inotify import DirectoryWatch  # noqa: PLC0415  # loaded with the first result that is requested often

            self._watch = DirectoryWatch()
        except (ImportError, OSError):
            # No ctypes, not Linux, or no free watches: checking the files works as well.
            self._may_watch = False
        return self._watch

    def _make(self, make: Callable[[], Any]) -> _CachedResult:
        outer, own = self._touched, dict[str, Signature | None]()
        self._touched = own
        try:
            value = make()
        finally:
            self._touched = outer
            if outer is not None:
                outer.update(own)
        looked_at = {path: found for path, found in own.items() if found or not _shows_in_directory(path, own)}
        return _CachedResult(value, looked_at, settled=all(found is None or is_settled(found) for found in own.values()))

"""Results that are remembered for as long as nothing on disk that they were made from has changed.

While a result is made, every file and directory that is looked at is noted with its signature. Asking again costs one look at
each of them and nothing else: no listing, no reading, no comparing. A result that was made from something that was written a
moment ago is made again, because the clock of a file system is too coarse to vouch for it.

What is asked for often is watched, where the system can do that, and then a quiet moment costs no look at all. A look is still
taken now and then, because not every change brings a notice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from fidelio.clock import now_ms

if TYPE_CHECKING:
    from fidelio.definitions.library.inotify import Watch

# Coarser than the clock of any file system in use.
TICK_MS = 2_000
# Setting up a watch takes as long as many looks, and most results are asked for only a few times.
LOOKS_BEFORE_WATCHING = 8
LOOK_AGAIN_SECONDS = 1.0
Signature = tuple[int, int, int, int, int]
T = TypeVar("T")


def signature(status: os.stat_result) -> Signature:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev


def signature_of(path: str) -> Signature | None:
    try:
        return signature(os.stat(path))  # noqa: PTH116  done for every file on every access; Path costs several times as much
    except OSError:
        return None


def settled(found: Signature) -> bool:
    return now_ms() - max(found[0], found[1]) // 1_000_000 > TICK_MS


def _unchanged(touched: dict[str, Signature | None]) -> bool:
    # Written out: this is done for every file of a workflow with every call, and calling anything costs as much as looking.
    stat = os.stat
    for path, known in touched.items():
        if known is None:
            if os.access(path, os.F_OK):
                return False
            continue
        try:
            found = stat(path)
        except OSError:
            return False
        if (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev) != known:
            return False
    return True


def _shows_in_directory(missing: str, touched: dict[str, Signature | None]) -> bool:
    """Whether its appearance changes a directory that is looked at anyway; that of a link's target does not."""
    return missing.rpartition(os.sep)[0] in touched and not os.path.lexists(missing)


def _directories(touched: dict[str, Signature | None]) -> frozenset[str]:
    """Where every change of these shows; empty where some changes would not, because of links or of what is not there."""
    if not all(touched.values()) or any(os.path.realpath(path) != os.path.normpath(path) for path in touched):
        return frozenset()
    # Not the parent of a directory: a directory that is moved away says so itself, and beside it lie things of others.
    return frozenset(str(path if path.is_dir() else path.parent) for path in map(Path, touched))


class _Remembered:
    """A result. While the watch still stands at `quiet_at`, and until `quiet_until`, nobody has to look whether it holds."""

    __slots__ = ("directories", "looks", "quiet_at", "quiet_until", "settled", "touched", "value")

    def __init__(self, value: Any, touched: dict[str, Signature | None], *, settled: bool) -> None:
        self.value = value
        self.touched = touched
        self.settled = settled
        self.looks = 0
        self.directories: frozenset[str] | None = None
        self.quiet_at: int | None = None
        self.quiet_until = 0.0


class Memo:
    """One for all the files of a library, because a result may be made from several roots."""

    def __init__(self) -> None:
        self._results: dict[Hashable, _Remembered] = {}
        self._touched: dict[str, Signature | None] | None = None
        self._watch: Watch | None = None
        self._may_watch = True

    def touch(self, path: str, found: Signature | None) -> None:
        """Notes that whatever is being made depends on this. None is for what is not there: it holds until something is."""
        if self._touched is not None:
            self._touched[path] = found

    def remembered(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gave last time, if that still holds. What it raises is not remembered."""
        known = self._results.get(key)
        if known is None or not self._holds(known):
            known = self._results[key] = self._made(make)
        elif self._touched is not None:
            self._touched.update(known.touched)
        value: T = known.value
        return value

    def _holds(self, known: _Remembered) -> bool:
        if not known.settled:
            return False
        watch = self._watch
        if watch is not None and known.quiet_at == watch.times() and monotonic() < known.quiet_until:
            return True
        # First the watch and then the look: what changes in between is in one of the two.
        quiet_at = self._watched(known)
        if not _unchanged(known.touched):
            return False
        known.quiet_at, known.quiet_until = quiet_at, monotonic() + LOOK_AGAIN_SECONDS
        return True

    def _watched(self, known: _Remembered) -> int | None:
        """Where the watch stands, for what it covers; None for everything else."""
        known.looks += 1
        if known.looks < LOOKS_BEFORE_WATCHING or not self._may_watch:
            return None
        if known.directories is None:
            known.directories = _directories(known.touched)
        watch = self._watch or self._begin_to_watch()
        return watch.times() if watch is not None and known.directories and watch.add(known.directories) else None

    def _begin_to_watch(self) -> Watch | None:
        try:
            from fidelio.definitions.library.inotify import Watch  # noqa: PLC0415  # not before something is asked for often

            self._watch = Watch()
        except (ImportError, OSError):
            # A Python without ctypes, another system than Linux, or too many watches already: looking does it as well.
            self._may_watch = False
        return self._watch

    def _made(self, make: Callable[[], Any]) -> _Remembered:
        outer, mine = self._touched, dict[str, Signature | None]()
        self._touched = mine
        try:
            value = make()
        finally:
            self._touched = outer
            if outer is not None:
                outer.update(mine)
        looked_at = {path: found for path, found in mine.items() if found or not _shows_in_directory(path, mine)}
        return _Remembered(value, looked_at, settled=all(found is None or settled(found) for found in mine.values()))

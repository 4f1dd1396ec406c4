"""Results that are remembered for as long as nothing on disk that they were made from has changed.

While a result is made, every file and directory that is looked at is noted with its signature. Asking again costs one look at
each of them and nothing else: no listing, no reading, no comparing. A result that was made from something that was written a
moment ago is made again, because the clock of a file system is too coarse to vouch for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

from fidelio.clock import now_ms

# Coarser than the clock of any file system in use.
TICK_MS = 2_000
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


class _Remembered(NamedTuple):
    value: Any
    touched: dict[str, Signature | None]
    settled: bool

    def holds(self) -> bool:
        return self.settled and _unchanged(self.touched)


class Memo:
    """One for all the files of a library, because a result may be made from several roots."""

    def __init__(self) -> None:
        self._results: dict[Hashable, _Remembered] = {}
        self._touched: dict[str, Signature | None] | None = None

    def touch(self, path: str, found: Signature | None) -> None:
        """Notes that whatever is being made depends on this."""
        if self._touched is not None:
            self._touched[path] = found

    def remembered(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gave last time, if that still holds. What it raises is not remembered."""
        known = self._results.get(key)
        if known is None or not known.holds():
            known = self._results[key] = self._made(make)
        elif self._touched is not None:
            self._touched.update(known.touched)
        value: T = known.value
        return value

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
        return _Remembered(value, looked_at, all(found is None or settled(found) for found in mine.values()))

"""Watch directories for changes with inotify, without calling stat on every file.

Linux queues an event before the call that changes a file or directory returns, so a later read of the queue cannot miss it.
Some changes cause no event: those made by another machine on a shared file system, through another hard link or a memory map,
and those further up the path. Therefore a watch without events replaces the check of the files only for a short time.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import weakref
from collections.abc import Iterable, Iterator

# From <sys/inotify.h>: written, its attributes changed, moved out, moved in, created, deleted, and the directory itself.
_CHANGES = 0x002 | 0x004 | 0x040 | 0x080 | 0x100 | 0x200 | 0x400 | 0x800
_ONLY_DIRECTORIES = 0x01000000
# The directory was moved, is no longer watched, or events were lost.
_MOVED, _IGNORED, _OVERFLOW = 0x800, 0x8000, 0x4000
# Watch descriptor, event mask, cookie that pairs moves, and length of the name that follows.
_EVENT = struct.Struct("iIII")
_BUFFER_SIZE = 64 * 1024
# Far more directories than the workflows of one server have; beyond that, files are checked with stat.
MAX_DIRECTORIES = 512


class DirectoryWatch:
    """A set of watched directories. `OSError` if the system provides no watch."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        try:
            begin = library.inotify_init1
            self._add, self._remove = library.inotify_add_watch, library.inotify_rm_watch
        except AttributeError as error:
            raise OSError("This system has no inotify.") from error
        self._queue = begin(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._queue < 0:
            raise OSError(ctypes.get_errno(), "No more watches for this user.")
        weakref.finalize(self, os.close, self._queue)
        self._poll = select.poll()
        self._poll.register(self._queue, select.POLLIN)
        self._watches: dict[str, int] = {}
        self._changes = 0

    def add(self, directories: Iterable[str]) -> bool:
        """Watch the directories; False if any of them cannot be watched.

        Known names are added again, because another directory may have the name now.
        """
        for directory in directories:
            if directory not in self._watches and len(self._watches) >= MAX_DIRECTORIES:
                return False
            found = self._add(self._queue, os.fsencode(directory), _CHANGES | _ONLY_DIRECTORIES)
            if found < 0:
                return False
            if self._watches.get(directory, found) != found:
                self._drop([self._watches[directory]])
            self._watches[directory] = found
        return True

    def count_changes(self) -> int:
        """The number of times that events were found. While it stays the same, nothing has changed."""
        if self._poll.poll(0):
            self._changes += 1
            self._drop(list(self._expired(os.read(self._queue, _BUFFER_SIZE))))
        return self._changes

    def _expired(self, notices: bytes) -> Iterator[int]:
        """The watch descriptors that are no longer valid for their directories."""
        offset = 0
        while offset < len(notices):
            watch, mask, _, length = _EVENT.unpack_from(notices, offset)
            offset += _EVENT.size + length
            if mask & _OVERFLOW:
                yield from self._watches.values()
            elif mask & (_MOVED | _IGNORED):
                yield watch

    def _drop(self, watches: Iterable[int]) -> None:
        expired = set(watches)
        for watch in expired:
            self._remove(self._queue, watch)
        self._watches = {directory: watch for directory, watch in self._watches.items() if watch not in expired}

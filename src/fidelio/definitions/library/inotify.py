"""Being told of changes by the kernel, so that nobody has to look at every file again and again.

Linux queues a notice before the call that changes a file or a directory returns, so whoever asks afterwards cannot miss it.
Some changes bring no notice: those that another machine makes on a shared file system, those that are made through another
name of the same file or through memory, and those further up the path. So a quiet watch saves looking for a moment, never for
good.
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
# The directory was moved away, is no longer watched, or notices were lost.
_MOVED, _IGNORED, _OVERFLOW = 0x800, 0x8000, 0x4000
# Watch, what happened, a number that pairs moves, and how many bytes of a name follow.
_NOTICE = struct.Struct("iIII")
_NOTICES = 64 * 1024
# Far more directories than the workflows that one server works with have; beyond that, looking serves as well.
MOST_WATCHED = 512


class Watch:
    """Directories that are watched from the moment they are added. `OSError` where the system has no watch to give."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        try:
            begin = library.inotify_init1
            self._add, self._remove = library.inotify_add_watch, library.inotify_rm_watch
        except AttributeError as error:
            raise OSError("This system has no inotify.") from error
        self._notices = begin(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._notices < 0:
            raise OSError(ctypes.get_errno(), "No more watches for this user.")
        weakref.finalize(self, os.close, self._notices)
        self._poll = select.poll()
        self._poll.register(self._notices, select.POLLIN)
        self._watches: dict[str, int] = {}
        self._times = 0

    def add(self, directories: Iterable[str]) -> bool:
        """Whether all of them are watched now. What is watched already is looked up anew: another one may have its name."""
        for directory in directories:
            if directory not in self._watches and len(self._watches) >= MOST_WATCHED:
                return False
            found = self._add(self._notices, os.fsencode(directory), _CHANGES | _ONLY_DIRECTORIES)
            if found < 0:
                return False
            if self._watches.get(directory, found) != found:
                self._drop([self._watches[directory]])
            self._watches[directory] = found
        return True

    def times(self) -> int:
        """How many times something was found to have happened. As long as it stays the same, nothing has."""
        if self._poll.poll(0):
            self._times += 1
            self._drop(list(self._gone(os.read(self._notices, _NOTICES))))
        return self._times

    def _gone(self, notices: bytes) -> Iterator[int]:
        """The watches that no longer stand for the directories that they were set up for."""
        place = 0
        while place < len(notices):
            watch, what, _, length = _NOTICE.unpack_from(notices, place)
            place += _NOTICE.size + length
            if what & _OVERFLOW:
                yield from self._watches.values()
            elif what & (_MOVED | _IGNORED):
                yield watch

    def _drop(self, watches: Iterable[int]) -> None:
        gone = set(watches)
        for watch in gone:
            self._remove(self._notices, watch)
        self._watches = {directory: watch for directory, watch in self._watches.items() if watch not in gone}

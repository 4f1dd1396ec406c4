"""Being told of changes by the kernel, so that nobody has to look at every file again and again.

Linux queues a notice before the call that changes a file or a directory returns, so whoever asks afterwards cannot miss it.
Some changes bring no notice: those that another machine makes on a shared file system, those that are made through another
name of the same file, and those further up the path. So a quiet watch saves looking for a moment, never for good.
"""

from __future__ import annotations

import ctypes
import os
import select
import weakref
from collections.abc import Iterable

# From <sys/inotify.h>: written, its attributes changed, moved out, moved in, created, deleted, and the directory itself.
_CHANGES = 0x002 | 0x004 | 0x040 | 0x080 | 0x100 | 0x200 | 0x400 | 0x800
_ONLY_DIRECTORIES = 0x01000000
# Far more directories than the workflows that one server works with have; beyond that, looking serves as well.
MOST_WATCHED = 512
_NOTICES = 64 * 1024


class Watch:
    """Directories that are watched from the moment they are added. `OSError` where the system has no watch to give."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        try:
            begin, self._add = library.inotify_init1, library.inotify_add_watch
        except AttributeError as error:
            raise OSError("This system has no inotify.") from error
        self._notices = begin(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._notices < 0:
            raise OSError(ctypes.get_errno(), "No more watches for this user.")
        weakref.finalize(self, os.close, self._notices)
        self._poll = select.poll()
        self._poll.register(self._notices, select.POLLIN)
        self._watched: set[str] = set()
        self._times = 0

    def add(self, directories: Iterable[str]) -> bool:
        """Whether all of them are watched now."""
        new = set(directories) - self._watched
        if len(new) + len(self._watched) > MOST_WATCHED:
            return False
        for directory in new:
            if self._add(self._notices, os.fsencode(directory), _CHANGES | _ONLY_DIRECTORIES) < 0:
                return False
            self._watched.add(directory)
        return True

    def times(self) -> int:
        """How many times something was found to have happened. As long as it stays the same, nothing has."""
        if self._poll.poll(0):
            self._times += 1
            self._watched.clear()
            os.read(self._notices, _NOTICES)
        return self._times

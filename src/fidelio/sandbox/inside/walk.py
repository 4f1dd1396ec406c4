"""Depth-first walk over a tree, in byte order of the paths, under a time limit.

Links are never followed. The files that the runtime writes for the agent are entered only when the path names them: they repeat
what the session already knows and would fill every search.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from fidelio.sandbox.inside.tree import Entry, Tree

RUNTIME_NAME = ".openboa-runtime"
# Less than the deadline after which the process of a scan is killed: what was found by then is returned.
SOFT_SECONDS = 8.0


class _Item(NamedTuple):
    """A name to emit, or (with a final slash) a directory to enter."""

    key: bytes
    entry: Entry
    enters: bool


class TreeWalk:
    """A walk below `top`. After it, `is_complete` says whether the time sufficed, `unreadable` counts directories."""

    def __init__(self, tree: Tree, top: str, *, cursor: str = "", seconds: float = SOFT_SECONDS) -> None:
        self.tree, self.top = tree, top
        self._cursor = os.fsencode(cursor)
        self._deadline = time.monotonic() + seconds
        self._skips_runtime = RUNTIME_NAME not in top.split("/")
        self.is_complete, self.unreadable = True, 0

    def path_of(self, relative: str) -> str:
        return f"{self.top.rstrip('/')}/{relative}" if relative else self.top

    def has_time(self) -> bool:
        """Whether the walk may go on; remembers when it may not."""
        self.is_complete = self.is_complete and time.monotonic() < self._deadline
        return self.is_complete

    def entries(self, enters: Callable[[str, Entry], bool]) -> Iterator[tuple[str, Entry]]:
        """Pairs of relative path and entry. `enters` decides about each directory, after it was emitted."""
        stack = [("", iter(self._items("", self.tree.scan(self.top))))]
        while stack:
            prefix, items = stack[-1]
            item = next(items, None)
            if item is None:
                stack.pop()
                continue
            relative = prefix + item.entry.name
            if not item.enters:
                yield relative, item.entry
            elif enters(relative, item.entry):
                if not self.has_time():
                    return
                stack.append((f"{relative}/", iter(self._items(f"{relative}/", self._scan(relative)))))

    def _scan(self, relative: str) -> list[Entry]:
        try:
            return self.tree.scan(self.path_of(relative), follow=False)
        except OSError:
            # Removed meanwhile, not readable, or deeper than a path can be long.
            self.unreadable += 1
            return []

    def _items(self, prefix: str, entries: list[Entry]) -> list[_Item]:
        items = []
        start = os.fsencode(prefix)
        for entry in entries:
            key = start + os.fsencode(entry.name)
            if key > self._cursor:
                items.append(_Item(key, entry, False))
            if entry.kind == "directory" and not self._skips(entry, key + b"/"):
                items.append(_Item(key + b"/", entry, True))
        items.sort(key=lambda item: item.key)
        return items

    def _skips(self, entry: Entry, below: bytes) -> bool:
        if self._skips_runtime and entry.name == RUNTIME_NAME:
            return True
        return self._cursor > below and not self._cursor.startswith(below)

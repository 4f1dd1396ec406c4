"""Whether a home is still there.

What a process has opened in it goes on working when the directory is deleted, so nobody would notice: a worker would carry out
agents for a record that no other process can find.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fidelio.home import Home


@contextmanager
def presence(home: Home) -> Iterator[Callable[[], bool]]:
    """Gives a look at whether the directory of the home is still the one that it was at the beginning of the block."""
    # Held open, so that one which takes its place cannot look like it.
    handle = os.open(home.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def is_there() -> bool:
        try:
            return os.path.samestat(os.fstat(handle), home.path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            # That we cannot look does not mean that it is gone, and agents are not ended on a suspicion.
            return True

    try:
        yield is_there
    finally:
        os.close(handle)

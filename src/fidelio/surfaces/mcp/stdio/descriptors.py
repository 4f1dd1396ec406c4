"""Standard descriptors of a server: filled if they are missing, and separated from the prints of other code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def reserve_standard_descriptors() -> None:
    """Fill descriptors 0 to 2 if the process was started without them; otherwise the next file would get their number."""
    lowest = os.open(os.devnull, os.O_RDWR)
    while lowest <= 2:
        lowest = os.open(os.devnull, os.O_RDWR)
    os.close(lowest)


@contextmanager
def private_standard_streams() -> Iterator[tuple[int, int]]:
    """Yield duplicates of standard input and output; redirect the originals, so that a print cannot break the stream."""
    source, sink = os.dup(0), os.dup(1)
    blocking = os.get_blocking(source), os.get_blocking(sink)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    try:
        yield source, sink
    finally:
        # Buffered prints must be flushed before the real output is restored. Without standard output `sys.stdout` is None.
        with suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
        for own, standard, was_blocking in ((source, 0, blocking[0]), (sink, 1, blocking[1])):
            os.set_blocking(own, was_blocking)
            os.dup2(own, standard)
            os.close(own)

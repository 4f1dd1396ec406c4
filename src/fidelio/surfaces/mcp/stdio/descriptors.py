"""Process set-up of a server: garbage collection and standard descriptors. It runs first, so it imports nothing heavy."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# New objects before Python collects garbage. Lower over HTTP, where every request leaves reference cycles behind.
STDIO_GC_THRESHOLD = 100_000
HTTP_GC_THRESHOLD = 20_000


def set_gc_threshold(threshold: int = STDIO_GC_THRESHOLD) -> None:
    """Collect garbage rarely: modules and definitions stay in memory, and traversing them again delays replies."""
    gc.set_threshold(threshold, 20, 50)


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

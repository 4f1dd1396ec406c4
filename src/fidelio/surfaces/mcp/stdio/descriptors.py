"""Process set-up of a server: garbage collection and the standard descriptors. Imports nothing heavy, because it runs first."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# How many new objects there have to be before Python looks. Over HTTP every request leaves some behind.
STDIO_GC_THRESHOLD = 100_000
HTTP_GC_THRESHOLD = 20_000


def set_gc_threshold(after: int = STDIO_GC_THRESHOLD) -> None:
    """What is imported and read at the start stays: looking through it again and again delays the replies."""
    gc.set_threshold(after, 20, 50)


def reserve_standard_descriptors() -> None:
    """A process may be started without them; then the next file that is opened, whichever it is, would take their place."""
    lowest = os.open(os.devnull, os.O_RDWR)
    while lowest <= 2:
        lowest = os.open(os.devnull, os.O_RDWR)
    os.close(lowest)


@contextmanager
def private_standard_streams() -> Iterator[tuple[int, int]]:
    """Descriptors of the real input and output. Afterwards everything is as it was."""
    source, sink = os.dup(0), os.dup(1)
    blocking = os.get_blocking(source), os.get_blocking(sink)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    try:
        yield source, sink
    finally:
        # What was printed is still in Python's buffer; it must leave before the real output is back. Without standard output
        # Python has no such object at all.
        with suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
        for private, public, was_blocking in ((source, 0, blocking[0]), (sink, 1, blocking[1])):
            os.set_blocking(private, was_blocking)
            os.dup2(private, public)
            os.close(private)

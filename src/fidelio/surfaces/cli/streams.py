"""Standard output as a command may find it: closed, without a reader, full, or in an encoding of another century.

Mended once at the way in, so that no command has to think of it.
"""

from __future__ import annotations

import io
import os
import sys

from fidelio.surfaces.mcp.standard import occupy_standard_descriptors


def prepare_streams() -> None:
    occupy_standard_descriptors()
    # Python has no object for a stream that was closed from the start; its descriptor leads to nothing by now.
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """What is still in the buffer can reach nobody; without this the interpreter would complain about it at its end."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)

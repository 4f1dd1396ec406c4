"""Run a command of Fidelio in the process of the test.

A process of its own takes half a second, mostly for imports. Here the command has its own environment, directory and streams,
and everything else is that of the test: tests of signals, descriptors and imports need a process.
"""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path
from unittest.mock import patch

from fidelio import __main__ as program


def run_fidelio(
    arguments: Sequence[str], *, environ: Mapping[str, str], directory: Path, text: str = "", encoding: str = "utf-8"
) -> subprocess.CompletedProcess[str]:
    """Run `fidelio` with these arguments and return its exit code and output. `text` is its standard input."""
    stdin, stdout, stderr = (
        io.TextIOWrapper(io.BytesIO(start), encoding=encoding) for start in (text.encode(encoding), b"", b"")
    )
    argv = [str(program.__file__), *arguments]
    with (
        chdir(directory),
        patch.dict(os.environ, environ, clear=True),
        patch.multiple(sys, argv=argv, stdin=stdin, stdout=stdout, stderr=stderr),
        _without_event_loop(),
    ):
        code = _exit_code()
    return subprocess.CompletedProcess(argv, code, _text(stdout), _text(stderr))


def _exit_code() -> int:
    try:
        return program.main()
    except SystemExit as end:  # raised by click after it has completed a command
        return int(end.code or 0)


@contextmanager
def _without_event_loop() -> Iterator[None]:
    """Let a command run its own event loop while the one of the test waits, as it would wait for a process."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)
        asyncio.set_event_loop(loop)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    written = stream.buffer
    assert isinstance(written, io.BytesIO)
    return written.getvalue().decode(stream.encoding)

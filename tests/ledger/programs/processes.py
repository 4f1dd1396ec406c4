"""Processes that tests start, listen to and kill.

They are forked from a small server that has imported what they need and done nothing else, so that a test can afford dozens of
them. What a process tells goes through a pipe in one write each: after a kill, everything told is there and nothing is torn.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE = 30

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["__main__", "fidelio.ledger.sqlite", "fidelio.ledger.postgres.ledger", "tests.ledger.programs.appender"]
)


class Child:
    """A running program and the line to it."""

    def __init__(self, program: Callable[..., None], *arguments: object) -> None:
        self.line, theirs = _context.Pipe()
        self._process = _context.Process(target=program, args=(theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()

    def hears(self) -> Any:
        """The next thing the program tells."""
        if not self.line.poll(PATIENCE):
            raise TimeoutError("The program says nothing.")
        return self.line.recv()

    def rest(self) -> Iterator[Any]:
        """What an ended program has told and nobody has heard yet."""
        while True:
            try:
                yield self.hears()
            except (EOFError, ConnectionResetError):
                return

    def kill(self) -> None:
        self._process.kill()
        self._process.join(PATIENCE)

    def wait(self) -> int | None:
        self._process.join(PATIENCE)
        return self._process.exitcode

    def close(self) -> None:
        self.kill()
        self._process.close()
        self.line.close()


@contextmanager
def child(program: Callable[..., None], *arguments: object) -> Iterator[Child]:
    started = Child(program, *arguments)
    try:
        yield started
    finally:
        started.close()

"""Child processes that tests start, receive messages from and kill.

They are forked from a fork server that has imported the ledger, so that a test can start dozens of them. Every message is a
single write into a pipe: after a kill, all messages that were sent are complete.
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
    """A running child process and the pipe to it."""

    def __init__(self, program: Callable[..., None], *arguments: object) -> None:
        self.pipe, remote_end = _context.Pipe()
        self._process = _context.Process(target=program, args=(remote_end, *arguments), daemon=True)
        self._process.start()
        remote_end.close()

    def receive(self) -> Any:
        """Receive the next message."""
        if not self.pipe.poll(PATIENCE):
            raise TimeoutError(f"The process has sent no message for {PATIENCE} seconds.")
        return self.pipe.recv()

    def receive_rest(self) -> Iterator[Any]:
        """Receive the remaining messages of an ended process."""
        while True:
            try:
                yield self.receive()
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
        self.pipe.close()


@contextmanager
def child(program: Callable[..., None], *arguments: object) -> Iterator[Child]:
    started = Child(program, *arguments)
    try:
        yield started
    finally:
        started.close()

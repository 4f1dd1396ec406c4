"""Progress of a long call, told to whoever waits for it.

A handler calls `report` and needs not know which front serves it, or whether anybody listens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Reporter = Callable[[float, float | None, str | None], Awaitable[None]]

_reporter: ContextVar[Reporter | None] = ContextVar("progress_reporter", default=None)


async def report(done: float, total: float | None = None, message: str | None = None) -> None:
    """`done` grows with every report. Nothing happens when the client did not ask for progress."""
    reporter = _reporter.get()
    if reporter is not None:
        await reporter(done, total, message)


@contextmanager
def reporting(reporter: Reporter | None) -> Iterator[None]:
    token = _reporter.set(reporter)
    try:
        yield
    finally:
        _reporter.reset(token)

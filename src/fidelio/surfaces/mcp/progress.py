"""Progress of a long call, told to whoever waits for it.

A handler calls `report` and needs not know which front serves it, or whether anybody listens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar

Reporter = Callable[[float, float | None, str | None], Awaitable[None]]

_reporter: ContextVar[Reporter | None] = ContextVar("progress_reporter", default=None)


async def report(done: float, total: float | None = None, message: str | None = None) -> None:
    """`done` grows with every report. Nothing happens when the client did not ask for progress."""
    reporter = _reporter.get()
    if reporter is not None:
        await reporter(done, total, message)


def report_to(reporter: Reporter | None) -> None:
    """For the rest of the task that carries out a call: every call has one of its own."""
    _reporter.set(reporter)

"""Retry with backoff for transient ledger errors, and a restart loop for background work.

A client can repeat a refused call. An agent cannot repeat its work, and must not lose it because the database is busy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from fidelio.errors import FidelioError, LedgerBusy, LedgerFull, LedgerUnavailable

T = TypeVar("T")

TRANSIENT = (LedgerBusy, LedgerFull, LedgerUnavailable)
_PAUSES = (0.1, 0.5, 2.0, 5.0, 10.0, 10.0)

_log = logging.getLogger(__name__)


async def retry_transient(call: Callable[[], Awaitable[T]]) -> T:
    """Call again, with growing pauses, while the ledger is busy, full or unavailable; the last error is raised."""
    for pause in _PAUSES:
        try:
            return await call()
        except TRANSIENT as error:
            _log.warning("A run cannot be recorded, trying again: %s", error)
            await asyncio.sleep(pause)
    return await call()


# The pauses after the first failure, the second, and so on; after `_STABLE_SECONDS` without failure the count starts over.
_RESTART_PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
_STABLE_SECONDS = 300.0


async def restart_on_failure(work: Callable[[], Awaitable[None]], *, name: str, until: asyncio.Event) -> None:
    """Repeat `work`, with a pause after each failure. It has to return by itself soon after `until` is set."""
    loop, failures = asyncio.get_running_loop(), 0
    while not until.is_set():
        began = loop.time()
        try:
            await work()
        except Exception as error:  # noqa: BLE001  # an outermost boundary: background work that nobody else would restart
            failures = 1 if loop.time() - began > _STABLE_SECONDS else failures + 1
            pause = _RESTART_PAUSES[min(failures, len(_RESTART_PAUSES)) - 1]
            _report(name, error, pause)
            await sleep_until(pause, until=until)


async def sleep_until(seconds: float, *, until: asyncio.Event) -> None:
    """Sleep, at most until the event is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await until.wait()


def _report(name: str, error: Exception, pause: float) -> None:
    """Log an error of ours as a sentence, and an unexpected error with its traceback."""
    expected = isinstance(error, FidelioError)
    words = str(error) if expected else f"{type(error).__name__}: {error}"
    _log.error("%s has failed and begins again in %g seconds: %s", name, pause, words, exc_info=None if expected else error)


async def cancel_tasks(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they have ended. Their errors are dropped: the caller has no use for their results."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

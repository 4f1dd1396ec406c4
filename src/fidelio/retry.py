"""Writes of an agent at work are tried again while the database is busy or full for a moment.

Whoever calls us can repeat the call; an agent cannot repeat its work, and must not lose it to a passing fault.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from fidelio.errors import FidelioError, LedgerBusy, LedgerFull, LedgerUnavailable

T = TypeVar("T")

PASSING = (LedgerBusy, LedgerFull, LedgerUnavailable)
_PAUSES = (0.1, 0.5, 2.0, 5.0, 10.0, 10.0)

_log = logging.getLogger(__name__)


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    for pause in _PAUSES:
        try:
            return await call()
        except PASSING as error:
            _log.warning("A run cannot be recorded, trying again: %s", error)
            await asyncio.sleep(pause)
    return await call()


# How long the pause after a failure is, longer each time; work that had gone well for so long begins at the first again.
_RESTART_PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
_STEADY_SECONDS = 300.0


async def steadily(work: Callable[[], Awaitable[None]], *, name: str, until: asyncio.Event) -> None:
    """Does the work again and again. It has to end by itself soon after `until` is set."""
    loop, failures = asyncio.get_running_loop(), 0
    while not until.is_set():
        began = loop.time()
        try:
            await work()
        except Exception as error:  # noqa: BLE001  # it may fail in any way, and nobody else does it
            failures = 1 if loop.time() - began > _STEADY_SECONDS else failures + 1
            pause = _RESTART_PAUSES[min(failures, len(_RESTART_PAUSES)) - 1]
            _report(name, error, pause)
            await rest(pause, until=until)


async def rest(seconds: float, *, until: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await until.wait()


def _report(name: str, error: Exception, pause: float) -> None:
    """One sentence for what was foreseen; whoever has to mend the rest needs to know where it happened."""
    foreseen = isinstance(error, FidelioError)
    words = str(error) if foreseen else f"{type(error).__name__}: {error}"
    _log.error("%s has failed and begins again in %g seconds: %s", name, pause, words, exc_info=None if foreseen else error)

"""Work in the background that nobody else would do: when it fails, it is said and done again, for as long as it is wanted.

This is the outermost boundary of that work, and so may catch everything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from fidelio.errors import FidelioError

# How long the pause after a failure is, longer each time; work that had gone well for so long begins at the first again.
_PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
_STEADY_SECONDS = 300.0

_log = logging.getLogger(__name__)


async def steadily(work: Callable[[], Awaitable[None]], *, name: str, until: asyncio.Event) -> None:
    """Does the work again and again. It has to end by itself soon after `until` is set."""
    loop, failures = asyncio.get_running_loop(), 0
    while not until.is_set():
        began = loop.time()
        try:
            await work()
        except Exception as error:  # noqa: BLE001  # it may fail in any way, and nobody else does it
            failures = 1 if loop.time() - began > _STEADY_SECONDS else failures + 1
            pause = _PAUSES[min(failures, len(_PAUSES)) - 1]
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

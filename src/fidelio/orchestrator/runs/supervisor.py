"""Watches an executor at work: lets it finish, and interrupts it when it is stopped, out of time, or the watcher has to go."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from fidelio.clock import Clock
from fidelio.errors import FidelioError, LimitReached
from fidelio.orchestrator.blueprints.model import Limits, seconds_left
from fidelio.orchestrator.executors.contract import TurnResult
from fidelio.orchestrator.runs.reporter import RunReporter

# An executor asks its processes to end before it makes them; one that takes longer than this hangs.
CANCEL_SECONDS = 30.0

_log = logging.getLogger(__name__)


class Stopped(Exception):
    """Somebody wants the run to end."""


class Left(Exception):
    """The watcher goes, and the process of the run goes on."""


class Supervisor:
    """One executor at work. `stop` and `leave` may be called at any time, also before it begins."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._nudge = asyncio.Event()
        self._order: Stopped | Left | None = None

    def stop(self) -> None:
        self._order = self._order or Stopped()
        self._nudge.set()

    def leave(self) -> None:
        self._order = self._order or Left()
        self._nudge.set()

    def look(self) -> None:
        """Something has changed that may interrupt the work."""
        self._nudge.set()

    async def over(
        self, working: Coroutine[Any, Any, TurnResult | None], reporter: RunReporter, limits: Limits
    ) -> TurnResult | None:
        """What the executor returns, or raises; else why it was interrupted: `Stopped`, `Left` or `LimitReached`."""
        work = asyncio.create_task(working)
        try:
            why = await self._interruption(work, reporter, limits)
        except asyncio.CancelledError:
            reporter.interrupted = reporter.is_detaching = True
            await _cancel(work)
            raise
        if why is not None:
            reporter.interrupted, reporter.is_detaching = True, isinstance(why, Left)
            await _cancel(work)
        if work.done() and not work.cancelled() and (why is None or work.exception() is None):
            return work.result()
        raise why or Stopped

    async def _interruption(
        self, work: asyncio.Task[TurnResult | None], reporter: RunReporter, limits: Limits
    ) -> Stopped | Left | LimitReached | None:
        while not work.done():
            self._nudge.clear()
            seconds = self._seconds(reporter, limits)
            why = self._order or reporter.over or (_out_of_time(limits) if seconds is not None and seconds <= 0 else None)
            if why is not None:
                return why
            if (due := reporter.seconds_to_usage) == 0:
                await _write_usage(reporter)
                continue
            nudged = asyncio.create_task(self._nudge.wait())
            timeout = min((one for one in (seconds, due) if one is not None), default=None)
            try:
                await asyncio.wait({work, nudged}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            finally:
                nudged.cancel()
        return None

    def _seconds(self, reporter: RunReporter, limits: Limits) -> float | None:
        """What is left of the wall time; None while a person is asked, and where there is no end to it."""
        run = reporter.at.record.run
        if run.questions or limits.wall_seconds == math.inf:
            return None
        return seconds_left(limits, started_at=run.started_at or 0, waited_ms=run.waited_ms, now=self._clock())


def _out_of_time(limits: Limits) -> LimitReached:
    return LimitReached(f"The run has taken longer than its {limits.wall_seconds:g} seconds.", reason="limit.wall_seconds")


async def _write_usage(reporter: RunReporter) -> None:
    # Where that fails, whoever tells the next thing hears of it; and the end of the run has the usage once more.
    with suppress(FidelioError):
        await reporter.write_usage()


async def _cancel(work: asyncio.Task[TurnResult | None]) -> None:
    work.cancel()
    await asyncio.wait({work}, timeout=CANCEL_SECONDS)
    if not work.done():
        _log.error("An executor did not end %.0f seconds after it was cancelled.", CANCEL_SECONDS)
    elif not work.cancelled() and (error := work.exception()) is not None:
        _log.info("An executor that was cancelled ended with: %s", error)

"""Supervisor of an executor call: awaits its result, and interrupts it on a stop, a limit or the shutdown of the host."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from fidelio.clock import Clock
from fidelio.errors import FidelioError, LimitReached
from fidelio.orchestrator.blueprints.model import Limits, remaining_seconds
from fidelio.orchestrator.executors.contract import TurnResult
from fidelio.orchestrator.runs.reporter import RunReporter

# An executor sends SIGTERM and then SIGKILL to its processes; if it takes longer than this, it hangs.
CANCEL_SECONDS = 30.0

_log = logging.getLogger(__name__)


class StopRequested(Exception):
    """A stop of the run was requested."""


class WatcherDetached(Exception):
    """The host shuts down, and the process of the run continues."""


class Supervisor:
    """Supervises an executor call. `stop` and `detach` may be called at any time, also before it begins."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = asyncio.Event()
        self._interrupt: StopRequested | WatcherDetached | None = None

    def stop(self) -> None:
        self._interrupt = self._interrupt or StopRequested()
        self._changed.set()

    def detach(self) -> None:
        self._interrupt = self._interrupt or WatcherDetached()
        self._changed.set()

    def recheck(self) -> None:
        """Check the conditions again, because something has changed."""
        self._changed.set()

    async def supervise(
        self, call: Coroutine[Any, Any, TurnResult | None], reporter: RunReporter, limits: Limits
    ) -> TurnResult | None:
        """Return or raise what the executor does, or raise the cause of an interruption.

        The causes are `StopRequested`, `WatcherDetached` and `LimitReached`.
        """
        work = asyncio.create_task(call)
        try:
            why = await self._wait_for_interruption(work, reporter, limits)
        except asyncio.CancelledError:
            reporter.is_interrupted = reporter.is_detaching = True
            await _cancel(work)
            raise
        if why is not None:
            reporter.is_interrupted, reporter.is_detaching = True, isinstance(why, WatcherDetached)
            await _cancel(work)
        if work.done() and not work.cancelled() and (why is None or work.exception() is None):
            return work.result()
        raise why or StopRequested

    async def _wait_for_interruption(
        self, work: asyncio.Task[TurnResult | None], reporter: RunReporter, limits: Limits
    ) -> StopRequested | WatcherDetached | LimitReached | None:
        while not work.done():
            self._changed.clear()
            seconds = self._remaining_seconds(reporter, limits)
            why = (
                self._interrupt
                or reporter.limit_reached
                or (_time_limit_reached(limits) if seconds is not None and seconds <= 0 else None)
            )
            if why is not None:
                return why
            if (due := reporter.seconds_until_usage) == 0:
                await _write_usage(reporter)
                continue
            nudged = asyncio.create_task(self._changed.wait())
            timeout = min((limit for limit in (seconds, due) if limit is not None), default=None)
            try:
                await asyncio.wait({work, nudged}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            finally:
                nudged.cancel()
        return None

    def _remaining_seconds(self, reporter: RunReporter, limits: Limits) -> float | None:
        """The rest of the wall time; None while a question is open, and without a limit."""
        run = reporter.agent.record.run
        if run.questions or limits.wall_seconds == math.inf:
            return None
        return remaining_seconds(limits, started_at=run.started_at or 0, waited_ms=run.waited_ms, now=self._clock())


def _time_limit_reached(limits: Limits) -> LimitReached:
    return LimitReached(f"The run has taken longer than its {limits.wall_seconds:g} seconds.", reason="limit.wall_seconds")


async def _write_usage(reporter: RunReporter) -> None:
    # After a failure the next report raises, and the end of the run includes the usage anyway.
    with suppress(FidelioError):
        await reporter.write_usage()


async def _cancel(work: asyncio.Task[TurnResult | None]) -> None:
    work.cancel()
    await asyncio.wait({work}, timeout=CANCEL_SECONDS)
    if not work.done():
        _log.error("An executor did not end %.0f seconds after it was cancelled.", CANCEL_SECONDS)
    elif not work.cancelled() and (error := work.exception()) is not None:
        _log.info("An executor that was cancelled ended with: %s", error)

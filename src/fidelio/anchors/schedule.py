"""Anchors at regular intervals, as long as a server runs.

A target that fails must not stop the server: the failure is logged, and the anchor is tried again after growing pauses. Without
new events there is nothing to sign, and no anchor is written.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from fidelio.clock import Clock, now_ms
from fidelio.errors import FidelioError, UsageProblem
from fidelio.retry import cancel_tasks, restart_on_failure, sleep_until

if TYPE_CHECKING:
    from fidelio.anchors.service import AnchorService

_log = logging.getLogger(__name__)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"([0-9]{1,6})([smhd])", re.ASCII)
_SHORTEST, _LONGEST = 10, 30 * 86_400
_FIRST_PAUSE = 10.0


class AnchorSchedule(msgspec.Struct, frozen=True):
    """Seconds between anchors, the target, and optionally the address of a time-stamping server."""

    seconds: float
    target: str
    tsa: str = ""


def parse_interval(text: str) -> float:
    """Read an interval such as `15m` or `1h`; raises `UsageProblem`."""
    match = _DURATION.fullmatch(text)
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0
    if not _SHORTEST <= seconds <= _LONGEST:
        raise UsageProblem(f"{text!r:.40} is no interval for anchors.", remedy="Use 10s to 30d, such as 15m, 1h or 1d.")
    return float(seconds)


@asynccontextmanager
async def keep_schedule(service: AnchorService, schedule: AnchorSchedule) -> AsyncIterator[None]:
    """Run the schedule during the block."""
    until = asyncio.Event()
    work = partial(run_schedule, service, schedule, until=until)
    task = asyncio.create_task(restart_on_failure(work, name="The schedule of anchors", until=until))
    try:
        yield
    finally:
        until.set()
        await cancel_tasks(task)


async def run_schedule(
    service: AnchorService, schedule: AnchorSchedule, *, until: asyncio.Event, clock: Clock = now_ms
) -> None:
    """Write the anchors that are due, until the event is set."""
    failures = 0
    while not until.is_set():
        try:
            pause = await anchor_if_due(service, schedule, now=clock())
            failures = 0
        except (FidelioError, OSError) as error:
            pause = min(schedule.seconds, _FIRST_PAUSE * 2 ** min(failures, 20))
            failures += 1
            _log.warning("No anchor could be written to %s, trying again in %g seconds: %s", schedule.target, pause, error)
        await sleep_until(pause, until=until)


async def anchor_if_due(service: AnchorService, schedule: AnchorSchedule, *, now: int) -> float:
    """Write an anchor if events followed the last and it is old enough; return the seconds until the next look."""
    last = service.state(schedule.target)
    waiting = schedule.seconds - (now - last.time) / 1000
    # A time in the future is a clock that was set back; waiting for it could mean never to write an anchor again.
    if last.number and 0 < waiting <= schedule.seconds:
        return waiting
    if await service.newest_position() > last.position:
        await service.create(schedule.target, tsa=schedule.tsa)
    return schedule.seconds

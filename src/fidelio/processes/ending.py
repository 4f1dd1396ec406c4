"""Ending the processes of a run: SIGTERM, a grace period, SIGKILL, and no process of another run.

Each process is signalled by its full identity. The table is scanned again after each round, because a process that is about to
be ended may be starting another.
"""

from __future__ import annotations

import asyncio
import math
import signal
from collections.abc import Iterable

from fidelio.processes.table import ProcessIdentity, find_run_processes, is_alive, missing_support, send_signal

GRACE_SECONDS = 5.0
# A killed process disappears when the kernel releases it; a process that hangs in a device driver may stay for ever.
_KILL_SECONDS = 10.0
_RESCAN_SECONDS = 0.25
_MIN_PAUSE, _MAX_PAUSE = 0.005, 0.1


async def end_processes(run: str, *, grace: float = GRACE_SECONDS) -> bool:
    """End every process with the mark of this run. False: a process is left. Without a process table no agents run."""
    return True if missing_support() else await end_run_processes(run, grace=grace)


async def end_run_processes(run: str, leader: ProcessIdentity | None = None, *, grace: float = GRACE_SECONDS) -> bool:
    """End every process of the run. False: a process survived SIGKILL.

    `leader` is a process that the caller knows to belong to the run.
    """
    try:
        return await _terminate(run, leader, grace) or await _kill(run, leader)
    except asyncio.CancelledError:
        # Cancelled during the grace period: no process may be left behind.
        _send_all(find_run_processes(run, leader), signal.SIGKILL)
        raise


async def _terminate(run: str, leader: ProcessIdentity | None, grace: float) -> bool:
    """Send SIGTERM once to each process, also to those started meanwhile. True: there was no process to end."""
    signalled: set[ProcessIdentity] = set()
    deadline = _now() + grace
    while remaining := await _scan(run, leader):
        _send_all(set(remaining) - signalled, signal.SIGTERM)
        signalled |= set(remaining)
        left = deadline - _now()
        if left <= 0:
            return False
        await wait_until_ended(remaining, min(left, _RESCAN_SECONDS))
    return not signalled


async def _kill(run: str, leader: ProcessIdentity | None) -> bool:
    deadline = _now() + _KILL_SECONDS
    while remaining := await _scan_twice(run, leader):
        killed = _send_all(remaining, signal.SIGKILL)
        left = deadline - _now()
        if left <= 0 or not killed:
            return not any(is_alive(process) for process in remaining)
        await wait_until_ended(killed, left)
    return True


async def _scan_twice(run: str, leader: ProcessIdentity | None) -> list[ProcessIdentity]:
    """Scan again if nothing is found: during `exec` a process shows no mark for a moment."""
    if found := await _scan(run, leader):
        return found
    await asyncio.sleep(_MIN_PAUSE)
    return await _scan(run, leader)


async def _scan(run: str, leader: ProcessIdentity | None) -> list[ProcessIdentity]:
    return await asyncio.to_thread(find_run_processes, run, leader)


async def wait_until_ended(processes: Iterable[ProcessIdentity], seconds: float = math.inf) -> None:
    """Return when all of these processes have ended, at the latest after `seconds`."""
    deadline, pause = _now() + seconds, _MIN_PAUSE
    remaining = list(processes)
    while (remaining := [process for process in remaining if is_alive(process)]) and (left := deadline - _now()) > 0:
        # A process that is not our child cannot be awaited, only looked at.
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 2, _MAX_PAUSE)


def _send_all(processes: Iterable[ProcessIdentity], number: signal.Signals) -> list[ProcessIdentity]:
    """Signal the processes, and return those that could be signalled: a process with more privileges cannot."""
    return [process for process in processes if send_signal(process, number)]


def _now() -> float:
    return asyncio.get_running_loop().time()

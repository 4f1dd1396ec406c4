"""Ending the processes of a run: SIGTERM, a grace period, SIGKILL, and no process of anybody else.

Each one is signalled by its full identity. Children are looked for again after each round, because a process that is about to
be ended may be starting another.
"""

from __future__ import annotations

import asyncio
import math
import signal
from collections.abc import Iterable

from fidelio.processes.table import ProcessIdentity, find_run_processes, is_alive, missing_support, send_signal

GRACE_SECONDS = 5.0
# A killed process is gone as soon as the kernel lets go of it; one that hangs in a device may never be.
_KILL_SECONDS = 10.0
_RESCAN_SECONDS = 0.25
_MIN_PAUSE, _MAX_PAUSE = 0.005, 0.1


async def end_processes(run: str, *, grace: float = GRACE_SECONDS) -> bool:
    """End every process that carries the mark of this run. False: one is left. Without a process table no agents run."""
    return True if missing_support() else await end_run_processes(run, grace=grace)


async def end_run_processes(run: str, leader: ProcessIdentity | None = None, *, grace: float = GRACE_SECONDS) -> bool:
    """End every process of the run. False: one could not be ended, even by SIGKILL.

    `leader` is a process that the caller knows to be of the run.
    """
    try:
        return await _terminate(run, leader, grace) or await _kill(run, leader)
    except asyncio.CancelledError:
        # Whoever has no time for a polite end still leaves nothing behind.
        _send_all(find_run_processes(run, leader), signal.SIGKILL)
        raise


async def _terminate(run: str, leader: ProcessIdentity | None, grace: float) -> bool:
    """Asks each once, also those that are started meanwhile. True: there is nobody to be ended."""
    asked: set[ProcessIdentity] = set()
    deadline = _now() + grace
    while remaining := await _scan(run, leader):
        _send_all(set(remaining) - asked, signal.SIGTERM)
        asked |= set(remaining)
        left = deadline - _now()
        if left <= 0:
            return False
        await wait_until_ended(remaining, min(left, _RESCAN_SECONDS))
    return not asked


async def _kill(run: str, leader: ProcessIdentity | None) -> bool:
    deadline = _now() + _KILL_SECONDS
    while remaining := await _scan_twice(run, leader):
        killed = _send_all(remaining, signal.SIGKILL)
        left = deadline - _now()
        if left <= 0 or not killed:
            return not any(is_alive(one) for one in remaining)
        await wait_until_ended(killed, left)
    return True


async def _scan_twice(run: str, leader: ProcessIdentity | None) -> list[ProcessIdentity]:
    """Nobody is there only when nobody is seen twice: a process that is just becoming another program shows no mark."""
    if found := await _scan(run, leader):
        return found
    await asyncio.sleep(_MIN_PAUSE)
    return await _scan(run, leader)


async def _scan(run: str, leader: ProcessIdentity | None) -> list[ProcessIdentity]:
    return await asyncio.to_thread(find_run_processes, run, leader)


async def wait_until_ended(processes: Iterable[ProcessIdentity], seconds: float = math.inf) -> None:
    """Returns when all of them are gone, at the latest after `seconds`."""
    deadline, pause = _now() + seconds, _MIN_PAUSE
    remaining = list(processes)
    while (remaining := [one for one in remaining if is_alive(one)]) and (left := deadline - _now()) > 0:
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 2, _MAX_PAUSE)


def _send_all(processes: Iterable[ProcessIdentity], number: signal.Signals) -> list[ProcessIdentity]:
    """Those who could be signalled: a program with more rights than ours cannot."""
    return [process for process in processes if send_signal(process, number)]


def _now() -> float:
    return asyncio.get_running_loop().time()

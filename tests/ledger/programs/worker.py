"""Programs that carry out jobs of kind `work`: briefly, without end, or so slowly that they lose their lease."""

from __future__ import annotations

import asyncio
import random
from multiprocessing.connection import Connection
from time import monotonic_ns
from typing import Any, TypeAlias

from fidelio.errors import StaleLease
from fidelio.ledger import open_ledger
from fidelio.ledger.jobs import Assignment, Handler, Jobs
from fidelio.ledger.model import Change, Completion, NewEvent

Line: TypeAlias = "Connection[Any, Any]"


def brief(line: Line, address: str, lease_ms: int) -> None:
    """Tells `(start, stop, job, session, fence)` of each job; ends when it is told anything."""

    async def handle(assignment: Assignment) -> None:
        start = monotonic_ns()
        await assignment.commit(_step(assignment))
        await asyncio.sleep(random.random() * 0.005)
        lease = assignment.lease
        line.send((start, monotonic_ns(), lease.job, lease.session, lease.fence))

    asyncio.run(_work(address, lease_ms, handle, line))


def endless(line: Line, address: str, lease_ms: int) -> None:
    """Tells the fence of its job and never finishes it."""

    async def handle(assignment: Assignment) -> None:
        line.send(assignment.lease.fence)
        await asyncio.Event().wait()

    asyncio.run(_work(address, lease_ms, handle, line))


def stalling(line: Line, address: str, lease_ms: int) -> None:
    """Stands still, heartbeats and all, until it is told to go on; then tells whether it could still write."""

    async def handle(assignment: Assignment) -> None:
        line.send(assignment.lease.fence)
        line.recv()
        try:
            await assignment.commit(_step(assignment), settle=Completion())
        except StaleLease:
            line.send("refused")
        else:
            line.send("written")

    asyncio.run(_work(address, lease_ms, handle, line))


async def _work(address: str, lease_ms: int, handler: Handler, line: Line) -> None:
    async with await open_ledger(address) as ledger:
        jobs = Jobs(ledger, lease_ms=lease_ms, concurrency=4)
        jobs.register("work", handler)
        loop = asyncio.create_task(jobs.run())
        await asyncio.to_thread(line.poll, None)
        jobs.stop()
        await loop


def _step(assignment: Assignment) -> Change:
    lease = assignment.lease
    return Change(session=lease.session, events=(NewEvent(type="step", body={"fence": lease.fence}),))

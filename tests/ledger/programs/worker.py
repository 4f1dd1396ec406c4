"""Processes that run jobs of kind `work`: briefly, without end, or longer than their lease."""

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

Pipe: TypeAlias = "Connection[Any, Any]"


def brief(pipe: Pipe, address: str, lease_ms: int) -> None:
    """Send `(start, stop, job, session, fence)` for each job; end at the first message received."""

    async def handle(assignment: Assignment) -> None:
        start = monotonic_ns()
        await assignment.commit(_step(assignment))
        # Simulated work, so that jobs of several workers overlap; nothing is waited for.
        await asyncio.sleep(random.random() * 0.005)
        lease = assignment.lease
        pipe.send((start, monotonic_ns(), lease.job, lease.session, lease.fence))

    asyncio.run(_work(address, lease_ms, handle, pipe))


def endless(pipe: Pipe, address: str, lease_ms: int) -> None:
    """Send the fencing token of the job and never finish it."""

    async def handle(assignment: Assignment) -> None:
        pipe.send(assignment.lease.fence)
        await asyncio.Event().wait()

    asyncio.run(_work(address, lease_ms, handle, pipe))


def stalling(pipe: Pipe, address: str, lease_ms: int) -> None:
    """Block the event loop, including heartbeats, until a message arrives; then send whether a commit still succeeds."""

    async def handle(assignment: Assignment) -> None:
        pipe.send(assignment.lease.fence)
        pipe.recv()
        try:
            await assignment.commit(_step(assignment), settle=Completion())
        except StaleLease:
            pipe.send("refused")
        else:
            pipe.send("written")

    asyncio.run(_work(address, lease_ms, handle, pipe))


async def _work(address: str, lease_ms: int, handler: Handler, pipe: Pipe) -> None:
    async with await open_ledger(address) as ledger:
        jobs = Jobs(ledger, lease_ms=lease_ms, concurrency=4)
        jobs.register("work", handler)
        loop = asyncio.create_task(jobs.run())
        await asyncio.to_thread(pipe.poll, None)
        jobs.stop()
        await loop


def _step(assignment: Assignment) -> Change:
    lease = assignment.lease
    return Change(session=lease.session, events=(NewEvent(type="step", body={"fence": lease.fence}),))

"""The worker: carries out the wakes of all sessions whose jobs are due, several side by side. Any number may run at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fidelio.ledger.jobs import Assignment, Jobs
from fidelio.retry import cancel_tasks, restart_on_failure
from fidelio.runtime.deployments.deployments import DEPLOYMENT_JOB
from fidelio.runtime.deployments.running import run_due
from fidelio.runtime.uploads.files import EXPIRY_JOB, expire_file
from fidelio.runtime.wakes.record import JOB_KINDS
from fidelio.runtime.wakes.wake import WakeRunner

CONCURRENCY = 8
# A worker that dies blocks its session for this long.
LEASE_MS = 30_000
# A wake is claimed again after each crash, and goes on from its record.
MAX_ATTEMPTS = 20


class Worker:
    """Claims due wakes and carries them out."""

    def __init__(self, runner: WakeRunner, *, concurrency: int = CONCURRENCY, grace: float = 5.0) -> None:
        context = runner.context
        self._runner = runner
        self._working = 0
        self._jobs = Jobs(
            context.ledger,
            clock=context.clock,
            lease_ms=LEASE_MS,
            max_attempts=MAX_ATTEMPTS,
            concurrency=concurrency,
            grace=grace,
        )
        for kind in JOB_KINDS:
            self._jobs.register(kind, self._wake)
        self._jobs.register(DEPLOYMENT_JOB, partial(run_due, context))
        self._jobs.register(EXPIRY_JOB, partial(expire_file, context))

    @property
    def is_busy(self) -> bool:
        return self._working > 0

    async def _wake(self, assignment: Assignment) -> None:
        self._working += 1
        try:
            await self._runner.run(assignment)
        finally:
            self._working -= 1

    async def run(self) -> None:
        await self._jobs.run()

    def stop(self) -> None:
        self._jobs.stop()


@asynccontextmanager
async def keep_working(runner: WakeRunner, *, concurrency: int = CONCURRENCY) -> AsyncIterator[Worker]:
    """Carry out wakes in the background during the block. At its end wakes are released; another worker goes on with them."""
    ending = asyncio.Event()
    worker = Worker(runner, concurrency=concurrency)
    task = asyncio.create_task(restart_on_failure(worker.run, name="The worker of runtime sessions", until=ending))
    try:
        yield worker
    finally:
        ending.set()
        worker.stop()
        await asyncio.wait({task}, timeout=10)
        await cancel_tasks(task)

"""Helpers for job tests: a ledger with sessions, and a job runner that is stopped at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fidelio.clock import Clock, now_ms
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.jobs import Jobs
from fidelio.ledger.model import Change, NewSession
from tests.support.ledgers import TIMEOUT_SECONDS


@asynccontextmanager
async def ledger_with_sessions(address: str, *sessions: str, clock: Clock = now_ms) -> AsyncIterator[Ledger]:
    async with await open_ledger(address, clock=clock) as ledger:
        for session in sessions:
            await ledger.commit(Change(session=session, create=NewSession(kind="runtime")))
        yield ledger


@asynccontextmanager
async def running(jobs: Jobs) -> AsyncIterator[None]:
    """Run the job loop during the block; at its end, started jobs are finished and settled."""
    loop = asyncio.create_task(jobs.run())
    try:
        yield
    finally:
        jobs.stop()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await loop

"""Carries out agents for as long as a process lives, and leaves none behind without somebody who sees to it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fidelio.inbox import AGENT_MARKER
from fidelio.orchestrator.host import Host
from fidelio.orchestrator.lock import is_hosted
from fidelio.orchestrator.record import QUEUED
from fidelio.orchestrator.service import AgentService
from fidelio.orchestrator.steadiness import steadily
from fidelio.orchestrator.worker import is_anything_active, spawn_worker
from fidelio.settings import Settings


@asynccontextmanager
async def hosting(service: AgentService, settings: Settings) -> AsyncIterator[None]:
    """What is still at work when the block ends is given to a process of its own."""
    try:
        async with _below_an_agent(service, settings) if os.environ.get(AGENT_MARKER) else Host(service):
            yield
    finally:
        await see_to_the_rest(service, settings)


@asynccontextmanager
async def _below_an_agent(service: AgentService, settings: Settings) -> AsyncIterator[None]:
    """Nobody hosts below an agent: whoever stops that agent would stop the host of all the others with it."""
    ending = asyncio.Event()
    work = partial(_give_away, service, settings)
    giving_away = asyncio.create_task(steadily(work, name="Giving agents to a worker", until=ending))
    try:
        yield
    finally:
        ending.set()
        giving_away.cancel()
        await asyncio.gather(giving_away, return_exceptions=True)


async def _give_away(service: AgentService, settings: Settings) -> None:
    position = await service.parts.ledger.wait(after=-1, timeout=0)
    await _see_to_what_nobody_does(service, settings)
    async for _ in service.parts.ledger.follow(after=position, types=(QUEUED,)):
        await _see_to_what_nobody_does(service, settings)


async def _see_to_what_nobody_does(service: AgentService, settings: Settings) -> None:
    if not is_hosted(settings.home):
        await see_to_the_rest(service, settings)


async def see_to_the_rest(service: AgentService, settings: Settings) -> None:
    """Starts a worker where something is queued or at work. Where there is one already, the new one ends at once."""
    if await is_anything_active(service):
        own = settings.ledger == str(settings.home.ledger)
        spawn_worker(settings.home, ledger=None if own else settings.ledger)

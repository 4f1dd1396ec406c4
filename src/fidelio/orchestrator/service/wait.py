"""Waiting for agents: until one or all have finished, no longer than the caller can, and without asking again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Literal

import msgspec

from fidelio.errors import SessionNotFound
from fidelio.orchestrator.record.model import AgentSession
from fidelio.orchestrator.record.record import DELETED, ENDS, WAITING
from fidelio.orchestrator.record.rules import is_active
from fidelio.orchestrator.record.unit_of_work import LoadedAgent, view
from fidelio.orchestrator.runs.context import OrchestratorContext

Notice = Callable[[tuple[AgentSession, ...]], Awaitable[None]]
Mode = Literal["any", "all"]
# Clients that hear nothing for a minute give up; the most impatient ask for a word every quarter of it.
NOTICE_SECONDS = 10.0


class Waits(msgspec.Struct, frozen=True):
    """Waits for the ends of runs, whichever process carries them out."""

    context: OrchestratorContext

    async def wait(
        self, sessions: Sequence[LoadedAgent], *, mode: Mode, seconds: float | None, notice: Notice | None = None
    ) -> tuple[AgentSession, ...]:
        """The sessions as they are when any (or all) of them have finished, or when `seconds` have passed. None: to the end."""
        ends = [asyncio.create_task(self._ended(at)) for at in sessions]
        telling = asyncio.create_task(self._tell(sessions, notice)) if notice else None
        try:
            when = asyncio.FIRST_COMPLETED if mode == "any" else asyncio.ALL_COMPLETED
            done, _ = await asyncio.wait(ends, timeout=seconds, return_when=when)
            for task in done:
                task.result()
        finally:
            await _cancel(*ends, *([telling] if telling else []))
        return await self._now(sessions)

    async def at_rest(self, sessions: Sequence[LoadedAgent], *, seconds: float) -> None:
        """Waits until all of them have ended or are gone, whatever they ask meanwhile, or `seconds` have passed."""
        ends = [asyncio.create_task(self._ended(at, asks=False)) for at in sessions]
        try:
            await asyncio.wait(ends, timeout=seconds)
        finally:
            await _cancel(*ends)

    async def _ended(self, at: LoadedAgent, *, asks: bool = True) -> None:
        """Returns when the session is at rest, or asks something. One that starts its next turn by itself is not at rest."""
        if not is_active(at.record.run.state):
            return
        types = (*ENDS, DELETED, WAITING) if asks else (*ENDS, DELETED)
        async for event in self.context.ledger.follow(at.id, after=at.session.last_seq, types=types):
            if event.type in (WAITING, DELETED) or not await self._is_active(at.id):
                return

    async def _is_active(self, session: str) -> bool:
        try:
            return is_active((await self.context.unit.load(session)).record.run.state)
        except SessionNotFound:
            # Deleted as soon as it had ended.
            return False

    async def _tell(self, sessions: Sequence[LoadedAgent], notice: Notice) -> None:
        while True:
            await asyncio.sleep(NOTICE_SECONDS)
            await notice(await self._now(sessions))

    async def _now(self, sessions: Sequence[LoadedAgent]) -> tuple[AgentSession, ...]:
        """As they are now; those that were deleted meanwhile are left out."""
        found = []
        for at in sessions:
            with suppress(SessionNotFound):
                found.append(view(await self.context.unit.load(at.id)))
        return tuple(found)


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

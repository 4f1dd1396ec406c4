"""Waiting for runs to end, without polling and with a timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec

from fidelio.orchestrator.record.model import AgentSession
from fidelio.orchestrator.record.record import END_EVENTS, RUN_WAITING, SESSION_DELETED
from fidelio.orchestrator.record.rules import is_active
from fidelio.orchestrator.record.unit_of_work import LoadedAgent, view_session
from fidelio.orchestrator.runs.context import OrchestratorContext
from fidelio.retry import cancel_tasks

ProgressCallback = Callable[[tuple[AgentSession, ...]], Awaitable[None]]
WaitMode = Literal["any", "all"]
# Clients time out after a minute without progress, and some after 15 seconds.
NOTICE_SECONDS = 10.0


class RunWaiter(msgspec.Struct, frozen=True):
    """Waits for the ends of runs, whichever process hosts them."""

    context: OrchestratorContext

    async def wait(
        self,
        sessions: Sequence[LoadedAgent],
        *,
        mode: WaitMode,
        seconds: float | None,
        on_progress: ProgressCallback | None = None,
    ) -> tuple[AgentSession, ...]:
        """Wait until any (or all) have finished or ask something, at most `seconds` (None: no limit); return their state."""
        ends = [asyncio.create_task(self._wait_for_end(agent)) for agent in sessions]
        reporting = asyncio.create_task(self._report_progress(sessions, on_progress)) if on_progress else None
        try:
            when = asyncio.FIRST_COMPLETED if mode == "any" else asyncio.ALL_COMPLETED
            done, _ = await asyncio.wait(ends, timeout=seconds, return_when=when)
            for task in done:
                task.result()
        finally:
            await cancel_tasks(*ends, *([reporting] if reporting else []))
        return tuple(map(view_session, await self.context.unit.reload(sessions)))

    async def wait_until_ended(self, sessions: Sequence[LoadedAgent], *, seconds: float) -> None:
        """Wait until all have ended or were deleted, whatever they ask meanwhile, at most `seconds`."""
        ends = [asyncio.create_task(self._wait_for_end(agent, include_questions=False)) for agent in sessions]
        try:
            await asyncio.wait(ends, timeout=seconds)
        finally:
            await cancel_tasks(*ends)

    async def _wait_for_end(self, agent: LoadedAgent, *, include_questions: bool = True) -> None:
        """Return when the session has no active run, or asks something. A session with a queued next run is active."""
        if not is_active(agent.record.run.state):
            return
        types = (*END_EVENTS, SESSION_DELETED, RUN_WAITING) if include_questions else (*END_EVENTS, SESSION_DELETED)
        async for event in self.context.ledger.follow(agent.id, after=agent.session.last_seq, types=types):
            if event.type in (RUN_WAITING, SESSION_DELETED):
                return
            # It may have been deleted as soon as it had ended.
            if not any(is_active(current.record.run.state) for current in await self.context.unit.reload([agent])):
                return

    async def _report_progress(self, sessions: Sequence[LoadedAgent], on_progress: ProgressCallback) -> None:
        while True:
            await asyncio.sleep(NOTICE_SECONDS)
            await on_progress(tuple(map(view_session, await self.context.unit.reload(sessions))))

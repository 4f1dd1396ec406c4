"""Stops agents, whoever carries them out.

A run that still waits for its turn is ended here and now. For one at work the wish is put on record; its host, in whatever
process it lives, follows the record and ends it. Where there is no host, the processes that it left are ended from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import msgspec

from fidelio.locks import host_lock, host_name
from fidelio.orchestrator.record.record import STOP_REQUESTED
from fidelio.orchestrator.record.rules import STOPPED_ON_REQUEST, STOPPED_WITH_PARENT, is_active
from fidelio.orchestrator.record.unit_of_work import AgentDecision, EventDraft, LoadedAgent
from fidelio.orchestrator.runs.context import OrchestratorContext
from fidelio.orchestrator.runs.lineage import require_not_own
from fidelio.orchestrator.runs.queries import Queries
from fidelio.orchestrator.runs.results import Ending, bring_to_end, end, of_stop
from fidelio.orchestrator.service.wait import Waits
from fidelio.processes.ending import end_processes

# Asking politely, then killing, takes a host some seconds; a call must not take much longer.
STOP_SECONDS = 20.0
# One that is being stopped starts nobody any more, so the second look finds what was begun before that, and the third nobody.
_LOOKS = 10


class Stopping(msgspec.Struct, frozen=True):
    """Ends runs before they end by themselves."""

    context: OrchestratorContext
    queries: Queries
    waits: Waits

    async def stop(self, at: LoadedAgent, *, by: str) -> LoadedAgent:
        """The session at rest, or as it is when that takes too long. Stopping what has ended changes nothing."""
        await require_not_own(self.context, at, by)
        await self.stop_all([at], by=by)
        return await self.context.unit.load(at.id)

    async def stop_all(self, sessions: Sequence[LoadedAgent], *, by: str, going: Collection[str] = ()) -> None:
        """Stops many sessions at once with all that they have started, also what they start while they are stopped.

        `going` are sessions that need no word of a child's end, because they are going themselves.
        """
        asked = [
            await self._ask(at, by, STOPPED_WITH_PARENT if at.record.parent in going else STOPPED_ON_REQUEST) for at in sessions
        ]
        seen: set[str] = set()
        for _ in range(_LOOKS):
            asked += [await self._ask(at, by, STOPPED_WITH_PARENT) for at in await self._at_work_below(sessions, seen)]
            if not asked:
                return
            await self.ended(asked)
            seen |= {at.record.run.id for at in asked}
            asked = []

    async def ended(self, asked: list[LoadedAgent]) -> None:
        """Waits for the ends that were asked for, and brings them about where nobody else will."""
        active = [at for at in asked if is_active(at.record.run.state)]
        lock = host_lock(self.context.home)
        if active and lock.acquire():
            try:
                # What another machine carries out is not ours to end.
                ours = [at for at in active if at.record.run.host == host_name(self.context.home)]
                await asyncio.gather(*(self._end_orphan(at) for at in ours))
            finally:
                lock.release()
            active = [at for at in active if at not in ours]
        if active:
            await self.waits.at_rest(active, seconds=STOP_SECONDS)

    async def _ask(self, at: LoadedAgent, by: str, reason: str) -> LoadedAgent:
        def decide(now: LoadedAgent) -> AgentDecision | None:
            run = now.record.run
            if not is_active(run.state) or run.stop_by:
                return None
            if run.state == "queued":
                ending = Ending(state="stopped", reason=reason, detail=f"It was stopped by {by} before it began.")
                return end(run.id, ending, now_ms=self.context.clock())(now)
            return AgentDecision(drafts=(EventDraft(STOP_REQUESTED, {"run": run.id, "by": by, "reason": reason}),))

        return await self.context.unit.update(at, decide, actor=by)

    async def _at_work_below(self, sessions: Sequence[LoadedAgent], seen: Collection[str]) -> list[LoadedAgent]:
        """The children at work, and theirs, except the runs that were seen to already."""
        below = list(sessions)
        found: dict[str, LoadedAgent] = {}
        while below:
            for child in await self.queries.children(below.pop().id):
                if child.id not in found:
                    found[child.id] = child
                    below.append(child)
        return [at for at in found.values() if is_active(at.record.run.state) and at.record.run.id not in seen]

    async def _end_orphan(self, at: LoadedAgent) -> None:
        """Nobody carries out runs, so what is left of this one belongs to whoever holds the lock now."""
        await end_processes(at.record.run.id)
        await bring_to_end(self.context, at, of_stop(at.record.run), actor="service")

"""Stops agents, whoever carries them out.

A run that still waits for its turn is ended here and now. For one at work the wish is put on record; its host, in whatever
process it lives, follows the record and ends it. Where there is no host, the processes that it left are ended from here.
"""

from __future__ import annotations

import asyncio

import msgspec

from fidelio.orchestrator.desk import Decision, Draft, Opened
from fidelio.orchestrator.ending import Ending, bring_to_end, end, of_stop
from fidelio.orchestrator.lock import host_lock, host_name
from fidelio.orchestrator.orphans import end_processes
from fidelio.orchestrator.parts import Parts
from fidelio.orchestrator.queries import Queries
from fidelio.orchestrator.record import STOP_REQUESTED
from fidelio.orchestrator.rules import STOPPED_ON_REQUEST, STOPPED_WITH_PARENT, is_active
from fidelio.orchestrator.waiting import Waits

# Asking politely, then killing, takes a host some seconds; a call must not take much longer.
STOP_SECONDS = 20.0


class Stopping(msgspec.Struct, frozen=True):
    """Ends runs before they end by themselves."""

    parts: Parts
    queries: Queries
    waits: Waits

    async def stop(self, at: Opened, *, by: str) -> Opened:
        """The session at rest, or as it is when that takes too long. Stopping what has ended changes nothing."""
        asked = [await self._ask(at, by, STOPPED_ON_REQUEST), *await self._ask_children(at, by)]
        await self.ended(asked)
        return await self.parts.desk.open(at.id)

    async def stop_all(self, sessions: list[Opened], *, by: str) -> None:
        """Stops many sessions at once; their children are among them or are stopped too."""
        asked = [await self._ask(at, by, STOPPED_ON_REQUEST) for at in sessions]
        for at in sessions:
            asked += await self._ask_children(at, by)
        await self.ended(asked)

    async def ended(self, asked: list[Opened]) -> None:
        """Waits for the ends that were asked for, and brings them about where nobody else will."""
        active = [at for at in asked if is_active(at.record.run.state)]
        lock = host_lock(self.parts.home)
        if active and lock.take():
            try:
                # What another machine carries out is not ours to end.
                ours = [at for at in active if at.record.run.host == host_name(self.parts.home)]
                await asyncio.gather(*(self._end_orphan(at) for at in ours))
            finally:
                lock.release()
            active = [at for at in active if at not in ours]
        if active:
            await self.waits.at_rest(active, seconds=STOP_SECONDS)

    async def _ask(self, at: Opened, by: str, reason: str) -> Opened:
        def decide(now: Opened) -> Decision | None:
            run = now.record.run
            if not is_active(run.state) or run.stop_by:
                return None
            if run.state == "queued":
                ending = Ending(state="stopped", reason=reason, detail=f"It was stopped by {by} before it began.")
                return end(run.id, ending, now_ms=self.parts.clock())(now)
            return Decision(drafts=(Draft(STOP_REQUESTED, {"run": run.id, "by": by, "reason": reason}),))

        return await self.parts.desk.write(at, decide, actor=by)

    async def _ask_children(self, at: Opened, by: str) -> list[Opened]:
        asked: list[Opened] = []
        for child in await self.queries.children(at.id):
            if is_active(child.record.run.state):
                asked.append(await self._ask(child, by, STOPPED_WITH_PARENT))
            asked += await self._ask_children(child, by)
        return asked

    async def _end_orphan(self, at: Opened) -> None:
        """Nobody carries out runs, so what is left of this one belongs to whoever holds the lock now."""
        await end_processes(at.record.run.id)
        await bring_to_end(self.parts, at, of_stop(at.record.run), actor="service")

"""Stopping sessions, whichever process hosts them.

A queued run is ended at once. For an active run the request to stop is recorded; its host, in this process or another, follows
the ledger and ends the run. Where there is no host, the processes that it left are ended from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import msgspec

from fidelio.locks import host_lock, host_name
from fidelio.orchestrator.record.record import RUN_STOP_REQUESTED
from fidelio.orchestrator.record.rules import STOPPED_ON_REQUEST, STOPPED_WITH_PARENT, is_active
from fidelio.orchestrator.record.unit_of_work import AgentDecision, LoadedAgent, draft_event
from fidelio.orchestrator.runs.context import OrchestratorContext
from fidelio.orchestrator.runs.lineage import require_outside_ancestry
from fidelio.orchestrator.runs.queries import AgentQueries
from fidelio.orchestrator.runs.results import RunEnd, decide_end, end_from_stop, finish_run
from fidelio.orchestrator.service.wait import RunWaiter
from fidelio.processes.ending import end_processes

# SIGTERM, a grace period and SIGKILL take a host some seconds; a call must not take much longer.
STOP_SECONDS = 20.0
# A session that is being stopped starts no sessions, so the second round finds what was started before, and the third nothing.
_MAX_ROUNDS = 10


class SessionStopper(msgspec.Struct, frozen=True):
    """Ends active runs on request."""

    context: OrchestratorContext
    queries: AgentQueries
    waiter: RunWaiter

    async def request(self, agent: LoadedAgent, *, by: str) -> None:
        """Record the request to stop a session, and wait for nothing. Its host stops it, and so does any that follows."""
        await require_outside_ancestry(self.context, agent, by)
        await self._request_stop(agent, by, STOPPED_ON_REQUEST)

    async def stop(self, agent: LoadedAgent, *, by: str) -> LoadedAgent:
        """Stop a session, and return its state then or after the timeout. Stopping a finished session changes nothing."""
        await require_outside_ancestry(self.context, agent, by)
        await self.stop_all([agent], by=by)
        return await self.context.unit.load(agent.id)

    async def stop_all(self, sessions: Sequence[LoadedAgent], *, by: str, deleting: Collection[str] = ()) -> None:
        """Stop many sessions with all that they have started, also what they start while they are stopped.

        `deleting` are sessions that need no callback about a child's end, because they are being deleted.
        """
        stopping = [
            await self._request_stop(agent, by, STOPPED_WITH_PARENT if agent.record.parent in deleting else STOPPED_ON_REQUEST)
            for agent in sessions
        ]
        seen: set[str] = set()
        for _ in range(_MAX_ROUNDS):
            stopping += [
                await self._request_stop(agent, by, STOPPED_WITH_PARENT)
                for agent in await self._active_descendants(sessions, seen)
            ]
            if not stopping:
                return
            await self._wait_for_ends(stopping)
            seen |= {agent.record.run.id for agent in stopping}
            stopping = []

    async def _wait_for_ends(self, stopping: list[LoadedAgent]) -> None:
        """Wait for the ends of these runs, and end those that have no host."""
        active = [agent for agent in stopping if is_active(agent.record.run.state)]
        lock = host_lock(self.context.home)
        if active and lock.acquire():
            try:
                # Runs that another machine hosts are left to it.
                ours = [agent for agent in active if agent.record.run.host == host_name(self.context.home)]
                await asyncio.gather(*(self._end_orphan(agent) for agent in ours))
            finally:
                lock.release()
            active = [agent for agent in active if agent not in ours]
        if active:
            await self.waiter.wait_until_ended(active, seconds=STOP_SECONDS)

    async def _request_stop(self, agent: LoadedAgent, by: str, reason: str) -> LoadedAgent:
        def decide(current: LoadedAgent) -> AgentDecision | None:
            run = current.record.run
            if not is_active(run.state) or run.stop_by:
                return None
            if run.state == "queued":
                ending = RunEnd(state="stopped", reason=reason, detail=f"It was stopped by {by} before it began.")
                return decide_end(run.id, ending, now_ms=self.context.clock())(current)
            return AgentDecision(None, events=(draft_event(RUN_STOP_REQUESTED, {"run": run.id, "by": by, "reason": reason}),))

        return await self.context.unit.update(agent, decide, actor=by)

    async def _active_descendants(self, sessions: Sequence[LoadedAgent], seen: Collection[str]) -> list[LoadedAgent]:
        """The descendants with an active run, except the runs in `seen`."""
        below = list(sessions)
        found: dict[str, LoadedAgent] = {}
        while below:
            for child in await self.queries.children(below.pop().id):
                if child.id not in found:
                    found[child.id] = child
                    below.append(child)
        return [agent for agent in found.values() if is_active(agent.record.run.state) and agent.record.run.id not in seen]

    async def _end_orphan(self, agent: LoadedAgent) -> None:
        """End a run that has no host; the caller holds the lock of the agent host."""
        await end_processes(agent.record.run.id)
        await finish_run(self.context, agent, end_from_stop(agent.record.run), actor="service")

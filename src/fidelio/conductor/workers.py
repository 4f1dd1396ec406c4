"""The agent sessions that do the work of a workflow, one for each visit of an activity, or for each stretch of one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fidelio.engine.record import Record
from fidelio.errors import AgentBusy, AgentSessionExists, AgentSessionNotFound
from fidelio.orchestrator.record.model import StartAgent
from fidelio.orchestrator.record.rules import MAX_NAME_LENGTH

if TYPE_CHECKING:
    from fidelio.conductor.plan import Plan
    from fidelio.mcp_client import McpServer
    from fidelio.orchestrator.record.model import AgentSession, Run, RunResult
    from fidelio.orchestrator.service.service import AgentService

SERVER = "fidelio"


class Workers:
    """Workers by session and visit. `server` is how a worker reaches the workflow tools."""

    def __init__(self, agents: AgentService, server: McpServer) -> None:
        self._agents = agents
        self._server = server
        self._costs: dict[tuple[str, int], float] = {}

    @property
    def cost_usd(self) -> float:
        """What the runs that were seen have cost."""
        return sum(self._costs.values())

    def name(self, session: str, record: Record, part: str = "") -> str:
        """Follows from the visit and the part of it, so that whoever goes on with the workflow finds who is at it."""
        place = f"{record.visit}-{part}" if part else str(record.visit)
        return re.sub(r"[^A-Za-z0-9_-]", "-", f"{session}-{place}-{record.activity}")[:MAX_NAME_LENGTH]

    async def check(self, blueprint: str, project: str) -> None:
        """Raises where such a worker could not be started there."""
        await self._agents.check_start(blueprint, project, {SERVER: self._server})

    async def check_caller(self, caller: str | None) -> None:
        """Raises where the agent that asks may not start workers below itself."""
        if caller is not None:
            await self._agents.check_caller(caller)

    async def find(self, session: str, record: Record, project: str, part: str = "") -> AgentSession | None:
        try:
            found = await self._agents.find(self.name(session, record, part), project)
        except AgentSessionNotFound:
            return None
        for run in await self.runs(found):
            self._costs[found.id, run.number] = run.usage.cost_usd
        return found

    async def start(self, session: str, record: Record, plan: Plan, prompt: str, part: str = "") -> AgentSession:
        wanted = StartAgent(
            name=self.name(session, record, part),
            prompt=prompt,
            blueprint=plan.agent_for(record.activity),
            project=plan.project,
            parent=plan.caller,
            mcp_servers={SERVER: self._server},
        )
        try:
            return await self._agents.start(wanted)
        except AgentSessionExists:
            # It was left by a process that ended just now.
            return await self._agents.find(wanted.name, plan.project)

    async def wait(self, worker: AgentSession, seconds: float) -> AgentSession:
        await self._agents.wait([worker.id], mode="all", seconds=seconds)
        found = await self._agents.find(worker.id)
        self._costs[found.id, found.run.number] = found.run.usage.cost_usd
        return found

    async def resume(self, worker: AgentSession, prompt: str) -> None:
        try:
            await self._agents.resume(worker.id, prompt)
        except AgentBusy:
            # Somebody has given it something to do; it is looked at again when it has ended.
            return

    async def stop(self, worker: AgentSession) -> AgentSession:
        return await self._agents.stop(worker.id, by="conductor")

    async def result(self, worker: AgentSession) -> RunResult:
        return await self._agents.result(worker.id)

    async def runs(self, worker: AgentSession) -> Sequence[Run]:
        return await self._agents.runs(worker.id)

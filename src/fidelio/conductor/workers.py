"""Agent sessions that work for a workflow: a worker per visit of an activity, or per segment of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fidelio.engine.record import Record
from fidelio.errors import AgentBusy, AgentSessionExists, AgentSessionNotFound
from fidelio.orchestrator.record.model import StartAgent, Usage
from fidelio.orchestrator.record.rules import MAX_NAME_LENGTH

if TYPE_CHECKING:
    from fidelio.conductor.plan import Plan
    from fidelio.mcp_client import McpServer
    from fidelio.orchestrator.record.model import AgentSession, Run, RunResult
    from fidelio.orchestrator.service.service import AgentService

SERVER_NAME = "fidelio"
_PAGE = 200


class Workers:
    """Workers by session, visit and segment. `server` is the MCP server that gives a worker the workflow tools."""

    def __init__(self, agents: AgentService, server: McpServer) -> None:
        self._agents = agents
        self._server = server
        self._usages: dict[tuple[str, int], Usage] = {}

    @property
    def usage(self) -> Usage:
        """What all runs that this object has seen have used."""
        return sum(self._usages.values(), Usage())

    def build_name(self, session: str, record: Record, segment: str = "") -> str:
        """The name of a worker. It depends only on the visit and the segment, so that another process finds the same worker."""
        position = f"{record.visit}-{segment}" if segment else str(record.visit)
        return re.sub(r"[^A-Za-z0-9_-]", "-", f"{session}-{position}-{record.activity}")[:MAX_NAME_LENGTH]

    async def check(self, blueprint: str, project: str) -> None:
        """Raise if a worker of this blueprint cannot be started in the project."""
        await self._agents.check_start(blueprint, project, {SERVER_NAME: self._server})

    async def check_caller(self, caller: str | None) -> None:
        """Raise if the calling agent may not start children."""
        if caller is not None:
            await self._agents.check_caller(caller)

    async def find(self, session: str, record: Record, project: str, segment: str = "") -> AgentSession | None:
        try:
            worker = await self._agents.find(self.build_name(session, record, segment), project)
        except AgentSessionNotFound:
            return None
        for run in await self.runs(worker):
            self._usages[worker.id, run.number] = run.usage
        return worker

    async def start(self, session: str, record: Record, plan: Plan, prompt: str, segment: str = "") -> AgentSession:
        start = StartAgent(
            name=self.build_name(session, record, segment),
            prompt=prompt,
            blueprint=plan.agent_for(record.activity),
            project=plan.project,
            parent=plan.caller,
            mcp_servers={SERVER_NAME: self._server},
            # All workers of a workflow session work in the same copy of the project.
            sandbox=f"workflow-{session}",
        )
        try:
            return await self._agents.start(start)
        except AgentSessionExists:
            # Another process started it and ended after our lookup; start must not fail for that.
            return await self._agents.find(start.name, plan.project)

    async def wait(self, worker: AgentSession, seconds: float) -> AgentSession:
        await self._agents.wait([worker.id], mode="all", seconds=seconds)
        current = await self._agents.find(worker.id)
        self._usages[current.id, current.run.number] = current.run.usage
        return current

    async def resume(self, worker: AgentSession, prompt: str) -> None:
        try:
            await self._agents.resume(worker.id, prompt)
        except AgentBusy:
            # A person or agent resumed it first. The supervisor looks at it again when that run has ended.
            return

    async def request_stop(self, worker: AgentSession, *, by: str) -> None:
        await self._agents.request_stop(worker.id, by=by)

    async def stop(self, worker: AgentSession, *, by: str = "conductor") -> AgentSession:
        return await self._agents.stop(worker.id, by=by)

    async def list_active(self, session: str, project: str) -> list[AgentSession]:
        """The workers of a workflow session whose runs have not ended."""
        found: list[AgentSession] = []
        cursor: str | None = None
        while True:
            # All active states at once: a worker that goes from one to another during this would be missed, or found twice.
            page = await self._agents.list(project, status="running", cursor=cursor, limit=_PAGE)
            found += [worker for worker in page.items if worker.name.startswith(f"{session}-")]
            cursor = page.next
            if cursor is None:
                return found

    async def result(self, worker: AgentSession) -> RunResult:
        return await self._agents.result(worker.id)

    async def runs(self, worker: AgentSession) -> Sequence[Run]:
        return await self._agents.runs(worker.id)

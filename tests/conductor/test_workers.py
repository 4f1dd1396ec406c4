"""The list of workers that are active."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from fidelio.conductor.workers import Workers
from fidelio.ledger.model import Page
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.record.model import AgentSession, Run, RunState
from fidelio.orchestrator.record.rules import matches_status
from tests.support import proves

if TYPE_CHECKING:
    from fidelio.orchestrator.service.service import AgentService

STATES: tuple[RunState, ...] = ("starting", "running", "waiting", "running", "waiting")


class MovingAgents:
    """Agents of a project, one on a page, whose worker is in another state at every call."""

    def __init__(self) -> None:
        self._calls = 0

    async def list(self, project: str, *, status: str, cursor: str | None, limit: int) -> Page[AgentSession]:
        assert limit
        state = STATES[min(self._calls, len(STATES) - 1)]
        self._calls += 1
        names = ("other-1", "s_one-1-tune")
        at = int(cursor or 0)
        run = Run(id="r", number=1, state=state)
        session = AgentSession(id=names[at], name=names[at], project=project, blueprint="", executor="", run=run)
        following = str(at + 1) if at + 1 < len(names) else None
        return Page((session,) if matches_status(state, status) else (), following)


@proves("interrupts.stop-agents")
async def test_a_worker_whose_state_changes_while_the_active_ones_are_listed_is_found_once() -> None:
    workers = Workers(cast("AgentService", MovingAgents()), McpServer(command="fidelio"))

    found: list[Any] = await workers.list_active("s_one", "/project")

    assert [worker.name for worker in found] == ["s_one-1-tune"]

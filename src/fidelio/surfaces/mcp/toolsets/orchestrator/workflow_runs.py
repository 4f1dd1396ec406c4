"""Background runs of workflows with agents, for the tool run_workflow.

Only the tasks are kept here: the state of a run is in the ledger, and calling the tool again continues it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from fidelio.app.application import Application
from fidelio.clock import now_ms
from fidelio.errors import ConductorFailure
from fidelio.toolkit import CallContext

if TYPE_CHECKING:
    from fidelio.conductor.conductor import Conductor
    from fidelio.conductor.plan import Plan
    from fidelio.engine.record import Record
    from fidelio.workflows.service import WorkflowService

PROGRESS_SECONDS = 10.0


class WorkflowRuns:
    """The runs that this process carries out."""

    def __init__(self, house: Application) -> None:
        self._house = house
        self._tasks: dict[str, asyncio.Task[object]] = {}
        # Why runs have ended here that could not put it on record themselves.
        self._broken: dict[str, str] = {}

    async def run(self, context: CallContext, plan: Plan, *, anew: bool, seconds: float) -> dict[str, Any]:
        """Begins the run or goes on with it, and says how it stands after `seconds` at the latest."""
        from fidelio.conductor.context import ignore_event  # noqa: PLC0415  # waits for the first call

        conductor = await self._house.conductor(ignore_event)
        found = await conductor.find_or_start(plan, force_new=anew)
        if found.session not in self._tasks:
            self._broken.pop(found.session, None)
            task: asyncio.Task[object] = asyncio.create_task(conductor.run(found.session))
            self._tasks[found.session] = task
            task.add_done_callback(partial(self._ended, found.session))
        await self._watch(context, conductor, found.session, seconds)
        return await self._status(conductor, found.session)

    def _ended(self, session: str, task: asyncio.Task[object]) -> None:
        """A run that fails says why in its record. Where even that fails, nobody carries it out and nobody would know."""
        self._tasks.pop(session, None)
        problem = None if task.cancelled() else task.exception()
        if problem is not None and not isinstance(problem, ConductorFailure):
            self._broken[session] = f"{problem} Calling run_workflow again goes on from here."

    async def _watch(self, context: CallContext, conductor: Conductor, session: str, seconds: float) -> None:
        """Waits for the end, and tells the client on the way where the run stands."""
        began = now_ms()
        while (task := self._tasks.get(session)) is not None and (left := seconds - (now_ms() - began) / 1000) > 0:
            await asyncio.wait([task], timeout=min(left, PROGRESS_SECONDS))
            status = await self._status(conductor, session)
            await context.report((now_ms() - began) / 1000, None, status.get("activity") or status["status"])

    async def _status(self, conductor: Conductor, session: str) -> dict[str, Any]:
        service = await self._house.workflows()
        record = await service.current_record(session)
        failed = self._broken.get(session) or await conductor.load_last_failure(session)
        body = {
            "session_id": session,
            "workflow_id": record.workflow,
            "status": "failed" if failed else record.status,
            "activity": record.activity,
            "completed_activities": list(record.completed),
            "question": await _answer_command(service, record),
            "reason": failed,
        }
        return {key: value for key, value in body.items() if value}


async def _answer_command(service: WorkflowService, record: Record) -> str:
    """The command that answers the open request of the run, or of the workflow that it has started."""
    while record.suspended_by:
        record = await service.current_record(record.suspended_by)
    return f"`fidelio answer {record.waiting.request} OPTION`" if record.waiting else ""

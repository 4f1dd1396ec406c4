"""The background runs of workflows that run_workflow starts."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from fidelio.app.application import Application
from fidelio.clock import now_ms
from fidelio.conductor.conductor import Conductor
from fidelio.conductor.context import ignore_event
from fidelio.conductor.plan import DEFAULT_WORKER, Plan
from fidelio.engine.record import Record
from fidelio.errors import Command, ConductorFailure, FidelioError, Hint, Text
from fidelio.surfaces.mcp.toolsets.orchestrator.parameters import RunWorkflow
from fidelio.toolkit import CallContext
from fidelio.workflows.service import WorkflowService

PROGRESS_SECONDS = 10.0


def build_plan(arguments: RunWorkflow, project: str, caller: str | None) -> Plan:
    """Convert the arguments of run_workflow to a plan of the conductor."""
    return Plan(
        workflow=arguments.workflow_id,
        project=project,
        agent=arguments.agent_blueprint_name or DEFAULT_WORKER,
        activity_agents=arguments.activity_agents,
        inputs=arguments.inputs,
        caller=caller,
    )


class WorkflowRuns:
    """Background runs of workflows in this process, for run_workflow.

    Only the tasks are held here: the state of a run is in the ledger, and calling the tool again continues it.
    """

    def __init__(self, app: Application) -> None:
        self._app = app
        self._tasks: dict[str, asyncio.Task[object]] = {}
        # Reasons of failed runs that could not record the failure themselves.
        self._failures: dict[str, Text] = {}

    async def run(self, context: CallContext, plan: Plan, *, anew: bool, seconds: float) -> dict[str, Any]:
        """Start or continue the run, and return its status after at most `seconds`."""
        conductor = await self._app.conductor(ignore_event)
        record = await conductor.find_or_start(plan, force_new=anew)
        if record.session not in self._tasks:
            self._failures.pop(record.session, None)
            task: asyncio.Task[object] = asyncio.create_task(conductor.run(record.session))
            self._tasks[record.session] = task
            task.add_done_callback(partial(self._on_end, record.session))
        await self._watch(context, conductor, record.session, seconds)
        return await self._status(conductor, record.session)

    def _on_end(self, session: str, task: asyncio.Task[object]) -> None:
        """Keep the reason of a failure that the conductor could not record; otherwise the run would end without a trace."""
        self._tasks.pop(session, None)
        problem = None if task.cancelled() else task.exception()
        if problem is not None and not isinstance(problem, ConductorFailure):
            text = problem.text if isinstance(problem, FidelioError) else str(problem)
            self._failures[session] = Hint(text, " Call run_workflow again to continue the run.")

    async def _watch(self, context: CallContext, conductor: Conductor, session: str, seconds: float) -> None:
        """Wait for the end of the run, and report its progress to the client."""
        started_at = now_ms()
        while (task := self._tasks.get(session)) is not None and (
            remaining_seconds := seconds - (now_ms() - started_at) / 1000
        ) > 0:
            await asyncio.wait([task], timeout=min(remaining_seconds, PROGRESS_SECONDS))
            status = await self._status(conductor, session)
            await context.report((now_ms() - started_at) / 1000, None, status.get("activity") or status["status"])

    async def _status(self, conductor: Conductor, session: str) -> dict[str, Any]:
        service = await self._app.workflows()
        record = await service.current_record(session)
        failed = self._failures.get(session) or await conductor.load_last_failure(session)
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


async def _answer_command(service: WorkflowService, record: Record) -> Command | None:
    """Return the command that answers the open request of the run, or leads to where it is signed."""
    while record.suspended_by:
        record = await service.current_record(record.suspended_by)
    return record.waiting.answer_command if record.waiting else None

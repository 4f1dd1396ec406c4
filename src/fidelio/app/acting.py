"""What a person does with runs, agents and sessions: starts them, writes to them, stops and deletes them.

The web page and the API call this, so that both do the same. Who the person is, and that it is one, they find out first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, Literal

import msgspec

from fidelio.app.application import Application
from fidelio.conductor.context import ignore_event
from fidelio.conductor.plan import DEFAULT_WORKER, RUN_STARTED, Plan
from fidelio.definitions.models import Workflow
from fidelio.engine.variables import check_variables, find_missing_required
from fidelio.errors import UsageProblem
from fidelio.ids import new_id
from fidelio.ledger.model import Session
from fidelio.orchestrator.record.model import StartAgent
from fidelio.orchestrator.runs.context import require_directory, resolve_project
from fidelio.runtime.agents.files import DEFAULT, resolve_agent
from fidelio.runtime.service import NewAgentSession

LONGEST_MESSAGE = 100_000
# What a stop has done: to the run of an agent, to the turn of an agent of the runtime, to the run of a workflow.
Stopped = Literal["stopped", "interrupted", "ended"]
_LOG = logging.getLogger(__name__)


class DeletedSessions(msgspec.Struct, frozen=True):
    """The sessions that a deletion has erased, and the worktrees that stay because they hold changes."""

    deleted: tuple[str, ...]
    retained_worktrees: tuple[str, ...]


class PersonActions:
    """Carries out what a person wants. `by` is the person, `channel` how it came, `project` where new sessions begin."""

    def __init__(self, application: Application, project: str) -> None:
        self._application, self._project = application, project
        # By the session of the run.
        self._running: dict[str, asyncio.Task[Any]] = {}

    async def run_workflow(
        self, workflow: str, inputs: Mapping[str, Any], *, agent: str = "", project: str = "", by: str
    ) -> str:
        """Let agents carry out a workflow, and return the session of the run. The run goes on in this process."""
        plan = Plan(
            workflow=workflow,
            project=resolve_project(project or self._project),
            agent=agent or DEFAULT_WORKER,
            inputs=inputs,
            inputs_by=by,
        )
        require_directory(plan.project)
        conductor = await self._application.conductor(ignore_event)
        run = await conductor.find_or_start(plan, force_new=True)
        self._keep_running(run.session, conductor.run(run.session))
        return run.session

    def is_running(self, session: str) -> bool:
        """Whether this process carries out a run."""
        return session in self._running

    async def is_run_of_agents(self, session: Session) -> bool:
        """Whether agents carry out a session, in whatever process."""
        records = await self._application.records()
        return session.kind == "workflow" and bool(await records.events(session.id, types=(RUN_STARTED,), limit=1))

    async def continue_run(self, session: Session) -> None:
        """Let the agents of a run go on where they failed, or where their process ended. The run goes on in this process."""
        if not await self.is_run_of_agents(session):
            raise UsageProblem(f"No agents carry out session {session.id}.", remedy="Its page says what it is.")
        conductor = await self._application.conductor(ignore_event)
        conductor.require_free_run(session.id)
        self._keep_running(session.id, conductor.run(session.id))

    async def start_agent(self, blueprint: str, message: str, *, name: str = "", project: str = "") -> str:
        """Start an agent of a blueprint, by default with a name of its own, and return its session."""
        wanted = StartAgent(
            name=name or new_id("agent-", 8), prompt=message, blueprint=blueprint or None, project=project or self._project
        )
        return (await (await self._application.agents()).start(wanted)).id

    async def start_runtime_agent(self, agent: str, message: str, *, by: str, channel: str) -> str:
        """Start a session of an agent of the runtime with a first message, and return it."""
        service = await self._application.runtime()
        defined = await resolve_agent(service.context, self._project, agent or DEFAULT)
        session = await service.start_session(
            NewAgentSession(project=self._project, agent=defined.name, version=defined.version)
        )
        await self._say(session, message, by=by, channel=channel)
        return session

    async def send(self, session: Session, message: str, *, by: str, channel: str) -> None:
        """Send a message to an agent, which reads it after its run if it is at work."""
        if session.kind == "runtime":
            await self._say(session.id, message, by=by, channel=channel)
        else:
            service = await self._application.agents()
            await service.send(_require_name(session), message, _find_project(session), by=by)

    async def resume(self, session: Session, message: str, *, by: str) -> None:
        """Go on in the conversation of an agent whose run has ended."""
        service = await self._application.agents()
        await service.resume(_require_name(session), message, _find_project(session), by=by)

    async def stop(self, session: Session, *, by: str, channel: str, reason: str) -> Stopped:
        """Stop what a session does: a run of an agent, a turn of an agent of the runtime, a whole run of a workflow."""
        if session.kind == "agent":
            service = await self._application.agents()
            await service.stop(_require_name(session), _find_project(session), by=by)
            return "stopped"
        if session.kind == "runtime":
            runtime = await self._application.runtime()
            await runtime.send(session.id, [{"type": "user.interrupt"}], by=by, channel=channel)
            return "interrupted"
        await self._application.end_session(session.id, by=by, reason=reason)
        return "ended"

    async def delete(self, session: Session, *, by: str, reason: str) -> DeletedSessions:
        """Delete a session and those that it has started. Raises if any of them works or waits."""
        planned = await (await self._application.records()).plan_deletion(session)
        retained = await self._application.delete_sessions(planned, by=by, reason=reason)
        return DeletedSessions(tuple(each.id for each in planned), retained)

    async def close(self) -> None:
        """Stop the runs that go on in this process. A workflow goes on when it is run again."""
        running = tuple(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _say(self, session: str, message: str, *, by: str, channel: str) -> None:
        service = await self._application.runtime()
        await service.send(session, [{"type": "user.message", "content": message}], by=by, channel=channel)

    def _keep_running(self, session: str, work: Coroutine[Any, Any, Any]) -> None:
        """What fails in a run is on record in its session."""
        self._running[session] = task = asyncio.create_task(work)
        task.add_done_callback(partial(self._note_end, session))

    def _note_end(self, session: str, task: asyncio.Task[Any]) -> None:
        # The run may have begun again meanwhile.
        if self._running.get(session) is task:
            del self._running[session]
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.warning("A run that a person has started here has failed: %s", error)


def find_input_problems(workflow: Workflow, inputs: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with the inputs of a new run, by the names of variables, and which required ones are missing."""
    problems = {name: found.sentence for name, value in inputs.items() for found in check_variables(workflow, {name: value})}
    missing = (name for name in find_missing_required(workflow, inputs) if name not in problems)
    return {**problems, **dict.fromkeys(missing, "The workflow cannot begin without it.")}


def _require_name(session: Session) -> str:
    if session.name is None:
        raise UsageProblem(f"Session {session.id} was deleted.", remedy="Start another.")
    return session.name


def _find_project(session: Session) -> str | None:
    return session.record.get("project") or None

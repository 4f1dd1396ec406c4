"""Handlers of the orchestrator's tools.

Translation only: the rules are in `fidelio.orchestrator` and `fidelio.conductor`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from fidelio.app.application import Application
from fidelio.clock import now_ms
from fidelio.errors import AgentSessionNotFound, BadAgentInput, ExecutorFailure, UsageProblem
from fidelio.orchestrator.blueprints.catalogue import list_in_thread
from fidelio.orchestrator.record.model import AgentSession, StartAgent
from fidelio.orchestrator.runs.context import resolve_project
from fidelio.orchestrator.service.service import AgentService
from fidelio.surfaces.mcp.toolsets.orchestrator.parameters import (
    AnswerQuestion,
    DeleteAllSessions,
    GetEvents,
    GetResult,
    GetStatus,
    ListBlueprints,
    ListSessions,
    ResumeAgentSession,
    RunWorkflow,
    SendMessage,
    SessionReference,
    StartAgentSession,
    WaitForSessions,
)
from fidelio.surfaces.mcp.toolsets.orchestrator.replies import (
    describe_background_run,
    events_json,
    render_blueprints,
    render_failure,
    render_json,
    render_result_part,
    render_sessions,
    started_json,
)
from fidelio.surfaces.views.agents import answer_hint, blueprints_json, session_json, sessions_json, status_json
from fidelio.toolkit import CallContext, Done, ToolHandlers

if TYPE_CHECKING:
    from fidelio.surfaces.mcp.toolsets.orchestrator.workflow_runs import WorkflowRuns

# The longest wait for the agent host to record an answer.
ANSWER_NOTED_MS = 2_000
POLL = "Use get_agent_session_status or wait_for_agent_sessions to watch it, and get_agent_session_result for its result."


class AgentToolset(ToolHandlers):
    """Handlers of the orchestrator's tools."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._workflow_runs: WorkflowRuns | None = None

    async def list_agent_blueprints(self, arguments: ListBlueprints, _: CallContext) -> Done:
        listing = await list_in_thread(self._app.blueprints().list, _resolve_project(arguments))
        body = blueprints_json(listing, arguments.cursor, arguments.limit)
        return render_json(body) if arguments.response_format == "json" else Done(render_blueprints(body), structured=body)

    async def list_agent_sessions(self, arguments: ListSessions, context: CallContext) -> Done:
        service = await self._app.agents()
        project, status = _read_project(arguments), arguments.state or None
        page = await service.list(project, status=status, cursor=arguments.cursor or None, limit=arguments.limit)
        is_all = not arguments.cursor and page.next is None
        total = len(page.items) if is_all else await service.count(project, status=status)
        waiting = {name: context.render(why) for name, why in (await service.explain_waiting(page.items)).items()}
        body = sessions_json(page.items, page.next, total, waiting)
        if arguments.response_format == "json":
            return render_json(body)
        return Done(render_sessions(page.items, body), structured=body)

    async def start_agent_session(self, arguments: StartAgentSession, context: CallContext) -> Done:
        service = await self._app.agents()
        start = StartAgent(
            name=arguments.session_name,
            prompt=arguments.prompt,
            blueprint=arguments.agent_blueprint_name or arguments.agent_name or None,
            project=_read_project(arguments),
            model=arguments.model or None,
            parent=await self._caller(context),
            callback=arguments.callback,
        )
        try:
            session = await service.start(start)
        except BadAgentInput as error:
            return Done(context.render(error.text), is_error=True, structured={"schema": error.schema})
        return await self._reply_to_start(context, service, session, "started", in_background=arguments.is_async)

    async def resume_agent_session(self, arguments: ResumeAgentSession, context: CallContext) -> Done:
        service = await self._app.agents()
        session = await service.resume(
            arguments.session_name, arguments.prompt, _read_project(arguments), by=await self._actor(context)
        )
        return await self._reply_to_start(context, service, session, "resumed", in_background=arguments.is_async)

    async def delete_all_agent_sessions(self, arguments: DeleteAllSessions, context: CallContext) -> Done:
        service = await self._app.agents()
        deleted = await service.delete_all(_read_project(arguments), by=await self._actor(context))
        message = "All sessions removed" if deleted else "No sessions to remove"
        worktrees = (
            (f"These worktrees hold changes and were kept: {', '.join(deleted.retained_worktrees)}",)
            if deleted.retained_worktrees
            else ()
        )
        spared = (
            (f"These stay, because this call is part of their work: {', '.join(deleted.skipped)}",) if deleted.skipped else ()
        )
        return Done(message, structured={"message": message, "removed": deleted.count}, remarks=worktrees + spared)

    async def get_agent_session_status(self, arguments: GetStatus, context: CallContext) -> Done:
        service = await self._app.agents()
        try:
            session = await service.find(arguments.session_name, _read_project(arguments))
            if arguments.wait_seconds and session.run.is_active:
                session = await self._watch(context, service, session, arguments.wait_seconds)
        except AgentSessionNotFound:
            return render_json({"status": "not_existent"})
        why = (await service.explain_waiting([session])).get(session.id, "")
        return render_json(status_json(session, await service.questions(session), render=context.render, why=why))

    async def get_agent_session_result(self, arguments: GetResult, context: CallContext) -> Done:
        service = await self._app.agents()
        try:
            result = await service.result(
                arguments.session_name, _read_project(arguments), run=str(arguments.run) if arguments.run else None
            )
        except ExecutorFailure as failure:
            return render_failure(context, failure, arguments.limit)
        return render_result_part(result, arguments.offset, arguments.limit)

    async def wait_for_agent_sessions(self, arguments: WaitForSessions, context: CallContext) -> Done:
        service = await self._app.agents()
        named = [await service.find(name, _read_project(arguments)) for name in arguments.session_names]
        session_ids = [session.id for session in named]
        sessions = await service.wait(
            session_ids, mode=arguments.mode, seconds=arguments.timeout_seconds, on_progress=_make_reporter(context)
        )
        remaining = {session.id for session in sessions}
        body = {
            "finished": [session.name for session in sessions if not session.run.is_active],
            "running": [session.name for session in sessions if session.run.is_active],
            "deleted": [session.name for session in named if session.id not in remaining],
            "sessions": [session_json(session, await service.questions(session)) for session in sessions],
        }
        return render_json(body)

    async def stop_agent_session(self, arguments: SessionReference, context: CallContext) -> Done:
        service = await self._app.agents()
        session = await service.stop(arguments.session_name, _read_project(arguments), by=await self._actor(context))
        return render_json(status_json(session, render=context.render))

    async def delete_agent_session(self, arguments: SessionReference, context: CallContext) -> Done:
        service = await self._app.agents()
        session = await service.find(arguments.session_name, _read_project(arguments))
        deleted = await service.delete(session.id, by=await self._actor(context))
        worktree = {"kept_worktree": deleted.retained_worktrees[0]} if deleted.retained_worktrees else {}
        return render_json({"session_name": session.name, "session_id": session.id, "status": "not_existent", **worktree})

    async def send_agent_message(self, arguments: SendMessage, context: CallContext) -> Done:
        service = await self._app.agents()
        session = await service.send(
            arguments.session_name, arguments.message, _read_project(arguments), by=await self._actor(context)
        )
        is_queued = session.queued_messages > 0
        message = "The agent is busy; it gets the message with its next turn." if is_queued else "The agent is at work on it."
        return render_json(started_json(session, f"{message} {POLL}"))

    async def get_agent_session_events(self, arguments: GetEvents, _: CallContext) -> Done:
        service = await self._app.agents()
        session = await service.find(arguments.session_name, _read_project(arguments))
        events = await service.events(session.id, after=arguments.after, limit=arguments.limit)
        questions = await service.questions(session)
        return render_json(events_json(events, arguments.after, more=len(events) == arguments.limit, questions=questions))

    async def answer_agent_question(self, arguments: AnswerQuestion, context: CallContext) -> Done:
        if not arguments.option_id and not arguments.text:
            raise UsageProblem("An answer is missing.", remedy="Pass option_id, or text where the question has no options.")
        service = await self._app.agents()
        session = await service.find(arguments.session_name, _read_project(arguments))
        await service.answer(
            session.id,
            option=arguments.option_id,
            text=arguments.text,
            request=arguments.request_id or None,
            by=await self._actor(context),
            channel="relayed",
            caller=await self._caller(context),
        )
        current = await self._wait_until_noted(service, session)
        return render_json(status_json(current, await service.questions(current), render=context.render))

    async def _wait_until_noted(self, service: AgentService, session: AgentSession) -> AgentSession:
        """Wait until the agent host, which may be another process, has recorded the answer; return the session."""
        records = await self._app.records()
        position = await records.wait(after=-1, timeout=0)
        deadline = now_ms() + ANSWER_NOTED_MS
        while (current := await service.find(session.id)).question == session.question and now_ms() < deadline:
            position = await records.wait(after=position, timeout=(deadline - now_ms()) / 1000)
        return current

    async def run_workflow(self, arguments: RunWorkflow, context: CallContext) -> Done:
        from fidelio.surfaces.mcp.toolsets.orchestrator.workflow_runs import WorkflowRuns, build_plan  # noqa: PLC0415  # brings the conductor and pydantic, 150 ms

        service = await self._app.agents()
        plan = build_plan(arguments, _resolve_project(arguments) or service.project, await self._caller(context))
        if self._workflow_runs is None:
            self._workflow_runs = WorkflowRuns(self._app)
        status = await self._workflow_runs.run(context, plan, anew=arguments.new, seconds=arguments.wait_seconds)
        return render_json({**status, **{key: context.render(status[key]) for key in ("question", "reason") if key in status}})

    async def _caller(self, context: CallContext) -> str | None:
        """Return the session of the calling agent, or None; raise `UsageProblem` for an agent whose session is not known."""
        return await (await self._app.agents()).identify_session(await context.identify())

    async def _actor(self, context: CallContext) -> str:
        caller = await self._caller(context)
        return f"agent:{caller}" if caller else "client"

    async def _reply_to_start(
        self, context: CallContext, service: AgentService, session: AgentSession, how: str, *, in_background: bool
    ) -> Done:
        if in_background:
            message = f"Agent session {session.name} has {how} and {describe_background_run(session)}. {POLL}"
            return render_json(started_json(session, message))
        seconds = self._app.settings.sync_seconds
        session = await self._watch(context, service, session, seconds or None)
        if session.question:
            questions = await service.questions(session)
            how = answer_hint(session.question, questions, render=context.render)
            return render_json(started_json(session, f"Agent session {session.name} asks something; {how}. {POLL}", questions))
        if session.run.is_active:
            how = "is not done and" if session.run.state == "queued" else "is still running and"
            message = f"Agent session {session.name} {how} {describe_background_run(session)}. {POLL}"
            return render_json(started_json(session, message))
        try:
            result = await service.result(session.id)
        except ExecutorFailure as failure:
            return render_failure(context, failure)
        return render_result_part(result)

    async def _watch(
        self, context: CallContext, service: AgentService, session: AgentSession, seconds: float | None
    ) -> AgentSession:
        """Return the session when it has finished, asks something, or `seconds` are over; None waits without limit."""
        await service.wait([session.id], mode="all", seconds=seconds, on_progress=_make_reporter(context))
        return await service.find(session.id)


def _make_reporter(context: CallContext) -> Callable[[tuple[AgentSession, ...]], Awaitable[None]]:
    """Return a callback that reports the agents' activity, because some clients time out after a minute without progress."""
    started_at = now_ms()

    async def report(sessions: tuple[AgentSession, ...]) -> None:
        activities = [
            f"{session.name}: {session.run.last_activity or session.run.state}" for session in sessions if session.run.is_active
        ]
        await context.report((now_ms() - started_at) / 1000, None, "; ".join(activities)[:200])

    return report


def _resolve_project(arguments: Any) -> str | None:
    return resolve_project(arguments.project_dir) if arguments.project_dir else None


def _read_project(arguments: Any) -> str | None:
    return arguments.project_dir or None

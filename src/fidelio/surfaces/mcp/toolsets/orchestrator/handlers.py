"""Handlers of the orchestrator's tools: agent sessions under the names that its clients know.

Everything is decided in `fidelio.orchestrator`; here arguments become calls and sessions become replies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from fidelio.app.application import Application
from fidelio.clock import now_ms
from fidelio.errors import AgentSessionNotFound, BadAgentInput, ExecutorFailure, UsageProblem
from fidelio.ids import is_short_handle, session_of_run
from fidelio.processes.table import AGENT_MARKER, agent_above
from fidelio.surfaces.mcp.endpoint import ServedTools
from fidelio.surfaces.mcp.toolsets.orchestrator.parameters import (
    AnswerQuestion,
    GetEvents,
    GetResult,
    GetStatus,
    InProject,
    ListBlueprints,
    ListSessions,
    OneSession,
    ResumeAgentSession,
    RunWorkflow,
    SendMessage,
    StartAgentSession,
    WaitForSessions,
)
from fidelio.surfaces.mcp.toolsets.orchestrator.replies import (
    as_json,
    blueprints_markdown,
    describe_background_run,
    events_json,
    failure_reply,
    result_part,
    sessions_markdown,
    started_json,
)
from fidelio.surfaces.mcp.toolsets.orchestrator.workflow_runs import WorkflowRuns
from fidelio.surfaces.views import answer_hint, blueprints_json, session_json, sessions_json, status_json
from fidelio.toolkit import CallContext, Done, ToolTable

if TYPE_CHECKING:
    from fidelio.orchestrator.record.model import AgentSession
    from fidelio.orchestrator.service.service import AgentService

INSTRUCTIONS = (
    "Fidelio starts and watches other coding agents. list_agent_blueprints shows what can be started; start_agent_session with "
    "async true returns at once; wait_for_agent_sessions waits; get_agent_session_result gives what the agent has found. "
    "resume_agent_session goes on with a finished one, send_agent_message reaches a busy one."
)
# How long an answer may take to be noted.
NOTED_MS = 2_000
POLL = "Use get_agent_session_status or wait_for_agent_sessions to watch it, and get_agent_session_result for its result."


class AgentToolset:
    """The tools of the orchestrator."""

    def __init__(self, house: Application, *, environ: Mapping[str, str] | None = None) -> None:
        self._house = house
        self._workflow_runs = WorkflowRuns(house)
        # An agent that Fidelio started, and that starts others, carries the name of its run.
        self._above = session_of_run(agent_above() if environ is None else environ.get(AGENT_MARKER, ""))

    def tools(self) -> ServedTools:
        from fidelio.surfaces.mcp.toolsets.orchestrator.declarations import rows  # noqa: PLC0415  # the descriptions are read only when they are listed

        return ServedTools(ToolTable(rows(self)), instructions=INSTRUCTIONS, program=self._house.program, ask=self._house.ask)

    async def list_agent_blueprints(self, arguments: ListBlueprints, _: CallContext) -> Done:
        from fidelio.orchestrator.blueprints.catalogue import list_in_thread  # noqa: PLC0415  # waits for the first call

        listing = await list_in_thread(self._house.blueprints().list, _checked_project(arguments))
        body = blueprints_json(listing, arguments.cursor, arguments.limit)
        return as_json(body) if arguments.response_format == "json" else Done(blueprints_markdown(body), structured=body)

    async def list_agent_sessions(self, arguments: ListSessions, _: CallContext) -> Done:
        service = await self._house.agents()
        project, status = _project(arguments), arguments.state or None
        page = await service.list(project, status=status, cursor=arguments.cursor or None, limit=arguments.limit)
        is_all = not arguments.cursor and page.next is None
        total = len(page.items) if is_all else await service.count(project, status=status)
        body = sessions_json(page.items, page.next, total)
        if arguments.response_format == "json":
            return as_json(body)
        return Done(sessions_markdown(page.items, body), structured=body)

    async def start_agent_session(self, arguments: StartAgentSession, context: CallContext) -> Done:
        from fidelio.orchestrator.record.model import StartAgent  # noqa: PLC0415  # waits for the first call

        service = await self._house.agents()
        wanted = StartAgent(
            name=arguments.session_name,
            prompt=arguments.prompt,
            blueprint=arguments.agent_blueprint_name or arguments.agent_name or None,
            project=_project(arguments),
            model=arguments.model or None,
            parent=self._caller(context),
            callback=arguments.callback,
        )
        try:
            session = await service.start(wanted)
        except BadAgentInput as error:
            return Done(context.render(error), is_error=True, structured={"schema": error.schema})
        return await self._reply_to_start(context, service, session, "started", in_background=arguments.is_async)

    async def resume_agent_session(self, arguments: ResumeAgentSession, context: CallContext) -> Done:
        service = await self._house.agents()
        session = await service.resume(arguments.session_name, arguments.prompt, _project(arguments), by=self._actor(context))
        return await self._reply_to_start(context, service, session, "resumed", in_background=arguments.is_async)

    async def delete_all_agent_sessions(self, arguments: InProject, context: CallContext) -> Done:
        service = await self._house.agents()
        deleted = await service.delete_all(_project(arguments), by=self._actor(context))
        message = "All sessions removed" if deleted else "No sessions to remove"
        kept = (
            (f"These worktrees hold changes and were kept: {', '.join(deleted.retained_worktrees)}",)
            if deleted.retained_worktrees
            else ()
        )
        own = (f"These stay, because this call is part of their work: {', '.join(deleted.skipped)}",) if deleted.skipped else ()
        return Done(message, structured={"message": message, "removed": deleted.count}, remarks=kept + own)

    async def get_agent_session_status(self, arguments: GetStatus, context: CallContext) -> Done:
        service = await self._house.agents()
        try:
            session = await service.find(arguments.session_name, _project(arguments))
            if arguments.wait_seconds and session.run.is_active:
                session = await self._watch(context, service, session, arguments.wait_seconds)
        except AgentSessionNotFound:
            return as_json({"status": "not_existent"})
        return as_json(status_json(session, await service.questions(session), render=context.render))

    async def get_agent_session_result(self, arguments: GetResult, context: CallContext) -> Done:
        service = await self._house.agents()
        try:
            result = await service.result(
                arguments.session_name, _project(arguments), run=str(arguments.run) if arguments.run else None
            )
        except ExecutorFailure as failure:
            return failure_reply(context, failure, arguments.limit)
        return result_part(result, arguments.offset, arguments.limit)

    async def wait_for_agent_sessions(self, arguments: WaitForSessions, context: CallContext) -> Done:
        service = await self._house.agents()
        before = [await service.find(name, _project(arguments)) for name in arguments.session_names]
        named = [one.id for one in before]
        sessions = await service.wait(
            named, mode=arguments.mode, seconds=arguments.timeout_seconds, on_progress=_reporter(context)
        )
        there = {one.id for one in sessions}
        body = {
            "finished": [one.name for one in sessions if not one.run.is_active],
            "running": [one.name for one in sessions if one.run.is_active],
            "deleted": [one.name for one in before if one.id not in there],
            "sessions": [session_json(one, await service.questions(one)) for one in sessions],
        }
        return as_json(body)

    async def stop_agent_session(self, arguments: OneSession, context: CallContext) -> Done:
        service = await self._house.agents()
        session = await service.stop(arguments.session_name, _project(arguments), by=self._actor(context))
        return as_json(status_json(session, render=context.render))

    async def delete_agent_session(self, arguments: OneSession, context: CallContext) -> Done:
        service = await self._house.agents()
        session = await service.find(arguments.session_name, _project(arguments))
        deleted = await service.delete(session.id, by=self._actor(context))
        kept = {"kept_worktree": deleted.retained_worktrees[0]} if deleted.retained_worktrees else {}
        return as_json({"session_name": session.name, "session_id": session.id, "status": "not_existent", **kept})

    async def send_agent_message(self, arguments: SendMessage, context: CallContext) -> Done:
        service = await self._house.agents()
        session = await service.send(arguments.session_name, arguments.message, _project(arguments), by=self._actor(context))
        waits = session.queued_messages > 0
        said = "The agent is busy; it gets the message with its next turn." if waits else "The agent is at work on it."
        return as_json(started_json(session, f"{said} {POLL}"))

    async def get_agent_session_events(self, arguments: GetEvents, _: CallContext) -> Done:
        service = await self._house.agents()
        session = await service.find(arguments.session_name, _project(arguments))
        events = await service.events(session.id, after=arguments.after, limit=arguments.limit)
        questions = await service.questions(session)
        return as_json(events_json(events, arguments.after, more=len(events) == arguments.limit, questions=questions))

    async def answer_agent_question(self, arguments: AnswerQuestion, context: CallContext) -> Done:
        if not arguments.option_id and not arguments.text:
            raise UsageProblem("An answer is missing.", remedy="Pass option_id, or text where the question has no options.")
        service = await self._house.agents()
        session = await service.find(arguments.session_name, _project(arguments))
        await service.answer(
            session.id,
            option=arguments.option_id,
            text=arguments.text,
            request=arguments.request_id or None,
            by=self._actor(context),
            channel="relayed",
            caller=self._caller(context),
        )
        now = await self._wait_until_noted(service, session)
        return as_json(status_json(now, await service.questions(now), render=context.render))

    async def _wait_until_noted(self, service: AgentService, session: AgentSession) -> AgentSession:
        """The session once its agent host, which may be another process, has taken note of the answer."""
        records = await self._house.records()
        position = await records.wait(after=-1, timeout=0)
        deadline = now_ms() + NOTED_MS
        while (now := await service.find(session.id)).question == session.question and now_ms() < deadline:
            position = await records.wait(after=position, timeout=(deadline - now_ms()) / 1000)
        return now

    async def run_workflow(self, arguments: RunWorkflow, context: CallContext) -> Done:
        from fidelio.conductor.plan import WORKER, Plan  # noqa: PLC0415  # waits for the first call

        service = await self._house.agents()
        plan = Plan(
            workflow=arguments.workflow_id,
            project=_checked_project(arguments) or service.project,
            agent=arguments.agent_blueprint_name or WORKER,
            activity_agents=arguments.activity_agents,
            inputs=arguments.inputs,
            caller=self._caller(context),
        )
        standing = await self._workflow_runs.run(context, plan, anew=arguments.new, seconds=arguments.wait_seconds)
        return as_json(
            {**standing, **{key: context.render(standing[key]) for key in ("question", "reason") if key in standing}}
        )

    def _caller(self, context: CallContext) -> str | None:
        """The session of the calling agent. Where this server runs below an agent, that agent is every caller."""
        return self._above or _claimed_session(context.caller)

    def _actor(self, context: CallContext) -> str:
        caller = self._caller(context)
        return f"agent:{caller}" if caller else "client"

    async def _reply_to_start(
        self, context: CallContext, service: AgentService, session: AgentSession, how: str, *, in_background: bool
    ) -> Done:
        if in_background:
            said = f"Agent session {session.name} has {how} and {describe_background_run(session)}. {POLL}"
            return as_json(started_json(session, said))
        seconds = self._house.settings.sync_seconds
        session = await self._watch(context, service, session, seconds or None)
        if session.question:
            said = (
                f"Agent session {session.name} asks something; {answer_hint(session.question, render=context.render)}. {POLL}"
            )
            return as_json(started_json(session, said, await service.questions(session)))
        if session.run.is_active:
            how = "is not done and" if session.run.state == "queued" else "is still running and"
            said = f"Agent session {session.name} {how} {describe_background_run(session)}. {POLL}"
            return as_json(started_json(session, said))
        try:
            result = await service.result(session.id)
        except ExecutorFailure as failure:
            return failure_reply(context, failure)
        return result_part(result)

    async def _watch(
        self, context: CallContext, service: AgentService, session: AgentSession, seconds: float | None
    ) -> AgentSession:
        """The session when it has finished, asks something, or the time is over. None: however long it takes."""
        await service.wait([session.id], mode="all", seconds=seconds, on_progress=_reporter(context))
        return await service.find(session.id)


def _claimed_session(run: str) -> str | None:
    """The session of the run that the client claims, or None; raises `UsageProblem` where the claim is no run id."""
    if not run:
        return None
    session, number = session_of_run(run), run.rpartition(".")[2]
    if not (is_short_handle(session) and number.isascii() and number.isdecimal()):
        raise UsageProblem(
            f"The header Fidelio-Agent names no run of an agent: {run!r:.80}.",
            remedy="Send what FIDELIO_AGENT is in the environment of the agent, or leave the header out.",
        )
    return session


def _reporter(context: CallContext) -> Callable[[tuple[AgentSession, ...]], Awaitable[None]]:
    """Tells the client every few seconds what the agents are doing: some clients give up after a minute of silence."""
    began = now_ms()

    async def report(sessions: tuple[AgentSession, ...]) -> None:
        doing = [f"{one.name}: {one.run.last_activity or one.run.state}" for one in sessions if one.run.is_active]
        await context.report((now_ms() - began) / 1000, None, "; ".join(doing)[:200])

    return report


def _checked_project(arguments: Any) -> str | None:
    from fidelio.orchestrator.runs.context import resolve_project  # noqa: PLC0415  # waits for the first call

    return resolve_project(arguments.project_dir) if arguments.project_dir else None


def _project(arguments: Any) -> str | None:
    return arguments.project_dir or None

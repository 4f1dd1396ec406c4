"""The orchestrator's tools: agent sessions, spoken the way its clients know them.

Everything is decided in `fidelio.orchestrator`; here arguments become calls and sessions become replies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from fidelio.app.application import House
from fidelio.clock import now_ms
from fidelio.errors import AgentSessionNotFound, BadAgentInput, ExecutorFailure, UsageProblem
from fidelio.ids import session_of_run
from fidelio.processes.table import AGENT_MARKER, agent_above
from fidelio.surfaces.mcp import progress
from fidelio.surfaces.mcp.callers import claimed_session
from fidelio.surfaces.mcp.hints import typed_here
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
    asking,
    begun_json,
    blueprints_json,
    blueprints_markdown,
    events_json,
    going_on,
    result_part,
    session_json,
    sessions_json,
    sessions_markdown,
    status_json,
    unsuccessful,
)
from fidelio.surfaces.mcp.toolsets.orchestrator.workflow_runs import Conducting
from fidelio.toolkit.tools import Done, ToolTable

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
    """The tools over one house."""

    def __init__(self, house: House, *, environ: Mapping[str, str] | None = None) -> None:
        self._house = house
        self._conducting = Conducting(house)
        # An agent that Fidelio started, and that starts others, carries the name of its run.
        self._above = session_of_run(agent_above() if environ is None else environ.get(AGENT_MARKER, ""))

    def tools(self) -> ToolTable:
        from fidelio.surfaces.mcp.toolsets.orchestrator.declarations import rows  # noqa: PLC0415  # the descriptions are read only when they are listed

        return ToolTable(rows(self), instructions=INSTRUCTIONS, program=self._house.program)

    async def list_agent_blueprints(self, asked: ListBlueprints) -> Done:
        from fidelio.orchestrator.blueprints.catalogue import list_in_thread  # noqa: PLC0415  # waits for the first call

        listing = await list_in_thread(self._house.blueprints().list, _checked_project(asked))
        body = blueprints_json(listing, asked.cursor, asked.limit)
        return as_json(body) if asked.response_format == "json" else Done(blueprints_markdown(body), structured=body)

    async def list_agent_sessions(self, asked: ListSessions) -> Done:
        service = await self._house.agents()
        project, status = _project(asked), asked.state or None
        page = await service.list(project, status=status, cursor=asked.cursor or None, limit=asked.limit)
        is_all = not asked.cursor and page.next is None
        total = len(page.items) if is_all else await service.count(project, status=status)
        body = sessions_json(page.items, page.next, total)
        if asked.response_format == "json":
            return as_json(body)
        return Done(sessions_markdown(page.items, body), structured=body)

    async def start_agent_session(self, asked: StartAgentSession) -> Done:
        from fidelio.orchestrator.record.model import StartAgent  # noqa: PLC0415  # waits for the first call

        service = await self._house.agents()
        wanted = StartAgent(
            name=asked.session_name,
            prompt=asked.prompt,
            blueprint=asked.agent_blueprint_name or asked.agent_name or None,
            project=_project(asked),
            model=asked.model or None,
            parent=self._caller,
            callback=asked.callback,
        )
        try:
            session = await service.start(wanted)
        except BadAgentInput as error:
            return Done(typed_here(error), is_error=True, structured={"schema": error.schema})
        return await self._begun(service, session, "started", in_background=asked.is_async)

    async def resume_agent_session(self, asked: ResumeAgentSession) -> Done:
        service = await self._house.agents()
        session = await service.resume(asked.session_name, asked.prompt, _project(asked), by=self._actor)
        return await self._begun(service, session, "resumed", in_background=asked.is_async)

    async def delete_all_agent_sessions(self, asked: InProject) -> Done:
        service = await self._house.agents()
        deleted = await service.delete_all(_project(asked), by=self._actor)
        message = "All sessions removed" if deleted else "No sessions to remove"
        kept = (f"These worktrees hold changes and were kept: {', '.join(deleted.kept)}",) if deleted.kept else ()
        own = (f"These stay, because this call is part of their work: {', '.join(deleted.spared)}",) if deleted.spared else ()
        return Done(message, structured={"message": message, "removed": deleted.count}, remarks=kept + own)

    async def get_agent_session_status(self, asked: GetStatus) -> Done:
        service = await self._house.agents()
        try:
            session = await service.find(asked.session_name, _project(asked))
            if asked.wait_seconds and session.run.is_active:
                session = await self._watched(service, session, asked.wait_seconds)
        except AgentSessionNotFound:
            return as_json({"status": "not_existent"})
        return as_json(status_json(session, await service.questions(session)))

    async def get_agent_session_result(self, asked: GetResult) -> Done:
        service = await self._house.agents()
        try:
            result = await service.result(asked.session_name, _project(asked), run=str(asked.run) if asked.run else None)
        except ExecutorFailure as failure:
            return unsuccessful(failure, asked.limit)
        return result_part(result, asked.offset, asked.limit)

    async def wait_for_agent_sessions(self, asked: WaitForSessions) -> Done:
        service = await self._house.agents()
        before = [await service.find(name, _project(asked)) for name in asked.session_names]
        named = [one.id for one in before]
        sessions = await service.wait(named, mode=asked.mode, seconds=asked.timeout_seconds, notice=_reporter())
        there = {one.id for one in sessions}
        body = {
            "finished": [one.name for one in sessions if not one.run.is_active],
            "running": [one.name for one in sessions if one.run.is_active],
            "deleted": [one.name for one in before if one.id not in there],
            "sessions": [session_json(one, await service.questions(one)) for one in sessions],
        }
        return as_json(body)

    async def stop_agent_session(self, asked: OneSession) -> Done:
        service = await self._house.agents()
        session = await service.stop(asked.session_name, _project(asked), by=self._actor)
        return as_json(status_json(session))

    async def delete_agent_session(self, asked: OneSession) -> Done:
        service = await self._house.agents()
        session = await service.find(asked.session_name, _project(asked))
        deleted = await service.delete(session.id, by=self._actor)
        kept = {"kept_worktree": deleted.kept[0]} if deleted.kept else {}
        return as_json({"session_name": session.name, "session_id": session.id, "status": "not_existent", **kept})

    async def send_agent_message(self, asked: SendMessage) -> Done:
        service = await self._house.agents()
        session = await service.send(asked.session_name, asked.message, _project(asked), by=self._actor)
        waits = session.queued_messages > 0
        said = "The agent is busy; it gets the message with its next turn." if waits else "The agent is at work on it."
        return as_json(begun_json(session, f"{said} {POLL}"))

    async def get_agent_session_events(self, asked: GetEvents) -> Done:
        service = await self._house.agents()
        session = await service.find(asked.session_name, _project(asked))
        events = await service.events(session.id, after=asked.after, limit=asked.limit)
        questions = await service.questions(session)
        return as_json(events_json(events, asked.after, more=len(events) == asked.limit, questions=questions))

    async def answer_agent_question(self, asked: AnswerQuestion) -> Done:
        if not asked.option_id and not asked.text:
            raise UsageProblem("An answer is missing.", remedy="Pass option_id, or text where the question has no options.")
        service = await self._house.agents()
        session = await service.find(asked.session_name, _project(asked))
        await service.answer(
            session.id,
            option=asked.option_id,
            text=asked.text,
            request=asked.request_id or None,
            by=self._actor,
            channel="relayed",
            caller=self._caller,
        )
        now = await self._gone_on(service, session)
        return as_json(status_json(now, await service.questions(now)))

    async def _gone_on(self, service: AgentService, session: AgentSession) -> AgentSession:
        """The session once whoever carries it out has taken note of the answer, which may be another process."""
        position = await service.context.ledger.wait(after=-1, timeout=0)
        deadline = now_ms() + NOTED_MS
        while (now := await service.find(session.id)).question == session.question and now_ms() < deadline:
            position = await service.context.ledger.wait(after=position, timeout=(deadline - now_ms()) / 1000)
        return now

    async def run_workflow(self, asked: RunWorkflow) -> Done:
        from fidelio.conductor.plan import WORKER, Plan  # noqa: PLC0415  # waits for the first call

        service = await self._house.agents()
        plan = Plan(
            workflow=asked.workflow_id,
            project=_checked_project(asked) or service.context.project,
            agent=asked.agent_blueprint_name or WORKER,
            activity_agents=asked.activity_agents,
            inputs=asked.inputs,
            caller=self._caller,
        )
        standing = await self._conducting.run(plan, anew=asked.new, seconds=asked.wait_seconds)
        return as_json({**standing, **{key: typed_here(standing[key]) for key in ("question", "reason") if key in standing}})

    @property
    def _caller(self) -> str | None:
        """The session of the agent that calls. One that this server runs below speaks for everybody who calls it."""
        return self._above or claimed_session()

    @property
    def _actor(self) -> str:
        caller = self._caller
        return f"agent:{caller}" if caller else "client"

    async def _begun(self, service: AgentService, session: AgentSession, how: str, *, in_background: bool) -> Done:
        if in_background:
            return as_json(begun_json(session, f"Agent session {session.name} has {how} and {going_on(session)}. {POLL}"))
        seconds = self._house.settings.sync_seconds
        session = await self._watched(service, session, seconds or None)
        if session.question:
            said = f"Agent session {session.name} asks something; {asking(session.question)}. {POLL}"
            return as_json(begun_json(session, said, await service.questions(session)))
        if session.run.is_active:
            how = "is not done and" if session.run.state == "queued" else "is still running and"
            return as_json(begun_json(session, f"Agent session {session.name} {how} {going_on(session)}. {POLL}"))
        try:
            result = await service.result(session.id)
        except ExecutorFailure as failure:
            return unsuccessful(failure)
        return result_part(result)

    async def _watched(self, service: AgentService, session: AgentSession, seconds: float | None) -> AgentSession:
        """The session when it has finished, asks something, or the time is over. None: however long it takes."""
        await service.wait([session.id], mode="all", seconds=seconds, notice=_reporter())
        return await service.find(session.id)


def _reporter() -> Callable[[tuple[AgentSession, ...]], Awaitable[None]]:
    """Tells the client every few seconds what the agents are doing: some clients give up after a minute of silence."""
    began = now_ms()

    async def report(sessions: tuple[AgentSession, ...]) -> None:
        doing = [f"{one.name}: {one.run.last_activity or one.run.state}" for one in sessions if one.run.is_active]
        await progress.report((now_ms() - began) / 1000, None, "; ".join(doing)[:200])

    return report


def _checked_project(asked: Any) -> str | None:
    from fidelio.orchestrator.runs.context import project_path  # noqa: PLC0415  # waits for the first call

    return project_path(asked.project_dir) if asked.project_dir else None


def _project(asked: Any) -> str | None:
    return asked.project_dir or None

"""The service for agent sessions that every surface calls.

It checks, records and reads. It runs no agents: the agent host, in this process or another, does that by following the same
ledger. `name` is the name or the id of a session everywhere; a project is an absolute directory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence

from fidelio.clock import Clock, now_ms
from fidelio.errors import Text, UsageProblem
from fidelio.home import Home
from fidelio.inbox import AnsweredRequest, Inbox
from fidelio.ledger import Ledger
from fidelio.ledger.model import Event, Page, Request, Session
from fidelio.locks import is_hosted
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.executors.contract import Executor
from fidelio.orchestrator.record import errors
from fidelio.orchestrator.record.model import AgentSession, Run, RunResult, StartAgent
from fidelio.orchestrator.record.rules import STATUSES, TRANSITIONS, matches_status, namespace_of
from fidelio.orchestrator.record.unit_of_work import AgentUnitOfWork, decode_session, view_session
from fidelio.orchestrator.runs.admission import OCCUPYING_STATES, explain_waiting
from fidelio.orchestrator.runs.context import (
    BlueprintSource,
    OrchestratorContext,
    apply_overrides,
    require_directory,
    resolve_project,
)
from fidelio.orchestrator.runs.lineage import find_max_depth, is_confirmed, load_ancestry, require_child_allowed
from fidelio.orchestrator.runs.queries import AgentQueries
from fidelio.orchestrator.runs.rights import load_rights
from fidelio.orchestrator.service.delete import DeletionResult, SessionDeleter
from fidelio.orchestrator.service.start import SessionStarter
from fidelio.orchestrator.service.stop import SessionStopper
from fidelio.orchestrator.service.wait import ProgressCallback, RunWaiter, WaitMode
from fidelio.processes.caller import Caller
from fidelio.settings import AgentLimits
from fidelio.toolkit import unknown_agent

DEFAULT_LIMITS = AgentLimits()
# The most reads of a list whose filter matches few sessions; the cursor says where to continue.
_MAX_READS = 100


class AgentService:
    """Starts, resumes, watches, stops and deletes agent sessions."""

    def __init__(
        self,
        ledger: Ledger,
        blueprints: BlueprintSource,
        executors: Mapping[str, Executor],
        *,
        home: Home,
        project: str | None = None,
        limits: AgentLimits = DEFAULT_LIMITS,
        executor: str | None = None,
        clock: Clock = now_ms,
    ) -> None:
        """`project` is the default of calls that name none (by default the working directory), `executor` the default
        executor.
        """
        self.context = OrchestratorContext(
            ledger=ledger,
            unit=AgentUnitOfWork(ledger, clock),
            inbox=Inbox(ledger, clock=clock),
            blueprints=blueprints,
            executors=executors,
            home=home,
            project=resolve_project(project or _working_directory()),
            limits=limits,
            executor=executor,
            clock=clock,
        )
        self.queries = AgentQueries(self.context)
        self._waiter = RunWaiter(self.context)
        self._starter = SessionStarter(self.context, self.queries)
        self._stopper = SessionStopper(self.context, self.queries, self._waiter)
        self._deleter = SessionDeleter(self.context, self.queries, self._stopper)

    async def start(self, request: StartAgent) -> AgentSession:
        """Start a session. When this returns, everything was checked, and the session and its first run are durable."""
        return await self._starter.start(request)

    async def resume(self, name: str, prompt: str, project: str | None = None, *, by: str = "service") -> AgentSession:
        """Start a new run of a finished session; raises `AgentBusy` if a run is active."""
        return await self._starter.resume(await self.queries.find(name, project), prompt, by=by)

    async def send(self, name: str, text: str, project: str | None = None, *, by: str = "service") -> AgentSession:
        """Queue a message for the next run, which begins at once if no run is active."""
        return await self._starter.send(await self.queries.find(name, project), text, by=by)

    async def stop(self, name: str, project: str | None = None, *, by: str = "service") -> AgentSession:
        """End the run of a session and those of the sessions it started. Queued messages stay for the next run."""
        return view_session(await self._stopper.stop(await self.queries.find(name, project), by=by))

    async def request_stop(self, name: str, *, by: str) -> None:
        """Record that a session is to be stopped, without waiting for it."""
        await self._stopper.request(await self.queries.find(name), by=by)

    async def delete(self, name: str, project: str | None = None, *, by: str = "service") -> DeletionResult:
        return await self._deleter.delete(await self.queries.find(name, project), by=by)

    async def delete_sessions(self, sessions: Sequence[Session], *, by: str, reason: str) -> DeletionResult:
        """Delete these sessions, for a person, who says why."""
        return await self._deleter.delete_sessions(sessions, by=by, reason=reason)

    async def delete_all(self, project: str | None = None, *, by: str = "service") -> DeletionResult:
        return await self._deleter.delete_all(project, by=by)

    async def find(self, name: str, project: str | None = None) -> AgentSession:
        return view_session(await self.queries.find(name, project))

    async def list(
        self,
        project: str | None = None,
        *,
        status: str | None = None,
        parent: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[AgentSession]:
        """A page of sessions, newest first. It may be short where few match the filter; `next` says whether there may be
        more.
        """
        if status is not None and status not in STATUSES:
            raise errors.unknown_status(status)
        namespace = None if project is None else namespace_of(resolve_project(project))
        # `running` stands for all active states, so the ledger cannot filter by it, nor by `finished`.
        state = None if status in ("running", "finished") else status
        found: list[AgentSession] = []
        for _ in range(_MAX_READS):
            page = await self.context.ledger.sessions(
                kind="agent", namespace=namespace, parent=parent, status=state, cursor=cursor, limit=limit - len(found)
            )
            views = (view_session(decode_session(session)) for session in page.items if session.has_record)
            found += [view for view in views if matches_status(view.run.state, status)]
            cursor = page.next
            if cursor is None or len(found) >= limit:
                break
        return Page(tuple(found), cursor)

    async def count(self, project: str | None = None, *, status: str | None = None) -> int:
        """The number of sessions that `list` would return over all pages."""
        namespace = None if project is None else namespace_of(resolve_project(project))
        states = [None] if status is None else [state for state in TRANSITIONS if matches_status(state, status)]
        count = self.context.ledger.count_sessions
        return sum([await count(kind="agent", namespace=namespace, status=state) for state in states])

    async def explain_waiting(self, sessions: Sequence[AgentSession]) -> dict[str, Text]:
        """For each session, by its id, that is queued or whose messages wait: why."""
        waiting = [item for item in sessions if item.run.state == "queued" or (item.run.is_active and item.queued_messages)]
        if not waiting:
            return {}
        holders = [
            view_session(decode_session(session))
            for state in OCCUPYING_STATES
            async for session in self.queries.iterate_sessions(status=state)
            if session.has_record
        ]
        hosted = await asyncio.to_thread(is_hosted, self.context.home)
        limits, now = self.context.limits, self.context.clock()
        return {item.id: explain_waiting(item, holders, limits, hosted=hosted, now=now) for item in waiting}

    async def questions(self, session: AgentSession) -> tuple[Request, ...]:
        """The open requests of the session, the oldest first."""
        return () if session.question is None else (await self.context.inbox.list_requests(session=session.id)).items

    async def result(self, name: str, project: str | None = None, run: str | None = None) -> RunResult:
        return await self.queries.result(await self.queries.find(name, project), run)

    async def runs(self, name: str, project: str | None = None) -> tuple[Run, ...]:
        return await self.queries.runs(await self.queries.find(name, project))

    async def events(self, name: str, project: str | None = None, *, after: int = 0, limit: int = 100) -> tuple[Event, ...]:
        return await self.context.ledger.events((await self.queries.find(name, project)).id, after=after, limit=limit)

    async def wait(
        self,
        names: Sequence[str],
        project: str | None = None,
        *,
        mode: WaitMode = "any",
        seconds: float | None,
        on_progress: ProgressCallback | None = None,
    ) -> tuple[AgentSession, ...]:
        """Wait until any (or all) sessions have finished or ask something, or `seconds` have passed; return their state."""
        sessions = [await self.queries.find(name, project) for name in dict.fromkeys(names)]
        if not sessions:
            raise UsageProblem("No session was named to wait for.", remedy="Give at least one name or id.")
        return await self._waiter.wait(sessions, mode=mode, seconds=seconds, on_progress=on_progress)

    async def answer(
        self,
        name: str,
        project: str | None = None,
        *,
        option: str = "",
        text: str = "",
        request: str | None = None,
        by: str,
        channel: str,
        caller: str | None = None,
    ) -> AnsweredRequest:
        """Answer a request of the agent: the named request, or the oldest.

        `caller` is the session of the agent that answers: it may not answer for itself or for its ancestors.
        """
        agent = await self.queries.find(name, project)
        if caller is not None and agent.id in await load_ancestry(self.context, caller):
            raise errors.own_question(view_session(agent))
        question = request or next(iter(agent.record.run.questions), None)
        found = None if question is None else await self.context.ledger.request(question)
        if question is None or found is None or found.session != agent.id:
            raise errors.question_missing(view_session(agent), request)
        if caller is not None:
            (await load_rights(self.context, await self.queries.find(caller))).require_answer(found.kind, option)
        return await self.context.inbox.answer(question, option, text=text, by=by, channel=channel)

    @property
    def project(self) -> str:
        """The project of calls that name none."""
        return self.context.project

    async def check_start(self, blueprint: str, project: str, servers: Mapping[str, McpServer]) -> None:
        """Raise if an agent of this blueprint, with these MCP servers, could not be started in the project."""
        require_directory(project)
        found = await self.context.load_blueprint(blueprint, project)
        added = [name for name in servers if name not in found.mcp_servers]
        await self.context.check_executor(apply_overrides(found, None, servers), added=added)

    async def identify_session(self, caller: Caller) -> str | None:
        """The session of a calling agent, None for a person; raises for an agent whose run is not known or not confirmed."""
        if caller.is_agent and not (caller.session and await is_confirmed(self.context, caller)):
            raise unknown_agent(caller.run)
        return caller.session or None

    async def check_caller(self, session: str) -> None:
        """Raise if the agent of this session may not start others."""
        caller = await self.queries.find(session)
        require_child_allowed(caller, most=find_max_depth(caller, self.context.limits))


def _working_directory() -> str:
    try:
        return os.getcwd()  # noqa: PTH109  # callers need a string
    except OSError as error:
        raise UsageProblem(
            "The working directory does not exist any more.", remedy="Change to a directory that exists, or name the project."
        ) from error

"""Queries about agent sessions, runs and results. They only read the ledger and never wait."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from functools import partial

import msgspec

from fidelio.errors import SessionNotFound
from fidelio.ledger.long_text import load_text
from fidelio.ledger.model import Event, Session
from fidelio.ledger.paging import all_events, all_pages
from fidelio.orchestrator.record import errors
from fidelio.orchestrator.record.model import Run, RunResult
from fidelio.orchestrator.record.record import AGENT_SAID, END_EVENTS, RUN_EVENTS, SESSION_CREATED, AgentRecord, fold
from fidelio.orchestrator.record.rules import is_active, namespace_of
from fidelio.orchestrator.record.unit_of_work import LoadedAgent, decode_session, view_run, view_session
from fidelio.orchestrator.runs.context import OrchestratorContext, resolve_project

_PAGE = 1_000


class AgentQueries(msgspec.Struct, frozen=True):
    """Finds sessions, runs and results."""

    context: OrchestratorContext

    async def find(self, name: str, project: str | None = None) -> LoadedAgent:
        """Find a session by name or id: in the project, else in the default project, else wherever the name is unique."""
        directory = self.context.project if project is None else resolve_project(project)
        namespace, ledger = namespace_of(directory), self.context.ledger
        found = await _find_agent(ledger.session_by_name(name, namespace=namespace)) or await _find_agent(ledger.session(name))
        if project is not None and (found is None or found.namespace != namespace):
            raise errors.session_missing(name, directory)
        return decode_session(found or await self._find_in_any_project(name))

    async def iterate_sessions(self, project: str | None = None, *, status: str | None = None) -> AsyncIterator[Session]:
        """Yield all sessions of a project or of all projects. `status` is a state of the newest run."""
        namespace = None if project is None else namespace_of(resolve_project(project))
        sessions = partial(self.context.ledger.sessions, kind="agent", status=status, namespace=namespace)
        async for session in all_pages(sessions):
            yield session

    async def runs(self, agent: LoadedAgent) -> tuple[Run, ...]:
        """Every run of the session, the oldest first."""
        found: dict[str, Run] = {}
        record = AgentRecord()
        for event in await all_events(self.context.ledger, agent.id, types=(SESSION_CREATED, *RUN_EVENTS)):
            record = fold(record, (event,))
            if record.run.id:
                found[record.run.id] = view_run(record)
        return tuple({**found, agent.record.run.id: view_run(agent.record)}.values())

    async def run(self, agent: LoadedAgent, wanted: str) -> Run:
        """Find a run by its id or its number. The newest run is in the record, and needs no read."""
        newest = view_run(agent.record)
        if wanted in (newest.id, str(newest.number)):
            return newest
        for run in await self.runs(agent):
            if wanted in (run.id, str(run.number)):
                return run
        raise errors.run_missing(view_session(agent), wanted)

    async def result(self, agent: LoadedAgent, run: str | None = None) -> RunResult:
        """The result of a run, by default of the newest; raises if the run is active or did not succeed."""
        session = view_session(agent)
        wanted = session.run if run is None else await self.run(agent, run)
        if is_active(wanted.state):
            raise errors.result_pending(session)
        end = await self._find_end(agent, wanted)
        text = await load_text(self.context.ledger, end.body.get("result")) if end else ""
        if wanted.state != "succeeded":
            raise errors.run_unsuccessful(session, wanted, text or await self._load_partial_text(agent, wanted.id))
        data = await load_text(self.context.ledger, end.body.get("data")) if end else ""
        return RunResult(session=session, run=wanted, text=text, data=msgspec.json.decode(data) if data else None)

    async def children(self, session: str) -> list[LoadedAgent]:
        sessions = partial(self.context.ledger.sessions, kind="agent", parent=session)
        return [decode_session(child) async for child in all_pages(sessions) if child.has_record]

    async def _find_in_any_project(self, name: str) -> Session:
        page = await self.context.ledger.sessions(name=name, limit=_PAGE)
        found = [session for session in page.items if _is_agent_session(session)]
        if not found:
            raise errors.session_missing(name, None)
        if len(found) > 1:
            raise errors.ambiguous_name(name, found)
        return found[0]

    async def _find_end(self, agent: LoadedAgent, run: Run) -> Event | None:
        if run.id == agent.record.run.id:
            found = await self.context.ledger.events(agent.id, after=agent.record.run.result_seq - 1, limit=1)
            return found[0] if found else None
        for event in await all_events(self.context.ledger, agent.id, types=END_EVENTS):
            if event.body.get("run") == run.id:
                return event
        return None

    async def _load_partial_text(self, agent: LoadedAgent, run: str) -> str:
        """The messages of the agent before its run ended without a result."""
        bodies = [event.body for event in await all_events(self.context.ledger, agent.id, types=(AGENT_SAID,))]
        return "\n\n".join([await load_text(self.context.ledger, body["said"]) for body in bodies if body.get("run") == run])


async def _find_agent(loading: Awaitable[Session]) -> Session | None:
    try:
        found = await loading
    except SessionNotFound:
        return None
    return found if _is_agent_session(found) else None


def _is_agent_session(session: Session) -> bool:
    return session.kind == "agent" and session.has_record

"""What can be asked about agent sessions. Reads never wait for anybody and never change anything."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from fidelio.errors import SessionNotFound
from fidelio.ledger.long_text import load_text
from fidelio.ledger.model import Event, Page, Session
from fidelio.ledger.paging import all_events
from fidelio.orchestrator.record import phrases
from fidelio.orchestrator.record.model import AgentSession, Result, Run
from fidelio.orchestrator.record.record import ABOUT_RUNS, CREATED, END_OF, SAID, Record, fold
from fidelio.orchestrator.record.rules import is_active, is_state, is_status, matches, namespace_of
from fidelio.orchestrator.record.unit_of_work import LoadedAgent, load_row, view, view_run
from fidelio.orchestrator.runs.context import OrchestratorContext, project_path

# How often one call looks for more when a filter leaves most of them out; the cursor says where to go on.
_MOST_LOOKS = 100
_PAGE = 1_000
_ENDS = frozenset(END_OF.values())


class Queries(msgspec.Struct, frozen=True):
    """Finds sessions, runs and results."""

    context: OrchestratorContext

    async def find(self, name: str, project: str | None = None) -> LoadedAgent:
        """By name or id: in the project, or without one in the default project and then wherever it is the only one."""
        if project is not None:
            return await self._in_project(name, project_path(project))
        found = await self._named(name, self.context.project) or await self._with_id(name) or await self._anywhere(name)
        return load_row(found)

    async def page(
        self,
        project: str | None = None,
        *,
        status: str | None = None,
        blueprint: str | None = None,
        parent: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[AgentSession]:
        """Newest first. A page may be short where few fit the filter: `next` says whether there may be more."""
        if not is_status(status):
            raise phrases.no_such_status(status)
        namespace = None if project is None else namespace_of(project_path(project))
        filters = {"namespace": namespace, "parent": parent, "status": status if is_state(status) else None}
        found: list[AgentSession] = []
        for _ in range(_MOST_LOOKS):
            page = await self.context.ledger.sessions(kind="agent", **filters, cursor=cursor, limit=limit - len(found))
            views = (view(load_row(session)) for session in page.items if session.has_record)
            found += [one for one in views if matches(one.run.state, status) and blueprint in (None, one.blueprint)]
            cursor = page.next
            if cursor is None or len(found) >= limit:
                break
        return Page(tuple(found), cursor)

    async def every(self, project: str | None = None, *, status: str | None = None) -> AsyncIterator[Session]:
        """All sessions, of one project or of all, page by page. `status` is a state of the newest run."""
        namespace = None if project is None else namespace_of(project_path(project))
        cursor: str | None = None
        while True:
            page = await self.context.ledger.sessions(
                kind="agent", status=status, namespace=namespace, cursor=cursor, limit=_PAGE
            )
            for session in page.items:
                yield session
            if (cursor := page.next) is None:
                return

    async def runs(self, at: LoadedAgent) -> tuple[Run, ...]:
        """Every turn of the session, the oldest first."""
        found: dict[str, Run] = {}
        record = Record()
        for event in await all_events(self.context.ledger, at.id, types=(CREATED, *ABOUT_RUNS)):
            record = fold(record, (event,))
            if record.run.id:
                found[record.run.id] = view_run(record)
        return tuple({**found, at.record.run.id: view_run(at.record)}.values())

    async def run(self, at: LoadedAgent, wanted: str) -> Run:
        """By its id or its number. The newest is nearly always the one that is meant, and costs nothing."""
        newest = view_run(at.record)
        if wanted in (newest.id, str(newest.number)):
            return newest
        for run in await self.runs(at):
            if wanted in (run.id, str(run.number)):
                return run
        raise phrases.no_such_run(view(at), wanted)

    async def result(self, at: LoadedAgent, run: str | None = None) -> Result:
        """What a run left, by default the newest; raises for one that is at work or did not succeed."""
        session = view(at)
        wanted = session.run if run is None else await self.run(at, run)
        if is_active(wanted.state):
            raise phrases.still_running(session)
        end = await self._end(at, wanted)
        text = await load_text(self.context.ledger, end.body.get("result")) if end else ""
        if wanted.state != "succeeded":
            raise phrases.unsuccessful(session, wanted, text or await self._said(at, wanted.id))
        data = await load_text(self.context.ledger, end.body.get("data")) if end else ""
        return Result(session=session, run=wanted, text=text, data=msgspec.json.decode(data) if data else None)

    async def events(self, at: LoadedAgent, *, after: int = 0, limit: int = 100) -> tuple[Event, ...]:
        return await self.context.ledger.events(at.id, after=after, limit=limit)

    async def children(self, session: str) -> list[LoadedAgent]:
        found: list[LoadedAgent] = []
        cursor: str | None = None
        while True:
            page = await self.context.ledger.sessions(kind="agent", parent=session, cursor=cursor, limit=_PAGE)
            found += [load_row(one) for one in page.items if one.has_record]
            if (cursor := page.next) is None:
                return found

    async def _in_project(self, name: str, project: str) -> LoadedAgent:
        found = await self._named(name, project) or await self._with_id(name)
        if found is None or found.namespace != namespace_of(project):
            raise phrases.missing(name, project)
        return load_row(found)

    async def _named(self, name: str, project: str) -> Session | None:
        try:
            found = await self.context.ledger.session_by_name(name, namespace=namespace_of(project))
        except SessionNotFound:
            return None
        return found if _is_ours(found) else None

    async def _with_id(self, name: str) -> Session | None:
        try:
            found = await self.context.ledger.session(name)
        except SessionNotFound:
            return None
        return found if _is_ours(found) else None

    async def _anywhere(self, name: str) -> Session:
        page = await self.context.ledger.sessions(name=name, limit=_PAGE)
        found = [session for session in page.items if _is_ours(session)]
        if not found:
            raise phrases.missing(name, None)
        if len(found) > 1:
            raise phrases.ambiguous(name, found)
        return found[0]

    async def _end(self, at: LoadedAgent, run: Run) -> Event | None:
        if run.id == at.record.run.id:
            found = await self.context.ledger.events(at.id, after=at.record.run.ended - 1, limit=1)
            return found[0] if found else None
        for event in await all_events(self.context.ledger, at.id, types=tuple(_ENDS)):
            if event.body.get("run") == run.id:
                return event
        return None

    async def _said(self, at: LoadedAgent, run: str) -> str:
        """What the agent had said before its run ended without a result."""
        bodies = [event.body for event in await all_events(self.context.ledger, at.id, types=(SAID,))]
        return "\n\n".join([await load_text(self.context.ledger, body["said"]) for body in bodies if body.get("run") == run])


def _is_ours(session: Session) -> bool:
    return session.kind == "agent" and session.has_record

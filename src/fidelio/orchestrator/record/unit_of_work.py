"""Unit of work for agent sessions: the generic loop with the record of an agent, and drafts that become events of an actor."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from fidelio.clock import Clock
from fidelio.errors import Command, Hint, SessionNotFound
from fidelio.ledger import Ledger
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.model import NewEvent, NewJob, NewSession, Session
from fidelio.ledger.unit_of_work import LoadedSession, RecordEvent, SessionDecision, UnitOfWork
from fidelio.orchestrator.record.model import AgentSession, Run
from fidelio.orchestrator.record.record import FOLDED_EVENTS, RUN_QUEUED, AgentRecord, decode_record, fold

RUN_JOB = "agent.run"

LoadedAgent: TypeAlias = LoadedSession[AgentRecord]
# Its events get their actor, and the runs that it queues their jobs, when it is committed.
AgentDecision: TypeAlias = SessionDecision[None]
Decide = Callable[[LoadedAgent], AgentDecision | None]

# Keys of event bodies whose values are ids, states or names, and no text of an agent or a person.
_STRUCTURE = """
run project blueprint blueprint_hash executor model parent worktree branch base path prefix conversation messages resumes fresh
host fence pid started usage spent request by servers most mode allow deny answered_by sandbox
"""


class AgentRecords:
    """Validates, decodes and folds the records of agent sessions for the generic unit of work."""

    structure = frozenset(_STRUCTURE.split())
    folded = FOLDED_EVENTS

    def check(self, session: Session) -> None:
        """Raise unless this is an agent session with a record; a deleted session has none."""
        if session.kind != "agent" or not session.has_record:
            raise SessionNotFound(
                f"Session {session.id} is not an agent session.",
                remedy=Hint("List them with ", Command("agents", "list", tool="list_agent_sessions"), "."),
            )

    def read(self, raw: str) -> AgentRecord:
        return decode_record(raw)

    def fold(self, record: AgentRecord, events: Iterable[RecordEvent]) -> AgentRecord:
        return fold(record, events)

    def seq(self, record: AgentRecord) -> None:  # noqa: ARG002  # events of other packages do not change the record
        return None

    def status(self, record: AgentRecord) -> tuple[str, str]:
        return record.run.state, record.run.reason


_RECORDS = AgentRecords()


class AgentUnitOfWork(msgspec.Struct, frozen=True):
    """Loads and changes agent sessions."""

    ledger: Ledger
    clock: Clock

    @property
    def _work(self) -> UnitOfWork[AgentRecord]:
        return UnitOfWork(self.ledger, self.clock, _RECORDS)

    async def load(self, session: str) -> LoadedAgent:
        """Load a session. Raises `SessionNotFound` also for a deleted session and for a session of another kind."""
        return await self._work.load(session)

    async def reload(self, sessions: Iterable[LoadedAgent]) -> list[LoadedAgent]:
        """Load the sessions again; those that were deleted meanwhile are left out."""
        found = []
        for agent in sessions:
            with suppress(SessionNotFound):
                found.append(await self.load(agent.id))
        return found

    async def create(self, session: str, new_session: NewSession, decision: AgentDecision) -> LoadedAgent:
        complete = _complete(decision, "service", session, new_session.namespace, decision.events[0].body["depth"])
        return await self._work.create(session, AgentRecord(), replace(complete, create=new_session))

    async def update(
        self, agent: LoadedAgent | str, decide: Decide, *, actor: str = "service", work: Assignment | None = None
    ) -> LoadedAgent:
        """Commit the decision. `decide` is called again after a conflict, and None commits nothing.

        `work` is the job that this is part of: nothing is committed once another host has claimed it.
        """

        def decide_for_actor(current: LoadedAgent) -> AgentDecision | None:
            decision, namespace = decide(current), current.session.namespace
            return None if decision is None else _complete(decision, actor, current.id, namespace, current.record.depth)

        return await self._work.update(agent, decide_for_actor, assignment=work)


def _complete(decision: AgentDecision, actor: str, session: str, project: str, depth: int) -> AgentDecision:
    """The decision with events of this actor, and with the job of a run that it queues."""
    events = tuple(replace(event, actor=actor) for event in decision.events)
    queued = (run_job(session, project, depth, event.body["run"]) for event in events if event.type == RUN_QUEUED)
    return replace(decision, events=events, jobs=(*decision.jobs, *queued))


def draft_event(type_: str, body: dict[str, Any], blobs: tuple[str, ...] = ()) -> NewEvent:
    return NewEvent(type=type_, body=body, blobs=blobs)


def run_job(session: str, project: str, depth: int, run: str) -> NewJob:
    """The job that carries out a queued run. `project` and `depth` say which slots it needs.

    All are due at once, whatever the clocks of the machines say: the first queued is the first in the list.
    """
    return NewJob(kind=RUN_JOB, session=session, payload={"run": run, "project": project, "depth": depth}, key=run)


def decode_session(session: Session) -> LoadedAgent:
    """Decode a session of a list, which includes its record."""
    _RECORDS.check(session)
    return LoadedSession(session, decode_record(session.raw))


def view_session(agent: LoadedAgent) -> AgentSession:
    """The public value of a session."""
    record, session = agent.record, agent.session
    return AgentSession(
        id=session.id,
        name=session.name or "",
        project=record.project,
        blueprint=record.blueprint,
        executor=record.executor,
        run=view_run(record),
        parent=session.parent,
        depth=record.depth,
        conversation=record.conversation or None,
        question=record.run.questions[0] if record.run.questions else None,
        queued_messages=len(record.messages),
        worktree=record.worktree or None,
        changes=record.changes,
        created_at=session.created_at,
        updated_at=session.updated_at,
    )


def view_run(record: AgentRecord) -> Run:
    return Run(**{field: getattr(record.run, field) for field in Run.__struct_fields__})

"""The one way the record of an agent session changes.

Read the session, let a rule decide what is to be written, fold it into the record, and commit events, status, record and
whatever goes with them in one transaction. When somebody else wrote first, the rule decides again on what is there now.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from fidelio.clock import Clock
from fidelio.errors import SequenceConflict, SessionNotFound
from fidelio.inbox import RequestChange
from fidelio.ledger import Ledger
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.model import (
    Change,
    NewEvent,
    NewJob,
    NewSession,
    Session,
    Settlement,
)
from fidelio.orchestrator.record.model import AgentSession, Run
from fidelio.orchestrator.record.record import Record, fold, read

# Under contention somebody always wins; this many losses in a row mean that something else is wrong.
ATTEMPTS = 64


class Opened(msgspec.Struct, frozen=True):
    """A session as it was read or written last."""

    session: Session
    record: Record

    @property
    def id(self) -> str:
        return self.session.id


class Draft(msgspec.Struct, frozen=True):
    """An event that is decided on. `blobs` are the digests its body refers to."""

    type: str
    body: dict[str, Any]
    blobs: tuple[str, ...] = ()


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be written in one transaction. `beside` are changes of other sessions."""

    drafts: tuple[Draft, ...]
    requests: tuple[RequestChange, ...] = ()
    blobs: tuple[bytes, ...] = ()
    jobs: tuple[NewJob, ...] = ()
    settle: Settlement | None = None
    beside: tuple[Change, ...] = ()


Decide = Callable[[Opened], Decision | None]


class _Fact(msgspec.Struct, frozen=True):
    seq: int
    type: str
    time: int
    body: dict[str, Any]


class Desk(msgspec.Struct, frozen=True):
    """Reads and writes agent sessions."""

    ledger: Ledger
    clock: Clock

    async def open(self, session: str) -> Opened:
        """Raises `SessionNotFound` also for one that was deleted, or is not an agent's."""
        return opened(await self.ledger.session(session))

    async def create(self, session: str, birth: NewSession, decision: Decision) -> Opened:
        change = self.change(session, 0, Record(), decision, actor="service")
        (done, *_) = await self.ledger.commit(msgspec.structs.replace(change, create=birth), *decision.beside)
        return opened(done.session)

    async def write(
        self, at: Opened | str, decide: Decide, *, actor: str = "service", work: Assignment | None = None
    ) -> Opened:
        """Makes what `decide` wants durable. It is asked again when the session has moved on; None writes nothing.

        `work` is the job this belongs to: nothing is written once somebody else has taken it over.
        """
        now = await self.open(at) if isinstance(at, str) else at
        for _ in range(ATTEMPTS):
            decision = decide(now)
            if decision is None:
                return now
            change = self.change(now.id, now.session.last_seq, now.record, decision, actor=actor)
            try:
                done = await self._commit(change, decision, work)
            except SequenceConflict:
                now = await self.open(now.id)
                continue
            return done
        raise SequenceConflict(now.id, now.session.last_seq, now.session.last_seq + 1)

    async def _commit(self, change: Change, decision: Decision, work: Assignment | None) -> Opened:
        if work is None:
            (done, *_) = await self.ledger.commit(change, *decision.beside)
        else:
            (done, *_) = await work.commit(change, *decision.beside, settle=decision.settle)
        return opened(done.session)

    def change(self, session: str, seq: int, record: Record, decision: Decision, *, actor: str) -> Change:
        moment = self.clock()
        facts = [_Fact(seq + number, draft.type, moment, draft.body) for number, draft in enumerate(decision.drafts, 1)]
        after = fold(record, facts)
        return Change(
            session=session,
            expect=seq,
            events=tuple(
                NewEvent(type=draft.type, body=draft.body, actor=actor, blobs=draft.blobs) for draft in decision.drafts
            ),
            time=moment,
            status=after.run.state,
            reason=after.run.reason,
            record=after,
            requests=decision.requests,
            blobs=decision.blobs,
            jobs=decision.jobs,
        )


def opened(session: Session) -> Opened:
    if session.kind != "agent" or not session.has_record:
        raise SessionNotFound(f"Session {session.id} is no agent session.", remedy="List them with `list_agent_sessions`.")
    return Opened(session, read(session.raw))


def view(at: Opened) -> AgentSession:
    """A session as callers see it."""
    record, session = at.record, at.session
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


def view_run(record: Record) -> Run:
    run = record.run
    return Run(
        id=run.id,
        number=run.number,
        state=run.state,
        reason=run.reason,
        detail=run.detail,
        blueprint_hash=run.blueprint_hash,
        usage=run.usage,
        tool_calls=run.tool_calls,
        last_activity=run.last_activity,
        queued_at=run.queued_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
    )

"""Unit of work for a session: load it, decide, commit, and retry on conflict.

All kinds of sessions are changed in this way. A decision is a function of the loaded session. It is committed in a single
transaction, which fails if the session has changed since it was loaded. So a decision may be made repeatedly and must have no
side effects. The record of a kind of session, and how events change it, is defined by a `RecordType` of the package that owns
the kind.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from fidelio.clock import Clock
from fidelio.errors import FidelioError, LedgerBusy, SequenceConflict
from fidelio.ledger.contract import Ledger
from fidelio.ledger.encoding import INITIAL_STATUS
from fidelio.ledger.model import (
    NO_RECORD,
    Change,
    CloseRequest,
    Event,
    NewEvent,
    NewJob,
    NewSession,
    OpenRequest,
    PutDocument,
    Session,
    SessionKind,
    Settlement,
)
from fidelio.ledger.paging import event_pages
from fidelio.ledger.redaction import EventView, view_events

if TYPE_CHECKING:
    from fidelio.ledger.jobs import Assignment

R = TypeVar("R", bound=msgspec.Struct)
T = TypeVar("T")
C = TypeVar("C")
D = TypeVar("D")
L = TypeVar("L")
# Of several concurrent commits one always succeeds. From this number of conflicts on, a retry waits for a random and growing
# time; after `MAX_ATTEMPTS`, a second or two, the call fails.
MAX_ATTEMPTS = 64
BACKOFF_FROM = 4
# A refusal changes nothing but the record of calls, so after this many conflicts it is appended without the folded record.
REFUSAL_ATTEMPTS = 4


class RecordEvent(Protocol):
    """The fields of an event, committed or not, that the fold of a record reads."""

    @property
    def seq(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def time(self) -> int: ...
    @property
    def body(self) -> dict[str, Any]: ...


class RecordType(Protocol[R]):
    """The record of a kind of session. Pure functions: no clock, no I/O.

    `structure` are the keys of event bodies whose values are no text of an agent or a person: ids, states, names of the
    definition. A redaction keeps them, so that the session stays where it is. `folded` are the types of the events that `fold`
    reads: of the others a redaction keeps nothing.
    """

    @property
    def structure(self) -> frozenset[str]: ...
    @property
    def folded(self) -> Collection[str]: ...

    def check(self, session: Session) -> None:
        """Raise `SessionNotFound` for a session that was deleted or is of another kind."""

    def read(self, raw: str) -> R:
        """Decode a stored record."""
        ...

    def fold(self, record: R, events: Iterable[RecordEvent]) -> R:
        """Fold events into the record."""
        ...

    def seq(self, record: R) -> int | None:
        """The sequence number of the last folded event; None for records that only a unit of work changes."""

    def status(self, record: R) -> tuple[str, str | None]:
        """The status and reason of the session."""
        ...


class LoadedSession(msgspec.Struct, Generic[R], frozen=True):
    """A session with its record, as loaded or as committed."""

    session: Session
    record: R

    @property
    def id(self) -> str:
        return self.session.id


class CommittedSession(LoadedSession[R], Generic[R], frozen=True):
    """A session after a commit, and the committed events."""

    events: tuple[Event, ...]


class LinkedChange(msgspec.Struct, Generic[R], frozen=True):
    """A change of another session of the kind in the same transaction; `create` if it starts that session."""

    session: str
    events: tuple[NewEvent, ...]
    before: R
    create: NewSession | None = None
    requests: tuple[OpenRequest | CloseRequest, ...] = ()
    blobs: tuple[bytes, ...] = ()
    documents: tuple[PutDocument, ...] = ()
    jobs: tuple[NewJob, ...] = ()


class SessionDecision(msgspec.Struct, Generic[T], frozen=True):
    """The changes to commit, and the result for the caller. `settle` ends the job that the commit is part of."""

    result: T
    events: tuple[NewEvent, ...] = ()
    requests: tuple[OpenRequest | CloseRequest, ...] = ()
    blobs: tuple[bytes, ...] = ()
    documents: tuple[PutDocument, ...] = ()
    jobs: tuple[NewJob, ...] = ()
    create: NewSession | None = None
    linked: tuple[LinkedChange[Any] | Change, ...] = ()
    settle: Settlement | None = None


class UnitOfWork(msgspec.Struct, Generic[R], frozen=True):
    """Loads and changes the sessions of a kind."""

    ledger: Ledger
    clock: Clock
    records: RecordType[R]

    async def load(self, session: str) -> LoadedSession[R]:
        """Load a session and its current record."""
        found = await self.ledger.session(session)
        return LoadedSession(found, await self.load_record(found))

    async def load_record(self, session: Session) -> R:
        """Load the stored record and fold in the events that were appended since, such as an answer of a person."""
        self.records.check(session)
        record = self.records.read(session.raw)
        seq = self.records.seq(record)
        if seq is None or seq == session.last_seq:
            return record
        # All pages: with only the first, the record would stay behind, and every commit would fail with a conflict.
        async for page in event_pages(self.ledger, session.id, after=seq):
            record = self.records.fold(record, view_events(page, {}))
        return record

    async def create(self, session: str, record: R, decision: SessionDecision[Any]) -> CommittedSession[R]:
        """Create a session with `decision.create`. `record` is the record of a session without events."""
        assert decision.create is not None
        return await self.commit(LoadedSession(blank_session(session, decision.create.kind), record), decision)

    async def update(
        self,
        at: str | LoadedSession[R],
        decide: Callable[[LoadedSession[R]], SessionDecision[Any] | None],
        *,
        assignment: Assignment | None = None,
    ) -> LoadedSession[R]:
        """Commit the result of `decide`, which is called again after a conflict; None commits nothing.

        `assignment` is the job that the commit is part of: the commit fails if another process has claimed the job.
        """
        initial = None if isinstance(at, str) else at
        session = at if isinstance(at, str) else at.id

        async def load() -> LoadedSession[R]:
            nonlocal initial
            first, initial = initial, None
            return first if first is not None else await self.load(session)

        async def decide_async(loaded: LoadedSession[R]) -> SessionDecision[Any] | None:
            return decide(loaded)

        async def commit(loaded: LoadedSession[R], decision: SessionDecision[Any] | None) -> LoadedSession[R]:
            return loaded if decision is None else await self.commit(loaded, decision, assignment=assignment)

        return await self.run(load, decide_async, commit)

    async def run(
        self,
        load: Callable[[], Awaitable[L]],
        decide: Callable[[L], Awaitable[D]],
        commit: Callable[[L, D], Awaitable[C]],
        *,
        cached: L | None = None,
        refuse: Callable[[L, FidelioError], Awaitable[None]] | None = None,
    ) -> C:
        """Run the loop of a unit of work; `refuse` is called with an error before it is raised, to record it.

        The first attempt uses `cached` if it is passed. That is safe: a commit fails unless the session still has the same last
        event, and after an error the decision is made again on the loaded session.
        """
        for conflicts in range(MAX_ATTEMPTS):
            await _back_off(conflicts)
            first, cached = cached, None
            loaded = first if first is not None else await load()
            try:
                return await commit(loaded, await decide(loaded))
            except SequenceConflict:
                continue
            except FidelioError as error:
                if first is not None:
                    continue
                if refuse is not None:
                    await refuse(loaded, error)
                raise
        raise LedgerBusy(
            "The session was changed by other calls during every attempt of this call.",
            remedy="Nothing was changed. Call again.",
        )

    async def commit(
        self, at: LoadedSession[R], decision: SessionDecision[Any], *, assignment: Assignment | None = None
    ) -> CommittedSession[R]:
        """Commit a decision with its linked changes; raise `SequenceConflict` if a session has changed."""
        now = self.clock()
        seq = self.records.seq(at.record)
        expect = at.session.last_seq if seq is None else seq
        change, after = self._build_change(at.session.id, at.record, expect, decision, now, decision.jobs)
        linked = (self._build_linked(other, now) if isinstance(other, LinkedChange) else other for other in decision.linked)
        if assignment is None:
            done, *_ = await self.ledger.commit(change, *linked)
        else:
            done, *_ = await assignment.commit(change, *linked, settle=decision.settle)
        return CommittedSession(done.session, after, done.events)

    async def record_refusal(self, at: LoadedSession[R], *events: NewEvent) -> None:
        """Record the events of a refused call, also when there are concurrent commits.

        It is committed with the folded record. If refusals were only appended, every call would have to read all refusals
        since the last successful call again.
        """
        for _ in range(REFUSAL_ATTEMPTS):
            try:
                await self.commit(at, SessionDecision(None, events=events))
            except SequenceConflict:
                at = await self.load(at.session.id)
            else:
                return
        await self.ledger.append(at.session.id, *events)

    def _build_linked(self, linked: LinkedChange[R], now: int) -> Change:
        seq = self.records.seq(linked.before)
        # Without a sequence number an existing session would be changed unconditionally, whatever was committed meanwhile.
        assert seq is not None or linked.create is not None, "a record without seq can be linked only where it is created"
        return self._build_change(linked.session, linked.before, seq or 0, linked, now, linked.jobs)[0]

    def _build_change(
        self,
        session: str,
        before: R,
        expect: int,
        source: SessionDecision[Any] | LinkedChange[R],
        now: int,
        jobs: tuple[NewJob, ...] = (),
    ) -> tuple[Change, R]:
        """Build the change of a session, and its record after it."""
        after = self._fold_new(before, expect, source.events, now)
        status, reason = self.records.status(after)
        change = Change(
            session=session,
            expect=expect,
            create=source.create,
            events=source.events,
            time=now,
            status=status,
            reason=reason,
            record=after,
            requests=source.requests,
            blobs=source.blobs,
            documents=source.documents,
            jobs=jobs,
        )
        return change, after

    def _fold_new(self, record: R, seq: int, events: Iterable[NewEvent], now: int) -> R:
        """Fold events into the record before they are committed."""
        pending = [EventView(number, event.type, now, dict(event.body)) for number, event in enumerate(events, seq + 1)]
        return self.records.fold(record, pending)


def blank_session(session: str, kind: SessionKind) -> Session:
    """The row of a session without committed events."""
    return Session(session, kind, "", None, None, INITIAL_STATUS, "", NO_RECORD, 0, b"", 0, 0)


async def _back_off(conflicts: int) -> None:
    """Wait before the next attempt, after this number of conflicts."""
    if conflicts >= BACKOFF_FROM:
        await asyncio.sleep(random.uniform(0, conflicts / 1000))  # noqa: S311  # fairness, not secrecy

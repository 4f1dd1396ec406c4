"""Unit of work for one session: load it, decide, commit, and decide again when somebody else has committed first.

Every kind of session changes in this way. A decision is a function of the session as it was loaded; what it decides is
committed in one transaction, on the condition that the session still is as it was loaded. So a decision may be made again and
must have no effect of its own. What is particular to a kind of session, its record and how events change it, is a
`RecordType` of the package that owns the kind.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
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
    Session,
    SessionKind,
    Settlement,
)
from fidelio.ledger.paging import event_pages

if TYPE_CHECKING:
    from fidelio.ledger.jobs import Assignment

R = TypeVar("R", bound=msgspec.Struct)
T = TypeVar("T")
C = TypeVar("C")
D = TypeVar("D")
L = TypeVar("L")
# Of those who write at once somebody always wins. Who loses again and again waits for a moment, a longer one each time, and
# gives up when that has gone on for a second or two.
MAX_ATTEMPTS = 64
BACKOFF_FROM = 4
# A refusal changes nothing but the record of calls, so after this many conflicts it is appended without the folded record.
REFUSAL_ATTEMPTS = 4


class RecordEvent(Protocol):
    """What the fold of a record reads of an event, committed or not."""

    @property
    def seq(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def time(self) -> int: ...
    @property
    def body(self) -> dict[str, Any]: ...


class RecordType(Protocol[R]):
    """How one kind of session keeps its record. Pure functions: no clock, nothing read or written."""

    def check(self, session: Session) -> None:
        """Raise `SessionNotFound` for a session that was deleted or is of another kind."""

    def read(self, raw: str) -> R:
        """Decode a record as the ledger keeps it."""
        ...

    def fold(self, record: R, events: Iterable[RecordEvent]) -> R:
        """The record after these events."""
        ...

    def seq(self, record: R) -> int | None:
        """The last event that the record includes; None for records that nothing changes but a unit of work."""

    def status(self, record: R) -> tuple[str, str | None]:
        """Status and reason of the session."""
        ...


class LoadedSession(msgspec.Struct, Generic[R], frozen=True):
    """A session with its record, as it was loaded or committed last."""

    session: Session
    record: R

    @property
    def id(self) -> str:
        return self.session.id


class CommittedSession(LoadedSession[R], Generic[R], frozen=True):
    """A session after a commit, and the events of it."""

    events: tuple[Event, ...]


class LinkedChange(msgspec.Struct, Generic[R], frozen=True):
    """What the same transaction changes in another session of the kind; `create` where that session begins with it."""

    session: str
    events: tuple[NewEvent, ...]
    before: R
    create: NewSession | None = None
    requests: tuple[OpenRequest | CloseRequest, ...] = ()
    blobs: tuple[bytes, ...] = ()


class Decision(msgspec.Struct, Generic[T], frozen=True):
    """What is to be committed, and the result for the caller. `settle` ends the job that the commit is part of."""

    result: T
    events: tuple[NewEvent, ...] = ()
    requests: tuple[OpenRequest | CloseRequest, ...] = ()
    blobs: tuple[bytes, ...] = ()
    jobs: tuple[NewJob, ...] = ()
    create: NewSession | None = None
    linked: tuple[LinkedChange[Any] | Change, ...] = ()
    settle: Settlement | None = None


class UnitOfWork(msgspec.Struct, Generic[R], frozen=True):
    """Loads and changes the sessions of one kind."""

    ledger: Ledger
    clock: Clock
    records: RecordType[R]

    async def load(self, session: str) -> LoadedSession[R]:
        found = await self.ledger.session(session)
        return LoadedSession(found, await self.load_record(found))

    async def load_record(self, session: Session) -> R:
        """The stored record, with the events that others have appended since folded in, such as an answer of a person."""
        self.records.check(session)
        record = self.records.read(session.raw)
        seq = self.records.seq(record)
        if seq is None or seq == session.last_seq:
            return record
        # A record that ends at the first page is behind for good: each commit would expect a sequence number of the past.
        async for page in event_pages(self.ledger, session.id, after=seq):
            record = self.records.fold(record, page)
        return record

    async def create(self, session: str, record: R, decision: Decision[Any]) -> CommittedSession[R]:
        """Begin a session with `decision.create`. `record` is that of a session without events."""
        assert decision.create is not None
        return await self.commit(LoadedSession(blank_session(session, decision.create.kind), record), decision)

    async def update(
        self,
        at: str | LoadedSession[R],
        decide: Callable[[LoadedSession[R]], Decision[Any] | None],
        *,
        assignment: Assignment | None = None,
    ) -> LoadedSession[R]:
        """Commit what `decide` wants; it is asked again when the session has moved on, and None commits nothing.

        `assignment` is the job that this is part of: nothing is committed once somebody else has claimed it.
        """
        given = None if isinstance(at, str) else at
        session = at if isinstance(at, str) else at.id

        async def load() -> LoadedSession[R]:
            nonlocal given
            first, given = given, None
            return first if first is not None else await self.load(session)

        async def decided(loaded: LoadedSession[R]) -> Decision[Any] | None:
            return decide(loaded)

        async def commit(loaded: LoadedSession[R], decision: Decision[Any] | None) -> LoadedSession[R]:
            return loaded if decision is None else await self.commit(loaded, decision, assignment=assignment)

        return await self.run(load, decided, commit)

    async def run(
        self,
        load: Callable[[], Awaitable[L]],
        decide: Callable[[L], Awaitable[D]],
        commit: Callable[[L, D], Awaitable[C]],
        *,
        cached: L | None = None,
        refuse: Callable[[L, FidelioError], Awaitable[None]] | None = None,
    ) -> C:
        """The loop of every unit of work; `refuse` is told of an error before it is raised, to record it.

        The first attempt is made on `cached` where it is given. That is safe because nothing is committed unless the session
        still is at that place, and because an error that was decided on it is decided again on what is loaded.
        """
        for losses in range(MAX_ATTEMPTS):
            await _back_off(losses)
            guess, cached = cached, None
            loaded = guess if guess is not None else await load()
            try:
                return await commit(loaded, await decide(loaded))
            except SequenceConflict:
                continue
            except FidelioError as error:
                if guess is not None:
                    continue
                if refuse is not None:
                    await refuse(loaded, error)
                raise
        raise LedgerBusy(
            "Too many others are at work on this session.", remedy="Nothing was changed by this call: make it again."
        )

    async def commit(
        self, at: LoadedSession[R], decision: Decision[Any], *, assignment: Assignment | None = None
    ) -> CommittedSession[R]:
        """Commit a decision once, with its linked changes; raises `SequenceConflict` when a session has moved on."""
        now = self.clock()
        seq = self.records.seq(at.record)
        expect = at.session.last_seq if seq is None else seq
        after = self._after(at.record, expect, decision.events, now)
        status, reason = self.records.status(after)
        change = Change(
            session=at.session.id,
            expect=expect,
            create=decision.create,
            events=decision.events,
            time=now,
            status=status,
            reason=reason,
            record=after,
            requests=decision.requests,
            blobs=decision.blobs,
            jobs=decision.jobs,
        )
        linked = (self._linked(other, now) if isinstance(other, LinkedChange) else other for other in decision.linked)
        if assignment is None:
            done, *_ = await self.ledger.commit(change, *linked)
        else:
            done, *_ = await assignment.commit(change, *linked, settle=decision.settle)
        return CommittedSession(done.session, after, done.events)

    async def record_refusal(self, at: LoadedSession[R], event: NewEvent) -> None:
        """Record the event of a refused call, whoever else writes at the same time.

        It is committed with the folded record. If refusals were only appended, every call would have to read again all of them
        since the last call that was not refused.
        """
        for _ in range(REFUSAL_ATTEMPTS):
            try:
                await self.commit(at, Decision(None, events=(event,)))
            except SequenceConflict:
                at = await self.load(at.session.id)
            else:
                return
        await self.ledger.append(at.session.id, event)

    def _linked(self, linked: LinkedChange[R], now: int) -> Change:
        seq = self.records.seq(linked.before)
        after = self._after(linked.before, seq or 0, linked.events, now)
        status, reason = self.records.status(after)
        return Change(
            session=linked.session,
            expect=seq,
            create=linked.create,
            events=linked.events,
            time=now,
            status=status,
            reason=reason,
            record=after,
            requests=linked.requests,
            blobs=linked.blobs,
        )

    def _after(self, record: R, seq: int, events: Iterable[NewEvent], now: int) -> R:
        """The record as it will be once these events are committed."""
        coming = [_ComingEvent(number, event.type, now, dict(event.body)) for number, event in enumerate(events, seq + 1)]
        return self.records.fold(record, coming)


class _ComingEvent(msgspec.Struct, frozen=True):
    """An event as it will be once it is committed."""

    seq: int
    type: str
    time: int
    body: dict[str, Any]


def blank_session(session: str, kind: SessionKind) -> Session:
    """The row of a session that nothing has been committed of yet."""
    return Session(session, kind, "", None, None, INITIAL_STATUS, "", NO_RECORD, 0, b"", 0, 0)


async def _back_off(losses: int) -> None:
    """Wait before a decision is made again, because somebody else was first that many times."""
    if losses >= BACKOFF_FROM:
        await asyncio.sleep(random.uniform(0, losses / 1000))  # noqa: S311  # fairness, not secrecy

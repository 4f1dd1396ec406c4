"""`SqliteLedger`: the ledger contract over the writer thread and the pool of reading connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import apsw

from fidelio.clock import Clock
from fidelio.errors import LedgerDamaged
from fidelio.errors.ledger import RESTORE
from fidelio.ledger.contract import Ledger
from fidelio.ledger.encoding import build_deletions, encode_change
from fidelio.ledger.model import Change, CommitResult, Event, Hit, Lease, Query, RankedHit, RankQuery, Settlement
from fidelio.ledger.redaction import Redaction, redact_events
from fidelio.ledger.sqlite import erasure, jobs, reads, requests, search
from fidelio.ledger.sqlite import search_index as index
from fidelio.ledger.sqlite.apply import apply
from fidelio.ledger.sqlite.connection import ConnectionOptions, is_pending, note_pending
from fidelio.ledger.sqlite.documents import list_documents, list_versions, list_versions_of, read_blob, read_document
from fidelio.ledger.sqlite.group_commit import Transaction
from fidelio.ledger.sqlite.jobs import list_jobs, next_due
from fidelio.ledger.sqlite.notifications import Listener
from fidelio.ledger.sqlite.reads import ReadPool
from fidelio.ledger.sqlite.requests import count_requests, list_requests, read_request
from fidelio.ledger.sqlite.schema import read_newest_position
from fidelio.ledger.sqlite.writer import Writer

P = ParamSpec("P")
T = TypeVar("T")

FOLLOW_PAGE = 256


def _reading(
    read: Callable[Concatenate[apsw.Connection, P], T],
) -> Callable[Concatenate[SqliteLedger, P], Coroutine[Any, Any, T]]:
    """Make a method of a function that reads from a connection."""

    async def method(self: SqliteLedger, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._read(lambda connection: read(connection, *args, **kwargs))

    return method


class SqliteLedger(Ledger):
    """Ledger in a SQLite file, created by `open_sqlite`. `Ledger` documents the methods."""

    def __init__(self, options: ConnectionOptions, writer: Writer, clock: Clock) -> None:
        self._options = options
        self._writer = writer
        self._read_pool = ReadPool(options)
        self._statistics = search.IndexStatistics()
        self._clock = clock

    # Writing

    async def commit(self, *changes: Change) -> tuple[CommitResult, ...]:
        now = self._clock()
        encoded = [encode_change(change, now=now) for change in changes]
        changed_sessions = tuple([change.session for change in changes if change.events])
        return await self._writer.execute(
            lambda transaction: tuple([apply(transaction, each) for each in encoded]),
            changed_sessions,
            is_brief=all(each.is_small for each in encoded),
        )

    async def redact(self, session: str, seqs: Sequence[int], *, actor: str, reason: str) -> CommitResult:
        return await redact_events(self, self._carry_out, session, seqs, actor=actor, reason=reason)

    async def _carry_out(self, redaction: Redaction) -> CommitResult:
        encoded = encode_change(redaction.change, now=self._clock())
        session = redaction.change.session

        def work(transaction: Transaction) -> CommitResult:
            result = apply(transaction, encoded)
            erasure.erase_events(transaction.connection, session, redaction.seqs, redaction.remaining)
            note_pending(transaction.connection)
            requests.rewrite(transaction.connection, redaction.requests)
            return result

        return await self._writer.execute(work, (session,), erases=True)

    async def erase(self, sessions: Sequence[str], *, actor: str, reason: str, expect: Mapping[str, int] | None = None) -> None:
        now = self._clock()
        for batch in build_deletions(sessions, actor=actor, reason=reason, expect=expect):
            encoded = [encode_change(change, now=now) for change in batch]
            await self._writer.execute(
                partial(erasure.erase_sessions, last_changes=encoded, actor=actor, now=now),
                tuple([change.session for change in batch]),
                erases=True,
            )

    erasure_pending = _reading(is_pending)

    # Reading

    session = _reading(reads.read_session)
    session_by_name = _reading(reads.read_session_by_name)
    sessions = _reading(reads.list_sessions)
    all_sessions = _reading(reads.list_all_sessions)
    sessions_by_id = _reading(reads.list_sessions_by_id)
    sessions_by_name = _reading(reads.list_sessions_by_name)
    heads = _reading(reads.list_heads)
    stray_sessions = _reading(reads.list_stray_sessions)
    is_listed = _reading(reads.is_listed)
    count_sessions = _reading(reads.count_sessions)
    events = _reading(reads.list_events)
    events_naming = _reading(reads.list_events_naming)
    request = _reading(read_request)
    requests = _reading(list_requests)
    count_requests = _reading(count_requests)
    document = _reading(read_document)
    documents = _reading(list_documents)
    versions = _reading(list_versions)
    versions_of = _reading(list_versions_of)
    blob = _reading(read_blob)
    next_due = _reading(next_due)
    jobs = _reading(list_jobs)

    async def follow(self, session: str | None = None, *, after: int = 0, types: Sequence[str] = ()) -> AsyncIterator[Event]:
        while True:
            with Listener(self._writer.notifier, session) as listener:
                events = await self.events(session, after=after, types=types, limit=FOLLOW_PAGE)
                if not events:
                    await listener.notification.wait()
            for event in events:
                yield event
                after = event.position if session is None else event.seq

    async def wait(self, *, after: int, timeout: float) -> int:
        newest = after
        try:
            async with asyncio.timeout(timeout):
                while True:
                    with Listener(self._writer.notifier, None) as listener:
                        newest = self._read(read_newest_position)
                        if newest > after:
                            return newest
                        await listener.notification.wait()
        except TimeoutError:
            return newest

    async def search(self, query: Query) -> tuple[Hit, ...]:
        return await self._search(lambda connection: search.search(connection, query))

    async def rank(self, query: RankQuery) -> tuple[RankedHit, ...]:
        if query.is_quick:
            # Another thread would cost a tenth of it.
            return self._read(lambda connection: search.rank(connection, query, self._statistics))
        return await self._search(lambda connection: search.rank(connection, query, self._statistics))

    async def _search(self, find: Callable[[apsw.Connection], T]) -> T:
        hits, is_stale = await asyncio.to_thread(self._read, lambda connection: (find(connection), index.is_behind(connection)))
        if is_stale:
            # The process that wrote the events may have ended before it indexed them.
            self._writer.schedule_indexing()
        return hits

    async def update_index(self) -> int:
        while not self._options.read_only and await self._writer.execute(
            lambda transaction: index.index_step(transaction.connection, index.STEP_SIZE)
        ):
            pass
        return self._read(lambda connection: index.read_progress(connection, "event"))

    # Jobs

    async def claim(self, owner: str, kinds: Sequence[str], *, lease_ms: int, session: str | None = None) -> Lease | None:
        now = self._clock()
        due = await self.next_due(kinds)
        if due is None or due > now:
            return None
        return await self._writer.execute(
            lambda transaction: jobs.claim(
                transaction.connection, owner, kinds, session=session, now=now, expires=now + lease_ms
            ),
            is_brief=True,
        )

    async def heartbeat(self, lease: Lease, *, lease_ms: int) -> Lease:
        expires = self._clock() + lease_ms
        return await self._writer.execute(
            lambda transaction: jobs.renew_lease(transaction.connection, lease, expires), is_brief=True
        )

    async def settle(self, lease: Lease, settlement: Settlement) -> None:
        await self._writer.execute(lambda transaction: jobs.settle(transaction.connection, lease, settlement), is_brief=True)

    # Maintenance

    async def check(self) -> None:
        problems = await asyncio.to_thread(self._read, _check_integrity)
        if problems:
            raise LedgerDamaged(f"{self._options.path} is damaged: {problems[0]}.", remedy=RESTORE)

    async def close(self) -> None:
        await asyncio.to_thread(self._writer.close)
        self._read_pool.close()

    def _read(self, read: Callable[[apsw.Connection], T]) -> T:
        with self._read_pool.connection() as connection:
            return read(connection)


def _check_integrity(connection: apsw.Connection) -> list[str]:
    return [line for (line,) in connection.execute("PRAGMA integrity_check") if line != "ok"]

"""`PostgresLedger`: the ledger contract over the connection pool and the listening connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from msgspec import structs

from fidelio.clock import Clock
from fidelio.errors import LedgerUnavailable
from fidelio.ledger.contract import Ledger
from fidelio.ledger.encoding import EncodedChange, build_deletions, encode_change
from fidelio.ledger.model import Change, CommitResult, Event, Hit, Lease, Query, RankedHit, RankQuery, Settlement
from fidelio.ledger.postgres import erasure, jobs, reads, requests, search
from fidelio.ledger.postgres.apply import commit
from fidelio.ledger.postgres.database import Connection, Database, open_database
from fidelio.ledger.postgres.documents import list_documents, list_versions, list_versions_of, read_blob, read_document
from fidelio.ledger.postgres.jobs import list_jobs, next_due
from fidelio.ledger.postgres.notifications import POLL_SECONDS, NotificationListener, wait_for_notification
from fidelio.ledger.postgres.requests import count_requests, list_requests, read_request
from fidelio.ledger.postgres.schema import migrate
from fidelio.ledger.postgres.search_index import SearchVectors
from fidelio.ledger.redaction import Redaction, redact_events

P = ParamSpec("P")
T = TypeVar("T")

FOLLOW_PAGE = 256
# `follow` retries during a restart of the server for this long before it raises.
RESTART_SECONDS = 20.0
_RETRY_SECONDS = 0.2


def _reading(
    read: Callable[Concatenate[Connection, P], Awaitable[T]],
) -> Callable[Concatenate[PostgresLedger, P], Coroutine[Any, Any, T]]:
    """Make a method of a function that reads from a connection."""

    async def method(self: PostgresLedger, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._database.connection() as connection:
            return await read(connection, *args, **kwargs)

    return method


class PostgresLedger(Ledger):
    """Ledger in a PostgreSQL database, created by `open_postgres`. `Ledger` documents the methods."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._listener = NotificationListener(database)

    @classmethod
    async def open(cls, url: str, *, clock: Clock) -> Self:
        database = await open_database(url)
        try:
            await migrate(database)
        except BaseException:
            # Also on cancellation: the caller gets no ledger that it could close.
            await database.close()
            raise
        return cls(database, clock)

    # Writing

    async def commit(self, *changes: Change) -> tuple[CommitResult, ...]:
        work = self._encode(*changes)
        return await self._database.write(lambda connection: commit(connection, work))

    async def redact(self, session: str, seqs: Sequence[int], *, actor: str, reason: str) -> CommitResult:
        return await redact_events(self, self._carry_out, session, seqs, actor=actor, reason=reason)

    async def _carry_out(self, redaction: Redaction) -> CommitResult:
        encoded = self._encode(redaction.change)

        async def work(connection: Connection) -> CommitResult:
            await erasure.erase_events(connection, redaction.change.session, redaction.seqs, redaction.remaining)
            await requests.rewrite(connection, redaction.requests)
            (result,) = await commit(connection, encoded)
            return result

        return await self._database.write(work)

    async def erase(self, sessions: Sequence[str], *, actor: str, reason: str, expect: Mapping[str, int] | None = None) -> None:
        for batch in build_deletions(sessions, actor=actor, reason=reason, expect=expect):
            work = self._encode(*batch)
            await self._database.write(partial(erasure.erase_sessions, last_changes=work, actor=actor, now=self._clock()))

    async def erasure_pending(self) -> bool:
        return False

    def _encode(self, *changes: Change) -> list[tuple[EncodedChange, SearchVectors]]:
        now = self._clock()
        return [(encoded, SearchVectors.build(encoded)) for encoded in [encode_change(change, now=now) for change in changes]]

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
    _read_newest_position = _reading(reads.read_newest_position)

    async def follow(self, session: str | None = None, *, after: int = 0, types: Sequence[str] = ()) -> AsyncIterator[Event]:
        while True:
            # Types are filtered here: a filtered query would scan all events since the last match again at every poll.
            for event in await self._next_page(session, after):
                after = event.position if session is None else event.seq
                if not types or event.type in types:
                    yield event

    async def _next_page(self, session: str | None, after: int) -> tuple[Event, ...]:
        """Wait for events after `after` and return the first page of them."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + RESTART_SECONDS
        while True:
            try:
                notification = await self._listener.listen()
                events = await self.events(session, after=after, limit=FOLLOW_PAGE)
            except LedgerUnavailable:
                if clock() > deadline:
                    raise
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if events:
                return events
            await wait_for_notification(notification, POLL_SECONDS)
            deadline = clock() + RESTART_SECONDS

    async def wait(self, *, after: int, timeout: float) -> int:
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout
        while True:
            notification = await self._listener.listen() if clock() < deadline else None
            newest = await self._read_newest_position()
            if notification is None or newest > after:
                return newest
            await wait_for_notification(notification, deadline - clock())

    async def search(self, query: Query) -> tuple[Hit, ...]:
        async with self._database.connection() as connection:
            return await search.search(connection, query)

    async def rank(self, query: RankQuery) -> tuple[RankedHit, ...]:
        async with self._database.connection() as connection:
            return await search.rank(connection, query)

    async def update_index(self) -> int:
        # Events and their search vectors are committed together, so the index is always up to date.
        return await self._read_newest_position()

    # Jobs

    async def claim(self, owner: str, kinds: Sequence[str], *, lease_ms: int, session: str | None = None) -> Lease | None:
        now = self._clock()
        while (due := await self.next_due(kinds)) is not None and due <= now:
            lease = await self._database.write(
                lambda connection: jobs.claim(connection, owner, kinds, session=session, now=now, expires=now + lease_ms)
            )
            if lease is not None or session is not None:
                return lease
        return None

    async def heartbeat(self, lease: Lease, *, lease_ms: int) -> Lease:
        expires = self._clock() + lease_ms
        await self._database.write(lambda connection: jobs.renew_lease(connection, lease, expires))
        return structs.replace(lease, expires=expires)

    async def settle(self, lease: Lease, settlement: Settlement) -> None:
        await self._database.write(lambda connection: jobs.lock_and_settle(connection, lease, settlement))

    # Maintenance

    async def check(self) -> None:
        await self._database.write(reads.check_rows)

    async def close(self) -> None:
        self._database.refuse_new_work()
        await self._listener.close()
        await self._database.close()

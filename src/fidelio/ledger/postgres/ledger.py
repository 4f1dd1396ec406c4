"""The ledger on PostgreSQL: the contract, method by method, over the pool and the listening connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Self

from msgspec import structs

from fidelio.clock import Clock
from fidelio.errors import LedgerUnavailable
from fidelio.ledger.checks import check_redaction
from fidelio.ledger.contract import Ledger
from fidelio.ledger.encoding import Prepared, prepare
from fidelio.ledger.model import (
    Change,
    Committed,
    Document,
    Event,
    Hit,
    Job,
    Lease,
    NewEvent,
    Page,
    Query,
    Request,
    RequestState,
    Session,
    SessionKind,
    Settlement,
)
from fidelio.ledger.postgres import documents, requests
from fidelio.ledger.postgres import documents as blobs
from fidelio.ledger.postgres import erasure as erasing
from fidelio.ledger.postgres import erasure as redaction
from fidelio.ledger.postgres import jobs as lanes
from fidelio.ledger.postgres import reads as reading
from fidelio.ledger.postgres import search as finding
from fidelio.ledger.postgres.apply import commit
from fidelio.ledger.postgres.database import Database, Link, open_database
from fidelio.ledger.postgres.notifications import GLANCE_SECONDS, News, heard
from fidelio.ledger.postgres.schema import migrate
from fidelio.ledger.postgres.search_index import Words
from fidelio.ledger.projection import batches, last_change

FOLLOW_PAGE = 256
# A follower sits out a restart of the server; one that takes longer is told to its reader.
RESTART_SECONDS = 20.0
_PAUSE_SECONDS = 0.2


class PostgresLedger(Ledger):
    """See `Ledger` for what each method promises; opened by `open_postgres`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._news = News(database)

    @classmethod
    async def open(cls, url: str, *, clock: Clock) -> Self:
        database = await open_database(url)
        try:
            await migrate(database)
        except BaseException:
            await database.close()
            raise
        return cls(database, clock)

    # Writing

    async def commit(self, *changes: Change) -> tuple[Committed, ...]:
        work = self._prepared(*changes)
        return await self._database.write(lambda link: commit(link, work))

    async def redact(self, session: str, seqs: Sequence[int], *, actor: str, reason: str) -> Committed:
        check_redaction(seqs, actor, reason)
        numbers = sorted(set(seqs))
        notice = NewEvent(type=redaction.REDACTED, body={"seqs": numbers, "reason": reason}, actor=actor)
        prepared = self._prepared(Change(session=session, events=(notice,)))

        async def work(link: Link) -> Committed:
            await redaction.erase_events(link, session, numbers)
            (done,) = await commit(link, prepared)
            return done

        return await self._database.write(work)

    async def erase(self, sessions: Sequence[str], *, actor: str, reason: str, expect: Mapping[str, int] | None = None) -> None:
        seqs = expect or {}
        for batch in batches(sessions, actor=actor, reason=reason):
            last = [last_change(session, actor=actor, reason=reason, expect=seqs.get(session)) for session in batch]
            work = self._prepared(*last)
            await self._database.write(partial(erasing.erase_sessions, last_changes=work, actor=actor, now=self._clock()))

    def _prepared(self, *changes: Change) -> list[tuple[Prepared, Words]]:
        now = self._clock()
        return [(prepared, Words.of(prepared)) for prepared in [prepare(change, now=now) for change in changes]]

    # Reading

    async def session(self, session: str) -> Session:
        async with self._database.link() as link:
            return await reading.session(link, session)

    async def named(self, name: str, *, namespace: str = "") -> Session:
        async with self._database.link() as link:
            return await reading.named_session(link, name, namespace)

    async def sessions(
        self,
        *,
        kind: SessionKind | None = None,
        status: str | None = None,
        namespace: str | None = None,
        parent: str | None = None,
        name: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Session]:
        filters = {"kind": kind, "status": status, "namespace": namespace, "parent": parent, "name": name}
        async with self._database.link() as link:
            return await reading.sessions(link, filters, cursor=cursor, limit=limit)

    async def count_sessions(
        self, *, kind: SessionKind | None = None, status: str | None = None, namespace: str | None = None
    ) -> int:
        async with self._database.link() as link:
            return await reading.count_sessions(link, {"kind": kind, "status": status, "namespace": namespace})

    async def events(
        self, session: str | None = None, *, after: int = 0, types: Sequence[str] = (), limit: int = 1000
    ) -> tuple[Event, ...]:
        async with self._database.link() as link:
            return await reading.events(link, session, after=after, types=types, limit=limit)

    async def follow(self, session: str | None = None, *, after: int = 0, types: Sequence[str] = ()) -> AsyncIterator[Event]:
        while True:
            # All types are read and the unwanted ones dropped here: else every look would begin again at the last wanted one.
            for event in await self._next_page(session, after):
                after = event.position if session is None else event.seq
                if not types or event.type in types:
                    yield event

    async def _next_page(self, session: str | None, after: int) -> tuple[Event, ...]:
        """What comes after, as soon as there is something."""
        clock = asyncio.get_running_loop().time
        give_up = clock() + RESTART_SECONDS
        while True:
            try:
                changed = await self._news.listen()
                found = await self.events(session, after=after, limit=FOLLOW_PAGE)
            except LedgerUnavailable:
                if clock() > give_up:
                    raise
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if found:
                return found
            await heard(changed, GLANCE_SECONDS)
            give_up = clock() + RESTART_SECONDS

    async def wait(self, *, after: int, timeout: float) -> int:
        clock = asyncio.get_running_loop().time
        until = clock() + timeout
        while True:
            changed = await self._news.listen() if clock() < until else None
            newest = await self._newest()
            if changed is None or newest > after:
                return newest
            await heard(changed, until - clock())

    async def _newest(self) -> int:
        async with self._database.link() as link:
            return await reading.newest_position(link)

    async def request(self, request: str) -> Request:
        async with self._database.link() as link:
            return await requests.one(link, request)

    async def requests(
        self,
        *,
        session: str | None = None,
        state: RequestState | None = "open",
        key: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Request]:
        async with self._database.link() as link:
            return await requests.page(link, session=session, state=state, key=key, cursor=cursor, limit=limit)

    async def document(self, space: str, path: str, *, version: int | None = None) -> Document | None:
        async with self._database.link() as link:
            return await documents.read_document(link, space, path, version)

    async def documents(self, space: str, *, prefix: str = "", cursor: str | None = None, limit: int = 50) -> Page[Document]:
        async with self._database.link() as link:
            return await documents.page(link, space, prefix=prefix, cursor=cursor, limit=limit)

    async def versions(self, space: str, path: str, *, limit: int = 50) -> tuple[Document, ...]:
        async with self._database.link() as link:
            return await documents.versions(link, space, path, limit)

    async def blob(self, digest: str) -> bytes | None:
        async with self._database.link() as link:
            return await blobs.read_blob(link, digest)

    async def search(self, query: Query) -> tuple[Hit, ...]:
        async with self._database.link() as link:
            return await finding.search(link, query)

    async def indexed(self) -> int:
        # Events and their words are committed together: the index is always where the events are.
        return await self._newest()

    # Due work

    async def claim(self, owner: str, kinds: Sequence[str], *, lease_ms: int) -> Lease | None:
        now = self._clock()
        while (due := await self.next_due(kinds)) is not None and due <= now:
            lease = await self._database.write(lambda link: lanes.claim(link, owner, kinds, now=now, expires=now + lease_ms))
            if lease is not None:
                return lease
        return None

    async def heartbeat(self, lease: Lease, *, lease_ms: int) -> Lease:
        expires = self._clock() + lease_ms
        await self._database.write(lambda link: lanes.prolong(link, lease, expires))
        return structs.replace(lease, expires=expires)

    async def settle(self, lease: Lease, how: Settlement) -> None:
        await self._database.write(lambda link: lanes.lock_and_settle(link, lease, how))

    async def next_due(self, kinds: Sequence[str]) -> int | None:
        async with self._database.link() as link:
            return await lanes.next_due(link, kinds)

    async def jobs(self, *, session: str | None = None, dead: bool = False, limit: int = 50) -> tuple[Job, ...]:
        async with self._database.link() as link:
            return await lanes.listed(link, session=session, dead=dead, limit=limit)

    # Life

    async def check(self) -> None:
        await self._database.write(reading.read_everything)

    async def close(self) -> None:
        self._database.refuse()
        await self._news.close()
        await self._database.close()

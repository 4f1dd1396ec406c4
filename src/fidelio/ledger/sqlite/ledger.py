"""The ledger on one SQLite file: the contract, method by method, over the writer thread and the readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import apsw

from fidelio.clock import Clock
from fidelio.errors import LedgerDamaged
from fidelio.ledger.checks import check_redaction
from fidelio.ledger.contract import Ledger
from fidelio.ledger.encoding import prepare
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
from fidelio.ledger.projection import batches, last_change
from fidelio.ledger.sqlite import documents, requests, search
from fidelio.ledger.sqlite import erasure as erasing
from fidelio.ledger.sqlite import erasure as redaction
from fidelio.ledger.sqlite import jobs as lanes
from fidelio.ledger.sqlite import reads as reading
from fidelio.ledger.sqlite import search_index as index
from fidelio.ledger.sqlite.apply import apply
from fidelio.ledger.sqlite.connection import Place
from fidelio.ledger.sqlite.notifications import Watch
from fidelio.ledger.sqlite.reads import Readers
from fidelio.ledger.sqlite.transaction import Transaction
from fidelio.ledger.sqlite.writer import Writer

T = TypeVar("T")

FOLLOW_PAGE = 256


class SqliteLedger(Ledger):
    """See `Ledger` for what each method promises; opened by `open_sqlite`."""

    def __init__(self, place: Place, writer: Writer, clock: Clock) -> None:
        self._place = place
        self._writer = writer
        self._readers = Readers(place)
        self._clock = clock

    # Writing

    async def commit(self, *changes: Change) -> tuple[Committed, ...]:
        now = self._clock()
        prepared = [prepare(change, now=now) for change in changes]
        touched = tuple([change.session for change in changes if change.events])
        return await self._writer.carry_out(
            lambda transaction: tuple([apply(transaction, each) for each in prepared]),
            touched,
            brief=all(each.is_small for each in prepared),
        )

    async def redact(self, session: str, seqs: Sequence[int], *, actor: str, reason: str) -> Committed:
        check_redaction(seqs, actor, reason)
        numbers = sorted(set(seqs))
        notice = NewEvent(type=redaction.REDACTED, body={"seqs": numbers, "reason": reason}, actor=actor)
        prepared = prepare(Change(session=session, events=(notice,)), now=self._clock())

        def work(transaction: Transaction) -> Committed:
            done = apply(transaction, prepared)
            redaction.erase_events(transaction.connection, session, numbers)
            return done

        return await self._writer.carry_out(work, (session,), afterwards=redaction.shrink)

    async def erase(self, sessions: Sequence[str], *, actor: str, reason: str, expect: Mapping[str, int] | None = None) -> None:
        now, seqs = self._clock(), expect or {}
        for batch in batches(sessions, actor=actor, reason=reason):
            last = [last_change(session, actor=actor, reason=reason, expect=seqs.get(session)) for session in batch]
            prepared = [prepare(change, now=now) for change in last]
            await self._writer.carry_out(
                partial(erasing.erase_sessions, last_changes=prepared, actor=actor, now=now),
                tuple(batch),
                afterwards=redaction.shrink,
            )

    # Reading

    async def session(self, session: str) -> Session:
        return self._read(lambda connection: reading.session(connection, session))

    async def named(self, name: str, *, namespace: str = "") -> Session:
        return self._read(lambda connection: reading.named_session(connection, name, namespace))

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
        return self._read(lambda connection: reading.sessions(connection, filters, cursor=cursor, limit=limit))

    async def count_sessions(
        self, *, kind: SessionKind | None = None, status: str | None = None, namespace: str | None = None
    ) -> int:
        filters = {"kind": kind, "status": status, "namespace": namespace}
        return self._read(lambda connection: reading.count_sessions(connection, filters))

    async def events(
        self, session: str | None = None, *, after: int = 0, types: Sequence[str] = (), limit: int = 1000
    ) -> tuple[Event, ...]:
        return self._read(lambda connection: reading.events(connection, session, after=after, types=types, limit=limit))

    async def follow(self, session: str | None = None, *, after: int = 0, types: Sequence[str] = ()) -> AsyncIterator[Event]:
        while True:
            with Watch(self._writer.signals, session) as watch:
                found = await self.events(session, after=after, types=types, limit=FOLLOW_PAGE)
                if not found:
                    await watch.news.wait()
            for event in found:
                yield event
                after = event.position if session is None else event.seq

    async def wait(self, *, after: int, timeout: float) -> int:
        newest = after
        try:
            async with asyncio.timeout(timeout):
                while True:
                    with Watch(self._writer.signals, None) as watch:
                        newest = self._read(reading.newest_position)
                        if newest > after:
                            return newest
                        await watch.news.wait()
        except TimeoutError:
            return newest

    async def request(self, request: str) -> Request:
        return self._read(lambda connection: requests.one(connection, request))

    async def requests(
        self,
        *,
        session: str | None = None,
        state: RequestState | None = "open",
        key: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Request]:
        return self._read(
            lambda connection: requests.page(connection, session=session, state=state, key=key, cursor=cursor, limit=limit)
        )

    async def document(self, space: str, path: str, *, version: int | None = None) -> Document | None:
        return self._read(lambda connection: documents.one(connection, space, path, version))

    async def documents(self, space: str, *, prefix: str = "", cursor: str | None = None, limit: int = 50) -> Page[Document]:
        return self._read(lambda connection: documents.page(connection, space, prefix=prefix, cursor=cursor, limit=limit))

    async def versions(self, space: str, path: str, *, limit: int = 50) -> tuple[Document, ...]:
        return self._read(lambda connection: documents.versions(connection, space, path, limit))

    async def blob(self, digest: str) -> bytes | None:
        return self._read(lambda connection: documents.blob(connection, digest))

    async def search(self, query: Query) -> tuple[Hit, ...]:
        hits, lags = await asyncio.to_thread(self._read, lambda connection: _search(connection, query))
        if lags:
            # Another process may have written and ended before it could index: whoever searches sees to it.
            self._writer.index_soon()
        return hits

    async def indexed(self) -> int:
        while await self._writer.carry_out(lambda transaction: index.advance(transaction.connection, index.STEP)):
            pass
        return self._read(lambda connection: index.reached(connection, "event"))

    # Due work

    async def claim(self, owner: str, kinds: Sequence[str], *, lease_ms: int) -> Lease | None:
        now = self._clock()
        due = await self.next_due(kinds)
        if due is None or due > now:
            return None
        return await self._writer.carry_out(
            lambda transaction: lanes.claim(transaction.connection, owner, kinds, now=now, expires=now + lease_ms), brief=True
        )

    async def heartbeat(self, lease: Lease, *, lease_ms: int) -> Lease:
        expires = self._clock() + lease_ms
        return await self._writer.carry_out(
            lambda transaction: lanes.prolong(transaction.connection, lease, expires), brief=True
        )

    async def settle(self, lease: Lease, how: Settlement) -> None:
        await self._writer.carry_out(lambda transaction: lanes.settle(transaction.connection, lease, how), brief=True)

    async def next_due(self, kinds: Sequence[str]) -> int | None:
        return self._read(lambda connection: lanes.next_due(connection, kinds))

    async def jobs(self, *, session: str | None = None, dead: bool = False, limit: int = 50) -> tuple[Job, ...]:
        return self._read(lambda connection: lanes.listed(connection, session=session, dead=dead, limit=limit))

    # Life

    async def check(self) -> None:
        complaints = await asyncio.to_thread(self._read, _complaints)
        if complaints:
            raise LedgerDamaged(
                f"{self._place.path} is damaged: {complaints[0]}.", remedy="Keep a copy, and restore the file from a backup."
            )

    async def close(self) -> None:
        await asyncio.to_thread(self._writer.close)
        self._readers.close()

    def _read(self, read: Callable[[apsw.Connection], T]) -> T:
        with self._readers.lend() as connection:
            return read(connection)


def _search(connection: apsw.Connection, query: Query) -> tuple[tuple[Hit, ...], bool]:
    return search.search(connection, query), index.lags(connection)


def _complaints(connection: apsw.Connection) -> list[str]:
    return [line for (line,) in connection.execute("PRAGMA integrity_check") if line != "ok"]

"""What a commit does to the tables: all of its changes in one transaction.

Locks are taken in one order by everybody, so that two commits never wait for each other in a circle: the rows of the
sessions by id, the blobs by digest, documents by path, and the lock on the positions. That one comes last because every
commit of every process needs it: the events are written when everything else is, and then the transaction ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Self

from msgspec import structs

from fidelio.errors import BadRecord, SequenceConflict, SessionExists, SessionNotFound
from fidelio.ledger.encoding import Draft, Prepared, seal
from fidelio.ledger.model import Change, Committed, Event, NewSession, Session
from fidelio.ledger.postgres import documents, requests
from fidelio.ledger.postgres import documents as blobs
from fidelio.ledger.postgres import jobs as lanes
from fidelio.ledger.postgres import search_index as index
from fidelio.ledger.postgres.database import Link
from fidelio.ledger.postgres.rows import EVENT, SESSION, event_values, marks, to_session
from fidelio.ledger.postgres.search_index import Words
from fidelio.ledger.projection import DELETED, advanced, born, touches, was_deleted

_LOCK = f"SELECT {SESSION} FROM sessions WHERE id = ANY($1::text[]) ORDER BY id FOR UPDATE"
_CREATE = f"""
INSERT INTO sessions ({SESSION}) VALUES ($1, $2, $3, $4, $5, $6, $7, '{{}}', $8, $9, $10, $11)
ON CONFLICT DO NOTHING RETURNING id
"""
# An event and the words it is found by: one statement, because every trip to the server counts while others wait.
_APPEND = f"""
WITH event AS (INSERT INTO events ({EVENT}) VALUES ({marks(11)}) RETURNING position, session, type)
INSERT INTO search (source, position, session, type, kind, parent, words)
SELECT 'event', position, session, type, $12, $13, $14::text::tsvector FROM event
"""
_REFER = "INSERT INTO event_blobs (digest, position) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_UPDATE = """
UPDATE sessions SET last_seq = $2, head = $3, updated_at = $4, status = $5, reason = $6, record = coalesce($7, record)
WHERE id = $1
"""


@dataclass(frozen=True, slots=True)
class Transaction:
    """One commit under way: what it has locked and found out. The sessions are as its changes have left them so far."""

    link: Link
    sessions: dict[str, Session]
    missing_blobs: frozenset[str]

    @classmethod
    async def begin(cls, link: Link, work: Sequence[Prepared]) -> Self:
        sessions = await _lock_sessions(link, work)
        contents = {digest: content for each in work for digest, content in each.blobs.items()}
        referred = {digest for each in work for draft in each.drafts for digest in draft.blobs}
        missing = await blobs.keep(link, contents, referred) if contents or referred else frozenset()
        await documents.hold(link, {(each.document.space, each.document.path) for ready in work for each in ready.documents})
        return cls(link, sessions, missing)

    async def apply(self, prepared: Prepared, words: Words) -> Committed:
        """Carries out one change but for writing its events; raises the ledger's error, and then nothing is kept."""
        change = prepared.change
        if change.lease:
            await lanes.require_held(self.link, change.lease)
        before = await self._subject(change, prepared.now)
        if change.expect is not None and change.expect != before.last_seq:
            raise SequenceConflict(before.id, change.expect, before.last_seq)
        self._require_blobs(prepared.drafts)
        events = _sealed(before, prepared.drafts)
        after = before
        if touches(change):
            after = advanced(before, change, events, raw=prepared.record, now=prepared.now)
            await self._update(after, prepared.record)
        await self._carry_out_rest(prepared, after, words)
        return Committed(after, events)

    async def _carry_out_rest(self, prepared: Prepared, session: Session, words: Words) -> None:
        change = prepared.change
        for request in prepared.requests:
            await requests.apply(self.link, session.id, request, prepared.now)
        for document, text in zip(prepared.documents, words.documents, strict=True):
            await documents.put(self.link, session.id, document, prepared.now)
            await index.put_document(self.link, session, document.document, text)
        for job in prepared.jobs:
            if job.job.session not in self.sessions:
                raise session_not_found(job.job.session)
            _alive(self.sessions[job.job.session])
            await lanes.enqueue(self.link, job)
        if change.settle and change.lease:
            await lanes.settle(self.link, change.lease, change.settle)

    async def _subject(self, change: Change, now: int) -> Session:
        known = self.sessions.get(change.session)
        if change.create is None:
            if known is None:
                raise session_not_found(change.session)
            return _alive(known)
        if known is not None:
            raise _taken(change.session)
        self.sessions[change.session] = await self._create(change.session, change.create, now)
        return self.sessions[change.session]

    async def _create(self, session: str, create: NewSession, now: int) -> Session:
        if create.parent is not None:
            await require_session(self.link, create.parent)
        new = born(session, create, now=now)
        values = (new.id, new.kind, new.namespace, new.name, new.parent, new.status, new.reason)
        created = await self.link.fetchval(_CREATE, *values, new.last_seq, new.head, new.created_at, new.updated_at)
        if created is None:
            raise await self._why_not_created(new)
        return new

    async def _why_not_created(self, new: Session) -> SessionExists:
        by_name = "SELECT id FROM sessions WHERE namespace = $1 AND name = $2"
        holder = await self.link.fetchval(by_name, new.namespace, new.name)
        if holder is None or holder == new.id:
            return _taken(new.id)
        return SessionExists(f"The name {new.name!r} belongs to session {holder}.", remedy="Choose another name.")

    def _require_blobs(self, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            for digest in self.missing_blobs.intersection(draft.blobs):
                raise BadRecord(
                    f"Event {draft.type} refers to blob {digest[:16]}…, which is not there.", remedy="Store it first."
                )

    async def _update(self, after: Session, record: str | None) -> None:
        end = (after.last_seq, after.head, after.updated_at)
        await self.link.execute(_UPDATE, after.id, *end, after.status, after.reason, record)
        self.sessions[after.id] = after


async def commit(link: Link, work: Sequence[tuple[Prepared, Words]]) -> tuple[Committed, ...]:
    transaction = await Transaction.begin(link, [prepared for prepared, _ in work])
    done = [await transaction.apply(prepared, words) for prepared, words in work]
    how_many = sum(len(each.events) for each in done)
    if not how_many:
        return tuple(done)
    last = await link.fetchval("SELECT reserve_positions($1)", how_many)
    placed = _placed(done, last)
    await _write(link, placed, work)
    return placed


def _sealed(session: Session, drafts: Sequence[Draft]) -> tuple[Event, ...]:
    """The events of one change, chained to what was there, still without their positions."""
    events: list[Event] = []
    head = session.head
    for seq, draft in enumerate(drafts, session.last_seq + 1):
        events.append(seal(draft, session=session.id, seq=seq, previous=head, position=0))
        head = events[-1].hash
    return tuple(events)


def _placed(done: Sequence[Committed], last: int) -> tuple[Committed, ...]:
    positions = count(last + 1)
    return tuple(
        [
            Committed(each.session, tuple([structs.replace(event, position=next(positions)) for event in each.events]))
            for each in done
        ]
    )


async def _write(link: Link, done: Sequence[Committed], work: Sequence[tuple[Prepared, Words]]) -> None:
    rows, references = [], []
    for each, (prepared, words) in zip(done, work, strict=True):
        about = (each.session.kind, each.session.parent)
        for event, draft, text in zip(each.events, prepared.drafts, words.events, strict=True):
            rows.append((*event_values(event), *about, text))
            references += [(digest, event.position) for digest in draft.blobs]
    await link.executemany(_APPEND, rows)
    if references:
        await link.executemany(_REFER, references)


async def _lock_sessions(link: Link, work: Sequence[Prepared]) -> dict[str, Session]:
    changes = [each.change for each in work]
    wanted = {change.session for change in changes} | {job.session for change in changes for job in change.jobs}
    wanted |= {change.lease.session for change in changes if change.lease}
    return {row["id"]: to_session(row) for row in await link.fetch(_LOCK, list(wanted))}


async def require_session(link: Link, session: str) -> None:
    if await link.fetchval("SELECT 1 FROM sessions WHERE id = $1", session) is None:
        raise session_not_found(session)


def session_not_found(session: str) -> SessionNotFound:
    return SessionNotFound(f"There is no session {session!r:.80}.", remedy="List them with `fidelio sessions`.")


def _alive(session: Session) -> Session:
    if session.status == DELETED:
        raise was_deleted(session.id)
    return session


def _taken(session: str) -> SessionExists:
    return SessionExists(f"There is a session {session} already.", remedy="Choose another id.")

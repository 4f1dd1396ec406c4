"""Application of changes to the tables, all changes of a commit in a single transaction.

Every transaction acquires its locks in the same order, so that no deadlock is possible: session rows by id, blobs by digest,
documents by path, and the advisory lock for positions. The last is needed by every commit of every process, so events are
inserted at the end, directly before the commit releases it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Self

import msgspec
from msgspec import structs

from fidelio.errors import BadRecord, SequenceConflict, SessionExists
from fidelio.ledger.checks import session_not_found
from fidelio.ledger.encoding import (
    DELETED,
    EncodedChange,
    EncodedEvent,
    advance_row,
    chain_event,
    changes_row,
    create_row,
    session_deleted,
)
from fidelio.ledger.model import Change, CommitResult, Event, NewSession, Session
from fidelio.ledger.postgres import documents, jobs, requests
from fidelio.ledger.postgres import search_index as index
from fidelio.ledger.postgres.database import Connection
from fidelio.ledger.postgres.search_index import SearchVectors
from fidelio.ledger.rows import SESSION

EVENT = ", ".join(Event.__struct_fields__)
_LOCK_SESSIONS = f"SELECT {SESSION} FROM sessions WHERE id = ANY($1::text[]) ORDER BY id FOR UPDATE"
_INSERT_SESSION = f"""
INSERT INTO sessions ({SESSION}) VALUES ($1, $2, $3, $4, $5, $6, $7, '{{}}', $8, $9, $10, $11)
ON CONFLICT DO NOTHING RETURNING id
"""
# Inserts an event and its search vector in a single statement: every round trip prolongs the time the position lock is held.
_INSERT_EVENT = f"""
WITH event AS (
    INSERT INTO events ({EVENT}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) RETURNING position, session, type
)
INSERT INTO search (source, position, session, type, kind, parent, words)
SELECT 'event', position, session, type, $12, $13, $14::text::tsvector FROM event
"""
_INSERT_REFERENCE = "INSERT INTO event_blobs (digest, position) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_UPDATE_SESSION = """
UPDATE sessions SET last_seq = $2, head = $3, updated_at = $4, status = $5, reason = $6, record = coalesce($7, record)
WHERE id = $1
"""


class Transaction(msgspec.Struct, frozen=True):
    """State of a running commit: the locked sessions, with the changes applied so far, and the blobs that are missing."""

    connection: Connection
    sessions: dict[str, Session]
    missing_blobs: frozenset[str]

    @classmethod
    async def begin(cls, connection: Connection, work: Sequence[EncodedChange]) -> Self:
        sessions = await _lock_sessions(connection, work)
        contents = {digest: content for each in work for digest, content in each.blobs.items()}
        references = {digest for each in work for new_event in each.events for digest in new_event.blobs}
        missing = await documents.store_blobs(connection, contents, references) if contents or references else frozenset()
        await documents.lock_documents(
            connection, {(each.document.space, each.document.path) for change in work for each in change.documents}
        )
        return cls(connection, sessions, missing)

    async def apply(self, encoded: EncodedChange, vectors: SearchVectors) -> CommitResult:
        """Apply a change except for its events; a `LedgerError` makes the caller roll back the transaction."""
        change = encoded.change
        if change.lease:
            await jobs.require_held(self.connection, change.lease)
        before = await self._load_session(change, encoded.now)
        if change.expect is not None and change.expect != before.last_seq:
            raise SequenceConflict(before.id, change.expect, before.last_seq)
        self._require_blobs(encoded.events)
        events = _chain_events(before, encoded.events)
        after = before
        if changes_row(change):
            after = advance_row(before, change, events, raw=encoded.record, now=encoded.now)
            await self._update_session(after, encoded.record)
        await self._apply_rest(encoded, after, vectors)
        return CommitResult(after, events)

    async def _apply_rest(self, encoded: EncodedChange, session: Session, vectors: SearchVectors) -> None:
        change = encoded.change
        for request in encoded.requests:
            await requests.apply(self.connection, session.id, request, encoded.now)
        for document, vector in zip(encoded.documents, vectors.documents, strict=True):
            await documents.put_document(self.connection, session.id, document, encoded.now)
            await index.put_document(self.connection, session, document.document, vector)
        for job in encoded.jobs:
            if job.job.session not in self.sessions:
                raise session_not_found(job.job.session)
            _require_not_deleted(self.sessions[job.job.session])
            await jobs.enqueue(self.connection, job)
        if change.settle and change.lease:
            await jobs.settle(self.connection, change.lease, change.settle)

    async def _load_session(self, change: Change, now: int) -> Session:
        existing = self.sessions.get(change.session)
        if change.create is None:
            if existing is None:
                raise session_not_found(change.session)
            return _require_not_deleted(existing)
        if existing is not None:
            raise _session_exists(change.session)
        self.sessions[change.session] = await self._create(change.session, change.create, now)
        return self.sessions[change.session]

    async def _create(self, session: str, create: NewSession, now: int) -> Session:
        if create.parent is not None:
            await require_session(self.connection, create.parent)
        new = create_row(session, create, now=now)
        values = (new.id, new.kind, new.namespace, new.name, new.parent, new.status, new.reason)
        created = await self.connection.fetchval(
            _INSERT_SESSION, *values, new.last_seq, new.head, new.created_at, new.updated_at
        )
        if created is None:
            raise await self._explain_conflict(new)
        return new

    async def _explain_conflict(self, new: Session) -> SessionExists:
        by_name = "SELECT id FROM sessions WHERE namespace = $1 AND name = $2"
        holder = await self.connection.fetchval(by_name, new.namespace, new.name)
        if holder is None or holder == new.id:
            return _session_exists(new.id)
        return SessionExists(f"The name {new.name!r} belongs to session {holder}.", remedy="Choose another name.")

    def _require_blobs(self, new_events: Sequence[EncodedEvent]) -> None:
        for new_event in new_events:
            for digest in self.missing_blobs.intersection(new_event.blobs):
                raise BadRecord(
                    f"Event {new_event.type} refers to blob {digest[:16]}…, which is not stored.", remedy="Store it first."
                )

    async def _update_session(self, after: Session, record: str | None) -> None:
        head = (after.last_seq, after.head, after.updated_at)
        await self.connection.execute(_UPDATE_SESSION, after.id, *head, after.status, after.reason, record)
        self.sessions[after.id] = after


async def commit(connection: Connection, work: Sequence[tuple[EncodedChange, SearchVectors]]) -> tuple[CommitResult, ...]:
    transaction = await Transaction.begin(connection, [encoded for encoded, _ in work])
    results = [await transaction.apply(encoded, vectors) for encoded, vectors in work]
    event_count = sum(len(each.events) for each in results)
    if not event_count:
        return tuple(results)
    last = await connection.fetchval("SELECT reserve_positions($1)", event_count)
    positioned = _assign_positions(results, last)
    await _insert_events(connection, positioned, work)
    return positioned


def _chain_events(session: Session, new_events: Sequence[EncodedEvent]) -> tuple[Event, ...]:
    """Chain the events of a change to the head of the session; their positions are assigned later."""
    events: list[Event] = []
    head = session.head
    for seq, new_event in enumerate(new_events, session.last_seq + 1):
        events.append(chain_event(new_event, session=session.id, seq=seq, previous=head, position=0))
        head = events[-1].hash
    return tuple(events)


def _assign_positions(results: Sequence[CommitResult], last: int) -> tuple[CommitResult, ...]:
    positions = count(last + 1)
    return tuple(
        [
            CommitResult(each.session, tuple([structs.replace(event, position=next(positions)) for event in each.events]))
            for each in results
        ]
    )


async def _insert_events(
    connection: Connection, results: Sequence[CommitResult], work: Sequence[tuple[EncodedChange, SearchVectors]]
) -> None:
    rows, references = [], []
    for each, (encoded, vectors) in zip(results, work, strict=True):
        session_values = (each.session.kind, each.session.parent)
        for event, new_event, vector in zip(each.events, encoded.events, vectors.events, strict=True):
            rows.append((*structs.astuple(event), *session_values, vector))
            references += [(digest, event.position) for digest in new_event.blobs]
    await connection.executemany(_INSERT_EVENT, rows)
    if references:
        await connection.executemany(_INSERT_REFERENCE, references)


async def _lock_sessions(connection: Connection, work: Sequence[EncodedChange]) -> dict[str, Session]:
    changes = [each.change for each in work]
    session_ids = {change.session for change in changes} | {job.session for change in changes for job in change.jobs}
    session_ids |= {change.lease.session for change in changes if change.lease}
    return {row["id"]: Session(*row) for row in await connection.fetch(_LOCK_SESSIONS, list(session_ids))}


async def require_session(connection: Connection, session: str) -> None:
    if await connection.fetchval("SELECT 1 FROM sessions WHERE id = $1", session) is None:
        raise session_not_found(session)


def _require_not_deleted(session: Session) -> Session:
    if session.status == DELETED:
        raise session_deleted(session.id)
    return session


def _session_exists(session: str) -> SessionExists:
    return SessionExists(f"There is a session {session} already.", remedy="Choose another id.")

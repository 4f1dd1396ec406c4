"""What one change does to the tables. Runs inside the writer's transaction and sees everything committed before it."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from fidelio.errors import BadRecord, SequenceConflict, SessionExists, SessionNotFound
from fidelio.ledger.model import Change, Committed, Event, NewSession, Session
from fidelio.ledger.prepared import Prepared
from fidelio.ledger.projection import advanced, born, touches
from fidelio.ledger.sealing import Draft, seal
from fidelio.ledger.sqlite import documents, lanes, requests
from fidelio.ledger.sqlite.rows import SESSION, to_session
from fidelio.ledger.sqlite.transaction import Transaction

_INSERT_SESSION = f"INSERT INTO sessions ({SESSION}) VALUES (?, ?, ?, ?, ?, ?, ?, '{{}}', ?, ?, ?, ?)"
_INSERT_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_UPDATE_END = "UPDATE sessions SET last_seq = ?, head = ?, updated_at = ? WHERE id = ?"
_UPDATE_STATUS = "UPDATE sessions SET status = ?, reason = ? WHERE id = ?"


def apply(transaction: Transaction, prepared: Prepared) -> Committed:
    """Carries out one change; raises the ledger's error, and then the writer rolls back to where it began."""
    connection, change = transaction.connection, prepared.change
    if change.lease:
        lanes.require_held(connection, change.lease)
    before = _subject(connection, change, prepared.now)
    if change.expect is not None and change.expect != before.last_seq:
        raise SequenceConflict(before.id, change.expect, before.last_seq)
    documents.put_blobs(connection, prepared.blobs)
    events = _append(transaction, before, prepared.drafts)
    after = before
    if touches(change):
        after = advanced(before, change, events, now=prepared.now)
        _update(connection, before, after, prepared.record)
    _carry_out_rest(connection, prepared)
    return Committed(after, events)


def _carry_out_rest(connection: apsw.Connection, prepared: Prepared) -> None:
    change = prepared.change
    for request in prepared.requests:
        requests.apply(connection, change.session, request, prepared.now)
    for document in prepared.documents:
        documents.put(connection, change.session, document, prepared.now)
    for job in prepared.jobs:
        lanes.enqueue(connection, job)
    if change.settle and change.lease:
        lanes.settle(connection, change.lease, change.settle)


def _subject(connection: apsw.Connection, change: Change, now: int) -> Session:
    row = connection.execute(f"SELECT {SESSION} FROM sessions WHERE id = ?", (change.session,)).get
    if change.create is None:
        if row is None:
            raise session_not_found(change.session)
        return to_session(row)
    if row is not None:
        raise SessionExists(f"There is a session {change.session} already.", remedy="Choose another id.")
    return _create(connection, change.session, change.create, now)


def _create(connection: apsw.Connection, session: str, create: NewSession, now: int) -> Session:
    if create.parent is not None:
        require_session(connection, create.parent)
    if create.name is not None:
        _require_free(connection, create.namespace, create.name)
    row = born(session, create, now=now)
    connection.execute(
        _INSERT_SESSION,
        (
            row.id,
            row.kind,
            row.namespace,
            row.name,
            row.parent,
            row.status,
            row.reason,
            row.last_seq,
            row.head,
            row.created_at,
            row.updated_at,
        ),
    )
    return row


def require_session(connection: apsw.Connection, session: str) -> None:
    if connection.execute("SELECT 1 FROM sessions WHERE id = ?", (session,)).get is None:
        raise session_not_found(session)


def session_not_found(session: str) -> SessionNotFound:
    return SessionNotFound(f"There is no session {session!r:.80}.", remedy="List them with `fidelio sessions`.")


def _require_free(connection: apsw.Connection, namespace: str, name: str) -> None:
    taken = connection.execute("SELECT id FROM sessions WHERE namespace = ? AND name = ?", (namespace, name)).get
    if taken is not None:
        raise SessionExists(f"The name {name!r} belongs to session {taken}.", remedy="Choose another name.")


def _append(transaction: Transaction, session: Session, drafts: Sequence[Draft]) -> tuple[Event, ...]:
    head, events = session.head, []
    for seq, draft in enumerate(drafts, session.last_seq + 1):
        event = seal(draft, session=session.id, seq=seq, previous=head, position=transaction.next_position())
        _insert(transaction.connection, event, draft.blobs)
        head = event.hash
        events.append(event)
    return tuple(events)


def _insert(connection: apsw.Connection, event: Event, blobs: Sequence[str]) -> None:
    connection.execute(
        _INSERT_EVENT,
        (
            event.position,
            event.session,
            event.seq,
            event.id,
            event.type,
            event.actor,
            event.time,
            event.raw,
            event.salt,
            event.digest,
            event.hash,
        ),
    )
    for digest in blobs:
        if not documents.has_blob(connection, digest):
            raise BadRecord(f"Event {event.type} refers to blob {digest[:16]}…, which is not there.", remedy="Store it first.")
        connection.execute("INSERT OR IGNORE INTO event_blobs VALUES (?, ?)", (digest, event.position))


def _update(connection: apsw.Connection, before: Session, after: Session, record: str | None) -> None:
    # Naming a column in SET rewrites its indexes even when the value stays, so only what has changed is named.
    connection.execute(_UPDATE_END, (after.last_seq, after.head, after.updated_at, after.id))
    if (before.status, before.reason) != (after.status, after.reason):
        connection.execute(_UPDATE_STATUS, (after.status, after.reason, after.id))
    if record is not None:
        connection.execute("UPDATE sessions SET record = ? WHERE id = ?", (record, after.id))

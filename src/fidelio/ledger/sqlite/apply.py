"""What one change does to the tables. Runs inside the writer's transaction and sees everything committed before it."""

from __future__ import annotations

from collections.abc import Collection

import apsw
from msgspec.structs import astuple

from fidelio.errors import BadRecord, SequenceConflict, SessionExists, SessionNotFound
from fidelio.ledger.encoding import Draft, Prepared
from fidelio.ledger.model import Change, Committed, Event, NewSession, Session
from fidelio.ledger.projection import DELETED, advanced, born, touches, was_deleted
from fidelio.ledger.sqlite import documents, requests
from fidelio.ledger.sqlite import jobs as lanes
from fidelio.ledger.sqlite.rows import SESSION, statement
from fidelio.ledger.sqlite.transaction import Moved, Transaction

_INSERT_SESSION = statement("INSERT INTO sessions (", SESSION, ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")


def apply(transaction: Transaction, prepared: Prepared) -> Committed:
    """Carries out one change; raises the ledger's error, and then the writer rolls back to where it began."""
    change = prepared.change
    if change.lease:
        lanes.require_held(transaction.connection, change.lease)
    row = _subject(transaction, change, prepared.now)
    if change.expect is not None and change.expect != row.last_seq:
        raise SequenceConflict(row.id, change.expect, row.last_seq)
    if prepared.appends_only:
        return _append(transaction, row, prepared)
    if prepared.blobs:
        documents.put_blobs(transaction.connection, prepared.blobs)
    events = transaction.append(row, prepared.drafts)
    session = _update(transaction, row, prepared, events)
    _refer_to_blobs(transaction, prepared.drafts, events, stored=prepared.blobs)
    _carry_out_rest(transaction, prepared)
    return Committed(session, events)


def _append(transaction: Transaction, row: Session, prepared: Prepared) -> Committed:
    """By far the most frequent change, without asking for everything that it does not do."""
    events = transaction.append(row, prepared.drafts)
    after = advanced(row, prepared.change, events, raw=None, now=prepared.now)
    transaction.move(after)
    return Committed(after, events)


def _carry_out_rest(transaction: Transaction, prepared: Prepared) -> None:
    change = prepared.change
    for request in prepared.requests:
        requests.apply(transaction.connection, change.session, request, prepared.now)
    for document in prepared.documents:
        documents.put(transaction.connection, change.session, document, prepared.now)
    for job in prepared.jobs:
        lanes.enqueue(transaction.connection, job)
    if change.settle and change.lease:
        lanes.settle(transaction.connection, change.lease, change.settle)


def _subject(transaction: Transaction, change: Change, now: int) -> Session:
    row = transaction.session(change.session)
    if change.create is None:
        if row is None:
            raise session_not_found(change.session)
        if row.status == DELETED:
            raise was_deleted(row.id)
        return row
    if row is not None:
        raise SessionExists(f"There is a session {change.session} already.", remedy="Choose another id.")
    return _create(transaction.connection, change.session, change.create, now)


def _create(connection: apsw.Connection, session: str, create: NewSession, now: int) -> Session:
    if create.parent is not None:
        require_session(connection, create.parent)
    if create.name is not None:
        _require_free(connection, create.namespace, create.name)
    new = born(session, create, now=now)
    connection.execute(_INSERT_SESSION, astuple(new))
    return new


def require_session(connection: apsw.Connection, session: str) -> None:
    if connection.execute("SELECT 1 FROM sessions WHERE id = ?", (session,)).get is None:
        raise session_not_found(session)


def session_not_found(session: str) -> SessionNotFound:
    return SessionNotFound(f"There is no session {session!r:.80}.", remedy="List them with `fidelio sessions`.")


def _require_free(connection: apsw.Connection, namespace: str, name: str) -> None:
    taken = connection.execute("SELECT id FROM sessions WHERE namespace = ? AND name = ?", (namespace, name)).get
    if taken is not None:
        raise SessionExists(f"The name {name!r} belongs to session {taken}.", remedy="Choose another name.")


def _update(transaction: Transaction, row: Session, prepared: Prepared, events: tuple[Event, ...]) -> Session:
    if not touches(prepared.change):
        return row
    after = advanced(row, prepared.change, events, raw=prepared.record, now=prepared.now)
    how = Moved.END if prepared.record is None else Moved.RECORD
    if row.status != after.status or row.reason != after.reason:
        how = Moved.STATUS
    transaction.move(after, how)
    return after


def _refer_to_blobs(
    transaction: Transaction, drafts: tuple[Draft, ...], events: tuple[Event, ...], *, stored: Collection[str]
) -> None:
    for draft, event in zip(drafts, events, strict=True):
        for digest in draft.blobs:
            connection = transaction.connection
            if digest not in stored and not documents.has_blob(connection, digest):
                raise BadRecord(
                    f"Event {event.type} refers to blob {digest[:16]}…, which is not there.", remedy="Store it first."
                )
            connection.execute("INSERT OR IGNORE INTO event_blobs VALUES (?, ?)", (digest, event.position))

"""Application of a `Change` to the tables, inside the transaction of the writer."""

from __future__ import annotations

from collections.abc import Collection

import apsw
from msgspec.structs import astuple

from fidelio.errors import BadRecord, SequenceConflict, SessionExists
from fidelio.ledger.checks import session_not_found
from fidelio.ledger.encoding import DELETED, EncodedChange, EncodedEvent, advance_row, changes_row, create_row, session_deleted
from fidelio.ledger.model import Change, CommitResult, Event, NewSession, Session
from fidelio.ledger.rows import SESSION
from fidelio.ledger.sqlite import documents, jobs, requests
from fidelio.ledger.sqlite.group_commit import RowUpdate, Transaction
from fidelio.ledger.sqlite.schema import join_sql

_INSERT_SESSION = join_sql("INSERT INTO sessions (", SESSION, ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")


def apply(transaction: Transaction, encoded: EncodedChange) -> CommitResult:
    """Apply a change; on a `LedgerError` the caller rolls back to the savepoint or the start of the transaction."""
    change = encoded.change
    if change.lease:
        jobs.require_held(transaction.connection, change.lease)
    row = _load_session(transaction, change, encoded.now)
    if change.expect is not None and change.expect != row.last_seq:
        raise SequenceConflict(row.id, change.expect, row.last_seq)
    if encoded.appends_only:
        return _append_only(transaction, row, encoded)
    if encoded.blobs:
        documents.put_blobs(transaction.connection, encoded.blobs)
    events = transaction.append(row, encoded.events)
    session = _update(transaction, row, encoded, events)
    _add_blob_references(transaction, encoded.events, events, stored=encoded.blobs)
    _apply_rest(transaction, encoded)
    return CommitResult(session, events)


def _append_only(transaction: Transaction, row: Session, encoded: EncodedChange) -> CommitResult:
    """Fast path of `apply` for the most frequent change, which only appends events.

    Without it 64 sessions append 2.9 times as fast as a loop of single synced inserts, and the promise is 3 times.
    """
    events = transaction.append(row, encoded.events)
    after = advance_row(row, encoded.change, events, raw=None, now=encoded.now)
    transaction.update_session(after)
    return CommitResult(after, events)


def _apply_rest(transaction: Transaction, encoded: EncodedChange) -> None:
    change = encoded.change
    for request in encoded.requests:
        requests.apply(transaction.connection, change.session, request, encoded.now)
    for document in encoded.documents:
        documents.put_document(transaction.connection, change.session, document, encoded.now)
    for job in encoded.jobs:
        jobs.enqueue(transaction.connection, job)
    if change.settle and change.lease:
        jobs.settle(transaction.connection, change.lease, change.settle)


def _load_session(transaction: Transaction, change: Change, now: int) -> Session:
    row = transaction.session(change.session)
    if change.create is None:
        if row is None:
            raise session_not_found(change.session)
        if row.status == DELETED:
            raise session_deleted(row.id)
        return row
    if row is not None:
        raise SessionExists(f"There is a session {change.session} already.", remedy="Choose another id.")
    return _create(transaction.connection, change.session, change.create, now)


def _create(connection: apsw.Connection, session: str, create: NewSession, now: int) -> Session:
    if create.parent is not None:
        require_session(connection, create.parent)
    if create.name is not None:
        _require_free_name(connection, create.namespace, create.name)
    new = create_row(session, create, now=now)
    connection.execute(_INSERT_SESSION, astuple(new))
    return new


def require_session(connection: apsw.Connection, session: str) -> None:
    if connection.execute("SELECT 1 FROM sessions WHERE id = ?", (session,)).get is None:
        raise session_not_found(session)


def _require_free_name(connection: apsw.Connection, namespace: str, name: str) -> None:
    owner = connection.execute("SELECT id FROM sessions WHERE namespace = ? AND name = ?", (namespace, name)).get
    if owner is not None:
        raise SessionExists(f"The name {name!r} belongs to session {owner}.", remedy="Choose another name.")


def _update(transaction: Transaction, row: Session, encoded: EncodedChange, events: tuple[Event, ...]) -> Session:
    if not changes_row(encoded.change):
        return row
    after = advance_row(row, encoded.change, events, raw=encoded.record, now=encoded.now)
    scope = RowUpdate.HEAD if encoded.record is None else RowUpdate.RECORD
    if row.status != after.status or row.reason != after.reason:
        scope = RowUpdate.STATUS
    transaction.update_session(after, scope)
    return after


def _add_blob_references(
    transaction: Transaction, new_events: tuple[EncodedEvent, ...], events: tuple[Event, ...], *, stored: Collection[str]
) -> None:
    for new_event, event in zip(new_events, events, strict=True):
        for digest in new_event.blobs:
            connection = transaction.connection
            if digest not in stored and not documents.has_blob(connection, digest):
                raise BadRecord(
                    f"Event {event.type} refers to blob {digest[:16]}…, which is not stored.", remedy="Store it first."
                )
            connection.execute("INSERT OR IGNORE INTO event_blobs VALUES (?, ?)", (digest, event.position))

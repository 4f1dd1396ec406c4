"""Erasing what events said, without breaking the chain that proves they were there."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from fidelio.errors import BadRecord
from fidelio.ledger.encoding import Prepared
from fidelio.ledger.projection import DELETED
from fidelio.ledger.sqlite import search_index as index
from fidelio.ledger.sqlite.apply import apply, session_not_found
from fidelio.ledger.sqlite.documents import drop_unused
from fidelio.ledger.sqlite.rows import fetch, statement
from fidelio.ledger.sqlite.search_index import forget_event
from fidelio.ledger.sqlite.transaction import Transaction

REDACTED = "event.redacted"


def erase_events(connection: apsw.Connection, session: str, seqs: Sequence[int]) -> None:
    """Bodies, salts, index rows and blobs nobody else refers to; in the caller's transaction."""
    for seq in seqs:
        _erase_one(connection, session, seq)


def shrink(connection: apsw.Connection) -> None:
    """Empties the write-ahead file, which still holds the pages as they were before."""
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").get  # noqa: B018  # reading the row is what runs the statement


def _erase_one(connection: apsw.Connection, session: str, seq: int) -> None:
    row = connection.execute("SELECT position, type FROM events WHERE session = ? AND seq = ?", (session, seq)).get
    if row is None:
        raise BadRecord(f"Session {session} has no event {seq}.", remedy="Name the events by their numbers.")
    position, type_ = row
    if type_ == REDACTED:
        raise BadRecord(f"Event {seq} of {session} says what was redacted and by whom; it stays.")
    forget_event(connection, position)
    connection.execute("UPDATE events SET body = NULL, salt = NULL WHERE position = ?", (position,))
    blobs = fetch(connection, "DELETE FROM event_blobs WHERE position = ? RETURNING digest", (position,))
    drop_unused(connection, [digest for (digest,) in blobs])


# Ids travel as one JSON text: the number of parameters of a statement is bounded.
_THESE = "(SELECT value FROM json_each(?))"
_EVENTS = statement("UPDATE events SET body = NULL, salt = NULL WHERE session IN", _THESE)
_LET_GO = statement(
    "DELETE FROM event_blobs WHERE position IN (SELECT position FROM events WHERE session IN", _THESE, ") RETURNING digest"
)
_VERSIONS = statement("SELECT key, space, path, digest FROM document_versions WHERE digest IS NOT NULL AND session IN", _THESE)
_DISMISS = statement(
    "UPDATE requests SET state = 'dismissed', answered_by = ?, closed_at = ? WHERE state = 'open' AND session IN", _THESE
)
_REQUESTS = statement(
    "UPDATE requests SET about = id, question = '', options = '[]', subject = '', detail = '{}', answer = '{}'",
    "WHERE session IN",
    _THESE,
)
_JOBS = (
    statement("DELETE FROM jobs WHERE session IN", _THESE),
    statement("DELETE FROM lanes WHERE session IN", _THESE),
    statement("UPDATE leases SET job = NULL, owner = '', expires = 0 WHERE session IN", _THESE),
)
_NAMES = statement("UPDATE sessions SET name = NULL WHERE id IN", _THESE)


def erase_sessions(transaction: Transaction, last_changes: Sequence[Prepared], *, actor: str, now: int) -> None:
    """In the caller's transaction. Those that were deleted before stay as they are."""
    alive = [each for each in last_changes if _is_alive(transaction, each.change.session)]
    these = msgspec.json.encode([each.change.session for each in alive]).decode()
    connection = transaction.connection
    index.forget_sessions(connection, these)
    connection.execute(_EVENTS, (these,))
    let_go = [digest for (digest,) in fetch(connection, _LET_GO, (these,))]
    drop_unused(connection, [*let_go, *_empty_versions(connection, these)])
    connection.execute(_DISMISS, (actor, now, these))
    for text in (_REQUESTS, *_JOBS):
        connection.execute(text, (these,))
    for each in alive:
        _end(transaction, each)
    transaction.connection.execute(_NAMES, (these,))


def _is_alive(transaction: Transaction, session: str) -> bool:
    row = transaction.session(session)
    if row is None:
        raise session_not_found(session)
    return row.status != DELETED


def _end(transaction: Transaction, last_change: Prepared) -> None:
    apply(transaction, last_change)
    row = transaction.session(last_change.change.session)
    assert row is not None
    transaction.move(msgspec.structs.replace(row, name=None))


def _empty_versions(connection: apsw.Connection, these: str) -> list[str]:
    """The texts these sessions wrote. A document whose newest version is one of them is deleted, the others are kept."""
    versions = fetch(connection, _VERSIONS, (these,))
    for key, space, path, _ in versions:
        index.forget_version(connection, key, space, path)
        connection.execute("UPDATE documents SET deleted = 1 WHERE space = ? AND path = ? AND newest = ?", (space, path, key))
        connection.execute("UPDATE document_versions SET digest = NULL WHERE key = ?", (key,))
    return [digest for *_, digest in versions]

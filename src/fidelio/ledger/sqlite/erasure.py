"""Redaction of events and erasure of sessions in SQLite; the hash chain stays verifiable."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from fidelio.ledger.checks import session_not_found
from fidelio.ledger.encoding import DELETED, EncodedChange, require_redactable
from fidelio.ledger.sqlite import search_index as index
from fidelio.ledger.sqlite.apply import apply
from fidelio.ledger.sqlite.connection import note_pending
from fidelio.ledger.sqlite.documents import delete_unused_blobs
from fidelio.ledger.sqlite.group_commit import Transaction
from fidelio.ledger.sqlite.schema import fetch, join_sql
from fidelio.ledger.sqlite.search_index import remove_event

_DELETE_BLOBS = """
DELETE FROM event_blobs WHERE position = ? AND digest NOT IN (SELECT value FROM json_each(?)) RETURNING digest
"""


def erase_events(connection: apsw.Connection, session: str, seqs: Sequence[int], remaining: Sequence[str] = ()) -> None:
    """Erase bodies, salts, index rows and blobs of events, except `remaining` blobs, in the transaction of the caller."""
    for seq in seqs:
        _erase_event(connection, session, seq, msgspec.json.encode(remaining).decode())


def _erase_event(connection: apsw.Connection, session: str, seq: int, remaining: str) -> None:
    row = connection.execute("SELECT position, type FROM events WHERE session = ? AND seq = ?", (session, seq)).get
    position, type_ = row or (0, None)
    require_redactable(session, seq, type_)
    remove_event(connection, position)
    connection.execute("UPDATE events SET body = NULL, salt = NULL WHERE position = ?", (position,))
    blobs = fetch(connection, _DELETE_BLOBS, (position, remaining))
    delete_unused_blobs(connection, [digest for (digest,) in blobs])


# Session ids are bound as a single JSON list, because SQLite limits the number of parameters of a statement.
_IN_SESSIONS = "(SELECT value FROM json_each(?))"
_ERASE_BODIES = join_sql("UPDATE events SET body = NULL, salt = NULL WHERE session IN", _IN_SESSIONS)
_DELETE_REFERENCES = join_sql(
    "DELETE FROM event_blobs WHERE position IN (SELECT position FROM events WHERE session IN",
    _IN_SESSIONS,
    ") RETURNING digest",
)
_SELECT_VERSIONS = join_sql(
    "SELECT key, space, path, digest FROM document_versions WHERE digest IS NOT NULL AND session IN", _IN_SESSIONS
)
_DISMISS_REQUESTS = join_sql(
    "UPDATE requests SET state = 'dismissed', answered_by = ?, closed_at = ? WHERE state = 'open' AND session IN", _IN_SESSIONS
)
_ERASE_REQUESTS = join_sql(
    "UPDATE requests SET about = id, question = '', options = '[]', subject = '', detail = '{}', answer = '{}'",
    "WHERE session IN",
    _IN_SESSIONS,
)
_DELETE_JOBS = (
    join_sql("DELETE FROM jobs WHERE session IN", _IN_SESSIONS),
    join_sql("DELETE FROM lanes WHERE session IN", _IN_SESSIONS),
    join_sql("UPDATE leases SET job = NULL, owner = '', expires = 0 WHERE session IN", _IN_SESSIONS),
)
_CLEAR_NAMES = join_sql("UPDATE sessions SET name = NULL WHERE id IN", _IN_SESSIONS)


def erase_sessions(transaction: Transaction, last_changes: Sequence[EncodedChange], *, actor: str, now: int) -> None:
    """Erase sessions in the transaction of the caller; sessions that are already deleted are skipped."""
    existing = [each for each in last_changes if _is_not_deleted(transaction, each.change.session)]
    session_ids = msgspec.json.encode([each.change.session for each in existing]).decode()
    connection = transaction.connection
    index.remove_sessions(connection, session_ids)
    connection.execute(_ERASE_BODIES, (session_ids,))
    unreferenced = [digest for (digest,) in fetch(connection, _DELETE_REFERENCES, (session_ids,))]
    delete_unused_blobs(connection, [*unreferenced, *_erase_documents(connection, session_ids)])
    connection.execute(_DISMISS_REQUESTS, (actor, now, session_ids))
    for text in (_ERASE_REQUESTS, *_DELETE_JOBS):
        connection.execute(text, (session_ids,))
    for each in existing:
        _append_deletion(transaction, each)
    transaction.connection.execute(_CLEAR_NAMES, (session_ids,))
    note_pending(connection)


def _is_not_deleted(transaction: Transaction, session: str) -> bool:
    row = transaction.session(session)
    if row is None:
        raise session_not_found(session)
    return row.status != DELETED


def _append_deletion(transaction: Transaction, last_change: EncodedChange) -> None:
    apply(transaction, last_change)
    row = transaction.session(last_change.change.session)
    assert row is not None
    transaction.update_session(msgspec.structs.replace(row, name=None))


def _erase_documents(connection: apsw.Connection, session_ids: str) -> list[str]:
    """Erase the document versions that the sessions wrote and return their digests.

    A document is marked as deleted if its newest version is erased; otherwise its other versions stay readable.
    """
    versions = fetch(connection, _SELECT_VERSIONS, (session_ids,))
    for key, space, path, _ in versions:
        index.remove_version(connection, key, space, path)
        connection.execute("UPDATE documents SET deleted = 1 WHERE space = ? AND path = ? AND newest = ?", (space, path, key))
        connection.execute("UPDATE document_versions SET digest = NULL WHERE key = ?", (key,))
    return [digest for *_, digest in versions]

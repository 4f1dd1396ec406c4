"""Redaction of events and erasure of sessions in PostgreSQL; the hash chain stays verifiable.

Erased values are invisible to every reader after the commit; the server overwrites the old row versions at the next VACUUM.
"""

from __future__ import annotations

from collections.abc import Sequence

from fidelio.ledger.checks import session_not_found
from fidelio.ledger.encoding import DELETED, EncodedChange, require_redactable
from fidelio.ledger.postgres import documents, search_index
from fidelio.ledger.postgres.apply import commit
from fidelio.ledger.postgres.database import Connection
from fidelio.ledger.postgres.search_index import SearchVectors

_LOCK_SESSION = "SELECT 1 FROM sessions WHERE id = $1 FOR UPDATE"
_SELECT_EVENTS = "SELECT position, seq, type FROM events WHERE session = $1 AND seq = ANY($2::bigint[])"
_ERASE_BODIES = "UPDATE events SET raw = NULL, salt = NULL WHERE position = ANY($1::bigint[])"
_DELETE_REFERENCES = "DELETE FROM event_blobs WHERE position = ANY($1::bigint[]) AND digest <> ALL($2::text[]) RETURNING digest"


async def erase_events(connection: Connection, session: str, seqs: Sequence[int], remaining: Sequence[str] = ()) -> None:
    """Erase bodies, salts, search rows and unreferenced blobs of events, except `remaining`, in the transaction of the caller.

    Call it before `event.redacted` is appended: blobs are locked before positions, as in every transaction.
    """
    await _lock_session(connection, session)
    found = {row["seq"]: row for row in await connection.fetch(_SELECT_EVENTS, session, seqs)}
    for seq in seqs:
        require_redactable(session, seq, found[seq]["type"] if seq in found else None)
    positions = [row["position"] for row in found.values()]
    await search_index.remove_events(connection, positions)
    await connection.execute(_ERASE_BODIES, positions)
    await documents.delete_unused_blobs(
        connection, [row["digest"] for row in await connection.fetch(_DELETE_REFERENCES, positions, list(remaining))]
    )


async def _lock_session(connection: Connection, session: str) -> None:
    if await connection.fetchval(_LOCK_SESSION, session) is None:
        raise session_not_found(session)


_IN_SESSIONS = "session = ANY($1::text[])"
_LOCK_SESSIONS = "SELECT id, status FROM sessions WHERE id = ANY($1::text[]) ORDER BY id FOR UPDATE"
_SELECT_DIGESTS = f"""
SELECT b.digest FROM event_blobs AS b JOIN events AS e USING (position) WHERE e.{_IN_SESSIONS}
UNION SELECT digest FROM document_versions WHERE {_IN_SESSIONS} AND digest IS NOT NULL
"""
_SELECT_PATHS = f"SELECT DISTINCT space, path FROM document_versions WHERE {_IN_SESSIONS} AND digest IS NOT NULL"
_DELETE_DOCUMENTS = f"""
UPDATE documents AS d SET deleted = true FROM document_versions AS v
WHERE (v.space, v.path, v.version) = (d.space, d.path, d.version) AND v.{_IN_SESSIONS}
"""
_ERASE_CONTENTS = (
    f"DELETE FROM search WHERE {_IN_SESSIONS}",
    f"DELETE FROM event_blobs WHERE position IN (SELECT position FROM events WHERE {_IN_SESSIONS})",
    f"UPDATE events SET raw = NULL, salt = NULL WHERE {_IN_SESSIONS}",
    f"UPDATE document_versions SET digest = NULL WHERE {_IN_SESSIONS}",
    f"""
    UPDATE requests SET key = id, question = '', options = '[]', subject = '', detail = '{{}}', answer = '{{}}'
    WHERE {_IN_SESSIONS}
    """,
    f"DELETE FROM jobs WHERE {_IN_SESSIONS}",
    f"DELETE FROM lanes WHERE {_IN_SESSIONS}",
    f"UPDATE leases SET job = NULL, owner = '', expires = 0 WHERE {_IN_SESSIONS}",
)
_DISMISS_REQUESTS = (
    f"UPDATE requests SET state = 'dismissed', answered_by = $2, closed_at = $3 WHERE {_IN_SESSIONS} AND state = 'open'"
)


async def erase_sessions(
    connection: Connection, last_changes: Sequence[tuple[EncodedChange, SearchVectors]], *, actor: str, now: int
) -> None:
    """Erase sessions in the transaction of the caller; sessions that are already deleted are skipped.

    Locks are acquired in the order of every commit: sessions, blobs, documents, and positions for the last events.
    """
    existing = await _lock_existing(connection, [prepared.change.session for prepared, _ in last_changes])
    digests = [row["digest"] for row in await connection.fetch(_SELECT_DIGESTS, existing)]
    await documents.lock_blobs(connection, digests)
    await documents.lock_documents(
        connection, {(row["space"], row["path"]) for row in await connection.fetch(_SELECT_PATHS, existing)}
    )
    await connection.execute(_DELETE_DOCUMENTS, existing)
    await connection.execute(_DISMISS_REQUESTS, existing, actor, now)
    for statement in _ERASE_CONTENTS:
        await connection.execute(statement, existing)
    await documents.delete_unused_blobs(connection, digests)
    await commit(connection, [each for each in last_changes if each[0].change.session in set(existing)])
    await connection.execute("UPDATE sessions SET name = NULL WHERE id = ANY($1::text[])", existing)


async def _lock_existing(connection: Connection, sessions: Sequence[str]) -> list[str]:
    found = {row["id"]: row["status"] for row in await connection.fetch(_LOCK_SESSIONS, list(sessions))}
    for session in sessions:
        if session not in found:
            raise session_not_found(session)
    return [session for session in sessions if found[session] != DELETED]

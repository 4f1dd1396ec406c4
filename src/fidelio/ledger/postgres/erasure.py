"""Erasing what events said, without breaking the chain that proves they were there.

What is erased here is gone for every reader at once; the server overwrites the old rows themselves when it next vacuums.
"""

from __future__ import annotations

from collections.abc import Sequence

from fidelio.errors import BadRecord
from fidelio.ledger.encoding import Prepared
from fidelio.ledger.postgres import documents
from fidelio.ledger.postgres import documents as blobs
from fidelio.ledger.postgres import search_index as index
from fidelio.ledger.postgres.apply import commit, session_not_found
from fidelio.ledger.postgres.database import Link
from fidelio.ledger.postgres.search_index import Words
from fidelio.ledger.projection import DELETED

REDACTED = "event.redacted"

_LOCK_SESSION = "SELECT 1 FROM sessions WHERE id = $1 FOR UPDATE"
_FIND = "SELECT position, seq, type FROM events WHERE session = $1 AND seq = ANY($2::bigint[])"
_ERASE = "UPDATE events SET raw = NULL, salt = NULL WHERE position = ANY($1::bigint[])"
_LET_GO = "DELETE FROM event_blobs WHERE position = ANY($1::bigint[]) RETURNING digest"


async def erase_events(link: Link, session: str, seqs: Sequence[int]) -> None:
    """Bodies, salts, index rows and blobs nobody else refers to; in the caller's transaction.

    Before the notice of it is appended: blobs are locked before positions, here as everywhere.
    """
    await _lock(link, session)
    found = {row["seq"]: row for row in await link.fetch(_FIND, session, seqs)}
    for seq in seqs:
        if seq not in found:
            raise BadRecord(f"Session {session} has no event {seq}.", remedy="Name the events by their numbers.")
        if found[seq]["type"] == REDACTED:
            raise BadRecord(f"Event {seq} of {session} says what was redacted and by whom; it stays.")
    positions = [row["position"] for row in found.values()]
    await index.forget_events(link, positions)
    await link.execute(_ERASE, positions)
    await blobs.drop_unused(link, [row["digest"] for row in await link.fetch(_LET_GO, positions)])


async def _lock(link: Link, session: str) -> None:
    if await link.fetchval(_LOCK_SESSION, session) is None:
        raise session_not_found(session)


_THESE = "session = ANY($1::text[])"
_LOCK = "SELECT id, status FROM sessions WHERE id = ANY($1::text[]) ORDER BY id FOR UPDATE"
_DIGESTS = f"""
SELECT b.digest FROM event_blobs AS b JOIN events AS e USING (position) WHERE e.{_THESE}
UNION SELECT digest FROM document_versions WHERE {_THESE} AND digest IS NOT NULL
"""
_PLACES = f"SELECT DISTINCT space, path FROM document_versions WHERE {_THESE} AND digest IS NOT NULL"
_DELETE_DOCUMENTS = f"""
UPDATE documents AS d SET deleted = true FROM document_versions AS v
WHERE (v.space, v.path, v.version) = (d.space, d.path, d.version) AND v.{_THESE}
"""
_CONTENTS = (
    f"DELETE FROM search WHERE {_THESE}",
    f"DELETE FROM event_blobs WHERE position IN (SELECT position FROM events WHERE {_THESE})",
    f"UPDATE events SET raw = NULL, salt = NULL WHERE {_THESE}",
    f"UPDATE document_versions SET digest = NULL WHERE {_THESE}",
    f"""
    UPDATE requests SET key = id, question = '', options = '[]', subject = '', detail = '{{}}', answer = '{{}}' WHERE {_THESE}
    """,
    f"DELETE FROM jobs WHERE {_THESE}",
    f"DELETE FROM lanes WHERE {_THESE}",
    f"UPDATE leases SET job = NULL, owner = '', expires = 0 WHERE {_THESE}",
)
_DISMISS = f"UPDATE requests SET state = 'dismissed', answered_by = $2, closed_at = $3 WHERE {_THESE} AND state = 'open'"


async def erase_sessions(link: Link, last_changes: Sequence[tuple[Prepared, Words]], *, actor: str, now: int) -> None:
    """In the caller's transaction. Those that were deleted before stay as they are.

    Locked in the order of every commit: sessions, blobs, documents, and the positions only for the last events.
    """
    alive = await _alive(link, [prepared.change.session for prepared, _ in last_changes])
    digests = [row["digest"] for row in await link.fetch(_DIGESTS, alive)]
    await blobs.seize(link, digests)
    await documents.hold(link, {(row["space"], row["path"]) for row in await link.fetch(_PLACES, alive)})
    await link.execute(_DELETE_DOCUMENTS, alive)
    await link.execute(_DISMISS, alive, actor, now)
    for statement in _CONTENTS:
        await link.execute(statement, alive)
    await blobs.drop_unused(link, digests)
    await commit(link, [each for each in last_changes if each[0].change.session in set(alive)])
    await link.execute("UPDATE sessions SET name = NULL WHERE id = ANY($1::text[])", alive)


async def _alive(link: Link, sessions: Sequence[str]) -> list[str]:
    found = {row["id"]: row["status"] for row in await link.fetch(_LOCK, list(sessions))}
    for session in sessions:
        if session not in found:
            raise session_not_found(session)
    return [session for session in sessions if found[session] != DELETED]

"""Erasing whole sessions in one transaction.

What is erased here is gone for every reader at once; the server overwrites the old rows themselves when it next vacuums.
"""

from __future__ import annotations

from collections.abc import Sequence

from fidelio.ledger.erasing import DELETED
from fidelio.ledger.postgres import blobs, documents
from fidelio.ledger.postgres.apply import commit, session_not_found
from fidelio.ledger.postgres.database import Link
from fidelio.ledger.postgres.index import Words
from fidelio.ledger.prepared import Prepared

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


async def erase(link: Link, last_changes: Sequence[tuple[Prepared, Words]], *, actor: str, now: int) -> None:
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

"""Erasing what events said, without breaking the chain that proves they were there.

What is erased here is gone for every reader at once; the server overwrites the old rows themselves when it next vacuums.
"""

from __future__ import annotations

from collections.abc import Sequence

from fidelio.errors import BadRecord
from fidelio.ledger.postgres import blobs, index
from fidelio.ledger.postgres.apply import session_not_found
from fidelio.ledger.postgres.database import Link

REDACTED = "event.redacted"

_LOCK = "SELECT 1 FROM sessions WHERE id = $1 FOR UPDATE"
_FIND = "SELECT position, seq, type FROM events WHERE session = $1 AND seq = ANY($2::bigint[])"
_ERASE = "UPDATE events SET raw = NULL, salt = NULL WHERE position = ANY($1::bigint[])"
_LET_GO = "DELETE FROM event_blobs WHERE position = ANY($1::bigint[]) RETURNING digest"


async def erase(link: Link, session: str, seqs: Sequence[int]) -> None:
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
    if await link.fetchval(_LOCK, session) is None:
        raise session_not_found(session)

"""Erasing what events said, without breaking the chain that proves they were there."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from fidelio.errors import BadRecord
from fidelio.ledger.sqlite.documents import drop_unused
from fidelio.ledger.sqlite.index import forget_event
from fidelio.ledger.sqlite.rows import fetch

REDACTED = "event.redacted"


def erase(connection: apsw.Connection, session: str, seqs: Sequence[int]) -> None:
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

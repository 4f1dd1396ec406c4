"""From a fact to an event: everything between `NewEvent` and the row that is stored.

In two steps, because they happen in two places. A draft needs nothing but the fact, so the caller makes it before it queues for
the database. The seal needs the event before it, so only the transaction that appends can set it.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from fidelio.ledger.chain import SALT_BYTES, body_digest, event_hash
from fidelio.ledger.codec import encode
from fidelio.ledger.model import Event, NewEvent

EVENT_PREFIX = "e_"
ID_BYTES = 12


class Draft(NamedTuple):
    """An event that does not yet know its place."""

    id: str
    type: str
    actor: str
    time: int
    raw: str
    salt: bytes
    digest: bytes
    blobs: tuple[str, ...]


def draft(event: NewEvent, *, now: int) -> Draft:
    raw = encode(event.body, f"body of {event.type}")
    random = os.urandom(SALT_BYTES + ID_BYTES)
    salt = random[:SALT_BYTES]
    return Draft(
        event.id or EVENT_PREFIX + random[SALT_BYTES:].hex(),
        event.type,
        event.actor,
        now if event.time is None else event.time,
        raw,
        salt,
        body_digest(salt, raw),
        event.blobs,
    )


def seal(draft: Draft, *, session: str, seq: int, previous: bytes, position: int) -> Event:
    """The event at its place: number `seq` of its session, chained to the hash `previous`."""
    return Event(
        position,
        session,
        seq,
        draft.id,
        draft.type,
        draft.actor,
        draft.time,
        draft.raw,
        draft.salt,
        draft.digest,
        event_hash(previous, session, seq, draft.id, draft.type, draft.actor, draft.time, draft.digest),
    )

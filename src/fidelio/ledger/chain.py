"""The hash chain: what makes a session's record provable without trusting the database.

    digest = SHA-256(salt || body text)
    hash   = SHA-256(canonical JSON of [domain, previous hash, session, seq, id, type, actor, time, digest])

The body enters only by its salted digest, so it can be erased later and the chain still verifies, and nobody can guess an
erased body by hashing candidates. The first event's previous hash is the hash of the session's name, so one session's chain can
never be passed off as another's. All of it works offline, on exported events as well as on the ledger.

Canonical JSON here means: no spaces, everything outside ASCII escaped, as Python's `json.dumps` with the shortest separators.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from json.encoder import encode_basestring_ascii as quoted

import msgspec

from fidelio.errors import ChainBroken
from fidelio.ledger.model import Event

DOMAIN = "fidelio.event.v1"
SALT_BYTES = 16


def genesis(session: str) -> bytes:
    return hashlib.sha256(f"fidelio.session.v1:{session}".encode()).digest()


def body_digest(salt: bytes, raw: str) -> bytes:
    return hashlib.sha256(salt + raw.encode()).digest()


def event_hash(previous: bytes, session: str, seq: int, id_: str, type_: str, actor: str, time: int, digest: bytes) -> bytes:
    # Written out by hand: this runs for every event while the only write lock is held, and `json.dumps` takes far longer.
    text = (
        f'["{DOMAIN}","{previous.hex()}",{quoted(session)},{seq},{quoted(id_)},{quoted(type_)},{quoted(actor)},{time},'
        f'"{digest.hex()}"]'
    )
    return hashlib.sha256(text.encode()).digest()


class Verdict(msgspec.Struct, frozen=True):
    """A chain that holds: how long it is, where it ends, and how many bodies were redacted on the way."""

    session: str
    events: int
    head: bytes
    redacted: int


def verify(session: str, events: Iterable[Event], *, expected_heads: Iterable[bytes] = ()) -> Verdict:
    """Walks the chain from its first event; raises `ChainBroken` at the first event that does not hold.

    A chain alone does not show that its tail was cut off. Whoever kept an earlier head passes it in: every expected head must
    be passed on the way.
    """
    walker = Walker(session)
    for event in events:
        walker.step(event)
    return walker.finish(expected_heads)


class Walker:
    """`verify`, one event at a time, for chains that do not fit into memory."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.head = genesis(session)
        self.seq = 0
        self.redacted = 0
        self._seen = {self.head}

    def step(self, event: Event) -> None:
        if event.session != self.session:
            raise ChainBroken(self.session, self.seq + 1, f"belongs to session {event.session}")
        if event.seq != self.seq + 1:
            raise ChainBroken(self.session, self.seq + 1, f"is missing (the next one found is {event.seq})")
        self._check_body(event)
        expected = event_hash(self.head, event.session, event.seq, event.id, event.type, event.actor, event.time, event.digest)
        if expected != event.hash:
            raise ChainBroken(self.session, event.seq, "does not follow from the one before it, or its fields were changed")
        self.head, self.seq = event.hash, event.seq
        self._seen.add(self.head)

    def _check_body(self, event: Event) -> None:
        if event.raw is None:
            self.redacted += 1
        elif event.salt is None:
            # Nothing ties such a body to its digest; counted as redacted, any text could be put in its place.
            raise ChainBroken(self.session, event.seq, "has a body without its salt")
        elif body_digest(event.salt, event.raw) != event.digest:
            raise ChainBroken(self.session, event.seq, "has a body that differs from its digest")

    def finish(self, expected_heads: Iterable[bytes] = ()) -> Verdict:
        for head in expected_heads:
            if head not in self._seen:
                raise ChainBroken(
                    self.session,
                    self.seq + 1,
                    f"is missing: the head {head.hex()[:16]}… was recorded, but the chain does not reach it",
                )
        return Verdict(self.session, self.seq, self.head, self.redacted)

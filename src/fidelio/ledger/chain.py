"""Hash chain over the events of a session: hashing and offline verification.

    digest = SHA-256(salt || body text)
    hash   = SHA-256(canonical JSON of [domain, previous hash, session, seq, id, type, actor, time, digest])

The hash covers the body only through its salted digest. A body can therefore be erased without breaking the chain, and an
erased body cannot be found by hashing guesses. The hash before the first event is derived from the session id, so the chain of
a session does not verify as that of another session. Nothing here reads the database: exported events are verified as well.

Canonical JSON here means: no spaces, and everything outside ASCII escaped, as in `json.dumps` with `separators=(",", ":")`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from json.encoder import encode_basestring_ascii as quote

import msgspec

from fidelio.errors import ChainBroken
from fidelio.ledger.model import Event

DOMAIN = "fidelio.event.v1"
SALT_BYTES = 16


def hash_session_id(session: str) -> bytes:
    return hashlib.sha256(f"fidelio.session.v1:{session}".encode()).digest()


def hash_body(salt: bytes, raw: str) -> bytes:
    return hashlib.sha256(salt + raw.encode()).digest()


def hash_event(previous: bytes, session: str, seq: int, id_: str, type_: str, actor: str, time: int, digest: bytes) -> bytes:
    # Formatted by hand because it runs for every event while the write lock is held; `json.dumps` is several times slower.
    text = (
        f'["{DOMAIN}","{previous.hex()}",{quote(session)},{seq},{quote(id_)},{quote(type_)},{quote(actor)},{time},'
        f'"{digest.hex()}"]'
    )
    return hashlib.sha256(text.encode()).digest()


class ChainVerdict(msgspec.Struct, frozen=True):
    """Result of verifying a valid chain. `redacted` counts the events without a body.

    `problems` says what is stored beside the events and differs from them; `not_covered` what earlier versions have written
    and nothing can be said about.
    """

    session: str
    events: int
    head: bytes
    redacted: int
    problems: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return not self.problems


class ChainVerifier:
    """Verifies a chain event by event, from the first; raises `ChainBroken` at the first invalid event.

    A chain alone does not reveal that events at its end were removed. Pass hashes that were recorded earlier as
    `expected_heads` of `finish`: the chain must contain each of them.
    """

    def __init__(self, session: str) -> None:
        self.session = session
        self.head = hash_session_id(session)
        self.seq = 0
        self.redacted = 0
        self._heads = {self.head}

    def step(self, event: Event) -> None:
        if event.session != self.session:
            raise ChainBroken(self.session, self.seq + 1, f"belongs to session {event.session}")
        if event.seq != self.seq + 1:
            raise ChainBroken(self.session, self.seq + 1, f"is missing (the next one found is {event.seq})")
        self._check_body(event)
        expected = hash_event(self.head, event.session, event.seq, event.id, event.type, event.actor, event.time, event.digest)
        if expected != event.hash:
            raise ChainBroken(self.session, event.seq, "does not follow from the one before it, or its fields were changed")
        self.head, self.seq = event.hash, event.seq
        self._heads.add(self.head)

    def _check_body(self, event: Event) -> None:
        if event.raw is None:
            self.redacted += 1
        elif event.salt is None:
            # Without its salt a body cannot be compared with its digest. Counting it as redacted would accept any forged text.
            raise ChainBroken(self.session, event.seq, "has a body without its salt")
        elif hash_body(event.salt, event.raw) != event.digest:
            raise ChainBroken(self.session, event.seq, "has a body that differs from its digest")

    def finish(self, expected_heads: Iterable[bytes] = ()) -> ChainVerdict:
        for head in expected_heads:
            if head not in self._heads:
                raise ChainBroken(
                    self.session,
                    self.seq + 1,
                    f"is missing: the head {head.hex()[:16]}… was recorded, but the chain does not reach it",
                )
        return ChainVerdict(self.session, self.seq, self.head, self.redacted)

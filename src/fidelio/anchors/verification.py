"""Compare anchors with the ledger: name the sessions that are missing, cut, rewritten or inserted.

The hash chains themselves are verified elsewhere. Together they prove that everything up to an anchor is unchanged: the chain
of a session is valid, and it contains the hash that was signed, at its sequence number.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Literal

import msgspec

from fidelio.anchors.model import Anchor, Head, has_valid_signature
from fidelio.anchors.time_stamps import TimeStampVerdict, verify_time_stamp
from fidelio.clock import format_iso
from fidelio.errors import SessionNotFound
from fidelio.ledger import Ledger
from fidelio.ledger.encoding import REDACTED
from fidelio.ledger.model import Event, SessionHead
from fidelio.ledger.paging import PAGE, all_pages
from fidelio.ledger.redaction import read_seqs

Problem = Literal["ledger", "missing", "cut", "rewritten", "inserted", "uncovered"]
Signer = Literal["pinned", "home", "unknown", "forged"]
# Clocks are set back by a little; a session that was forged afterwards would have to be dated before the anchor by more.
_CLOCK_STEP_MS = 300_000
_MAX_FINDINGS = 1000


class Contradiction(msgspec.Struct, frozen=True):
    """A contradiction between an anchor and the ledger."""

    problem: Problem
    session: str
    seq: int
    reason: str


class AnchorVerdict(msgspec.Struct, frozen=True):
    """Result of an anchor. `findings` are the first contradictions, and `count` is the number of all.

    `notes` name the events whose bodies were erased after the anchor: it proves their hashes, and not what is left of them.
    """

    source: str
    number: int
    time: int
    sessions: int
    fingerprint: str
    signer: Signer
    findings: tuple[Contradiction, ...] = ()
    count: int = 0
    time_stamp: TimeStampVerdict | None = None
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the anchor proves that what it covers is unchanged."""
        is_contradicted = self.time_stamp is not None and self.time_stamp.state == "invalid"
        return self.signer in ("pinned", "home") and not self.count and not is_contradicted


class AnchorTrust(msgspec.Struct, frozen=True):
    """The fingerprints that are accepted: pinned by the caller, else those of the home. `roots` is PEM, for time stamps."""

    pinned: frozenset[str] = frozenset()
    home: frozenset[str] = frozenset()
    roots: bytes = b""

    def identify_signer(self, anchor: Anchor) -> Signer:
        if not has_valid_signature(anchor):
            return "forged"
        if self.pinned:
            return "pinned" if anchor.fingerprint in self.pinned else "unknown"
        return "home" if anchor.fingerprint in self.home else "unknown"


class SeriesLink(msgspec.Struct, frozen=True):
    """The position of an anchor in its series."""

    series: str
    number: int
    digest: str
    previous: str
    source: str


class AnchorVerifier:
    """Compares anchors with a ledger, in their order. `session` limits the comparison to a session."""

    def __init__(self, ledger: Ledger, trust: AnchorTrust, *, session: str | None = None) -> None:
        self._ledger, self._trust, self._session = ledger, trust, session
        # Heads that an event was read for: most sessions of a series do not change from one anchor to the next.
        self._confirmed: dict[str, Head] = {}
        self._rows: dict[str, tuple[int, str]] | None = None
        self._first_events: dict[str, tuple[int, int]] = {}
        self._links: list[SeriesLink] = []

    async def check(self, anchor: Anchor, source: str) -> AnchorVerdict:
        statement, signer = anchor.statement, self._trust.identify_signer(anchor)
        findings: list[Contradiction] = []
        stamp = verify_time_stamp(anchor.time_stamp, anchor.digest, self._trust.roots) if anchor.time_stamp else None
        count = 0
        # The heads in an anchor of somebody else say nothing about this ledger.
        if signer in ("pinned", "home"):
            self._links.append(SeriesLink(statement.series, statement.number, anchor.digest.hex(), statement.previous, source))
            async for finding in self._compare(anchor):
                count += 1
                findings += [finding] if count <= _MAX_FINDINGS else []
        return AnchorVerdict(
            source,
            statement.number,
            statement.time,
            statement.count,
            anchor.fingerprint,
            signer,
            tuple(findings),
            count,
            stamp,
            tuple(await self._find_redacted(statement.heads)) if signer in ("pinned", "home") else (),
        )

    def find_gaps(self) -> list[str]:
        """Name the anchors whose predecessor is not among those that were checked, except for the first of each series."""
        links = sorted(self._links, key=lambda link: (link.series, link.number))
        known = {link.digest for link in links}
        first = {link.series: link.number for link in reversed(links)}
        return [
            f"The anchor before number {link.number} ({link.source}) is missing: anchors were removed from the series."
            for link in links
            if link.number != first[link.series] and link.previous not in known
        ]

    async def _compare(self, anchor: Anchor) -> AsyncIterator[Contradiction]:
        statement = anchor.statement
        if statement.ledger and statement.ledger != await first_event_hash(self._ledger):
            yield Contradiction(
                "ledger", "", 0, "the ledger begins with another event: it is another ledger, or it was rewritten"
            )
        rows = await self._load_rows()
        for number, head in enumerate(self._select(statement.heads)):
            if number % PAGE == 0:
                # A read from SQLite does not suspend: other tasks would wait for all sessions.
                await asyncio.sleep(0)
            # The verification of the chains reads the same events, so equal heads need no other read.
            if rows.get(head[0]) != head[1:] and (finding := await self._check_head(head, known=head[0] in rows)) is not None:
                yield finding
        async for finding in self._find_unlisted(anchor):
            yield finding

    async def _load_rows(self) -> dict[str, tuple[int, str]]:
        """The last event of every session, or of the session that is compared; cached."""
        if self._rows is None:
            heads = all_pages(self._ledger.heads) if self._session is None else self._iter_head(self._session)
            self._rows = {head.session: (head.seq, head.hash.hex()) async for head in heads}
        return self._rows

    async def _iter_head(self, session: str) -> AsyncIterator[SessionHead]:
        row = await self._ledger.session(session)
        yield SessionHead(row.id, row.last_seq, row.head)

    def _select(self, heads: Collection[Head]) -> Collection[Head]:
        return heads if self._session is None else [head for head in heads if head[0] == self._session]

    async def _check_head(self, head: Head, *, known: bool) -> Contradiction | None:
        session, seq, expected = head
        if self._confirmed.get(session) == head:
            return None
        # Its chain is verified only if it is among all rows. Without its row it is missing, even if there are events of it.
        if not known:
            return Contradiction("missing", session, seq, f"is missing; it had {seq} events")
        events = await self._read_event(session, seq)
        if seq and (not events or events[0].seq != seq):
            return Contradiction("cut", session, seq, f"lacks event {seq}, which was signed: its end was cut off")
        if seq and events[0].hash.hex() != expected:
            return Contradiction(
                "rewritten", session, seq, f"was rewritten: the hash of its event {seq} is not the one that was signed"
            )
        self._confirmed[session] = head
        return None

    async def _find_redacted(self, heads: Collection[Head]) -> list[str]:
        """Name the events that were redacted after an anchor. Somebody who writes the database can invent what is left."""
        rows, notes = await self._load_rows(), list[str]()
        for session, seq, hash_ in self._select(heads):
            if len(notes) < _MAX_FINDINGS and session in rows and rows[session] != (seq, hash_):
                later = await self._ledger.events(session, after=seq, types=(REDACTED,), limit=PAGE)
                erased = sorted({number for event in later for number in read_seqs(event) if number <= seq})
                notes += [_describe_redacted(session, erased)] if erased else []
        return notes

    async def _read_event(self, session: str, seq: int) -> tuple[Event, ...]:
        try:
            return await self._ledger.events(session, after=seq - 1, limit=1) if seq else ()
        except SessionNotFound:
            return ()

    async def _find_unlisted(self, anchor: Anchor) -> AsyncIterator[Contradiction]:
        """Find sessions that the anchor would list if they had existed then."""
        listed = {session for session, *_ in anchor.statement.heads}
        for session, (last_seq, _) in (await self._load_rows()).items():
            if session in listed or not last_seq:
                continue
            if self._session is not None:
                yield Contradiction("uncovered", session, 0, "is not in the anchor, which therefore proves nothing about it")
                continue
            position, time = await self._first_event(session)
            if position <= anchor.statement.position:
                yield Contradiction("inserted", session, 1, "was inserted: it lies before the anchor, which does not list it")
            elif time < anchor.statement.time - _CLOCK_STEP_MS:
                reason = f"was inserted: it claims to have begun at {format_iso(time)}, but the anchor does not list it"
                yield Contradiction("inserted", session, 1, reason)

    async def _first_event(self, session: str) -> tuple[int, int]:
        """The position and the time of the first event of a session."""
        if session not in self._first_events:
            events = await self._ledger.events(session, limit=1)
            self._first_events[session] = (events[0].position, events[0].time) if events else (_AFTER_ALL, _AFTER_ALL)
        return self._first_events[session]


def _describe_redacted(session: str, seqs: Collection[int]) -> str:
    names = f"event{'s' if len(seqs) > 1 else ''} {', '.join(map(str, seqs))}"
    return f"session {session}: {names} redacted after this anchor; what is left of the text is not proven by it"


# A session whose events are missing is reported by the verification of its chain.
_AFTER_ALL = 1 << 62


async def first_event_hash(ledger: Ledger) -> str:
    """The identity of a ledger: the hash of its first event; empty if it has none."""
    events = await ledger.events(limit=1)
    return events[0].hash.hex() if events else ""

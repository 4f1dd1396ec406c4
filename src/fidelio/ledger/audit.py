"""Verification of sessions, read page by page: the hash chain, and everything else that is stored and quoted.

The chain proves the events. What reports, lists and the inbox show comes from other tables too, and those are not chained: the
row and the record of a session, its requests, documents and blobs. Each of them follows from the events, and is compared with
what follows from them. The records are folded again by the package that owns the kind (`Ledger.record_type`). What events of
earlier versions do not say is reported as not covered, never as broken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.errors import ChainBroken, LedgerDamaged, RecordMismatch, SessionNotFound
from fidelio.ledger.chain import ChainVerdict, ChainVerifier, hash_session_id
from fidelio.ledger.contract import Ledger
from fidelio.ledger.encoding import DELETED, REDACTED, SESSION_DELETED
from fidelio.ledger.marks import OPEN, Mark, describe_row, find_differences, read_mark
from fidelio.ledger.model import NO_RECORD, Document, Event, Request, Session
from fidelio.ledger.paging import PAGE, all_pages, event_pages
from fidelio.ledger.redaction import read_left, view_events

# While another process writes, the tables are read at different moments: what differs is then compared again.
MAX_ATTEMPTS = 5
MAX_LISTED = 20
# What the fold of a record raises for a body of another shape than the present code writes.
_NOT_FOLDABLE = (KeyError, TypeError, ValueError, AttributeError)
_ERASED_TEXTS: tuple[object, ...] = ("", (), {}, {})


async def verify_session(ledger: Ledger, session: str, *, heads: Iterable[bytes] = ()) -> ChainVerdict:
    """Verify the chain of a session and compare the other tables with it; raise `ChainBroken` at an invalid event.

    The chain must contain the head in the row of the session and the `heads` that were recorded earlier.
    """
    expected_heads = list(heads)
    for _ in range(MAX_ATTEMPTS):
        row = await ledger.session(session)
        verdict = await _Audit(ledger, row).run(expected_heads)
        if verdict.holds or (await ledger.session(session)).updated_at == row.updated_at:
            break
    return verdict


async def verify_all(ledger: Ledger) -> AsyncIterator[ChainVerdict | ChainBroken]:
    """Yield a result for every session; a broken chain does not stop the iteration."""
    async for session in iter_sessions(ledger):
        try:
            yield await verify_session(ledger, session.id)
        except ChainBroken as error:
            yield error
        except (LedgerDamaged, SessionNotFound) as error:
            # Not found by the id in its own row: an index is damaged. One damaged session does not hide the others.
            yield ChainBroken(session.id, 1, f"or a later one cannot be read ({error.sentence})")
    for stray in await ledger.stray_sessions():
        yield await _describe_stray(ledger, stray)


async def _describe_stray(ledger: Ledger, session: str) -> ChainVerdict:
    """The verdict of a session without a row: it cannot be verified, and no list shows it."""
    requests = (await ledger.requests(session=session, state=None, limit=MAX_LISTED)).items
    names = f" ({', '.join(request.id for request in requests)})" if requests else ""
    problem = f"it has no row, but events, documents or requests{names} belong to it"
    return ChainVerdict(session, 0, hash_session_id(session), 0, problems=(problem,))


async def iter_sessions(ledger: Ledger) -> AsyncIterator[Session]:
    """Iterate over all sessions, including deleted sessions: their bodies are erased, but their chains stay verifiable.

    No flag of a row decides here: whoever can set it could hide the session.
    """
    async for session in all_pages(ledger.all_sessions):
        yield session


async def check_request(ledger: Ledger, request: Request) -> None:
    """Compare a request with its events; raise `RecordMismatch`. Cheap enough for every use.

    Events of earlier versions say nothing about it.
    """
    marks = await _list_marks(ledger, request)
    if not marks:
        if await _is_deleted(ledger, request.session):
            _check_erased(await ledger.request(request.id))
        elif not await _begins_unmarked(ledger, request.session):
            raise RecordMismatch(f"No event opened request {request.id}.", request.session)
        return
    row = describe_row(request)
    if not (differences := find_differences(marks[-1], row)):
        return
    was_so = any(not find_differences(mark, row) for mark in marks[:-1])
    if was_so and (current := await ledger.request(request.id)) != request:
        # It was closed between the reading of its row and that of its events.
        await check_request(ledger, current)
    else:
        raise RecordMismatch(f"{_describe_request(request.id, differences)}.", request.session)


async def _is_deleted(ledger: Ledger, session: str) -> bool:
    """Whether the events of a session end with its deletion, which has erased what they said of its requests."""
    try:
        row = await ledger.session(session)
    except SessionNotFound:
        return False
    last = await ledger.events(session, after=max(0, row.last_seq - 1), limit=1)
    return bool(last) and last[0].type == SESSION_DELETED and not last[0].redacted


def _check_erased(request: Request) -> None:
    for remains in _find_remains(request):
        raise RecordMismatch(f"Request {request.id} {remains} although the session was deleted.", request.session)


def _find_remains(request: Request) -> Iterable[str]:
    """What a deletion would have ended or erased."""
    if request.state == "open":
        yield "is open"
    if (request.question, request.options, request.detail, request.answer) != _ERASED_TEXTS:
        yield "has texts"


async def _list_marks(ledger: Ledger, request: Request) -> list[Mark]:
    """What the row of a request had to say after each of the events that name it."""
    marks: list[Mark] = []
    for event in await ledger.events_naming(request.session, request.id):
        for entry in _iter_entries(event):
            if entry["id"] == request.id:
                marks.append(_add_entry(marks[-1] if marks else {}, entry))
    return marks


async def _begins_unmarked(ledger: Ledger, session: str) -> bool:
    """Whether a session begins with events of an earlier version. Only its beginning counts: see `_Audit.unmarked`."""
    try:
        first = await ledger.events(session, limit=1)
    except SessionNotFound:
        return False
    if not first or not first[0].redacted:
        return not first or not _is_marked(read_mark(first[0]))
    left, named = await read_left(ledger, session)
    return 1 in named and not _is_marked(left.get(1))


def _is_marked(mark: Mark | None) -> bool:
    return mark is not None and "v" in mark


def _iter_entries(event: Event) -> Iterable[Mark]:
    """The descriptions of requests in an event, or what a redaction has left of them."""
    mark = read_mark(event) or {}
    yield from mark.get("requests", ())
    for left in mark.get("left", {}).values():
        yield from left.get("requests", ())


def _add_entry(expected: Mark, entry: Mark) -> Mark:
    return {**(OPEN if "opened" in entry and not expected else {}), **expected, **entry}


def _describe_request(request: str, differences: list[str]) -> str:
    return f"Request {request} differs from its event in: {', '.join(differences)}"


class _Audit:
    """The verification of a session: reads its events, then compares the rest with what they say."""

    def __init__(self, ledger: Ledger, row: Session) -> None:
        self.ledger, self.row = ledger, row
        self.problems: list[str] = []
        self.not_covered: list[str] = []
        self.left: dict[int, Mark] = {}
        self.named: set[int] = set()
        self.blank: list[int] = []
        self.requests: dict[str, Mark] = {}
        self.documents: Counter[tuple[str, str, str | None]] = Counter()
        self.blobs: set[str] = set()
        self.session_mark: Mark | None = None
        # Events of an earlier version, which has only written before this one: the session begins with them.
        self.unmarked = 0
        self.is_marked = False
        self.row_seq = 0
        self.last_type = ""
        self.reason: object = None
        self.records = ledger.record_type(row.kind)
        self.record: Any = None if self.records is None else self.records.read(NO_RECORD)
        self.stored: Any = None
        self.stored_seq: int | None = None
        self.record_at_row: Any = None

    async def run(self, heads: list[bytes]) -> ChainVerdict:
        verifier = ChainVerifier(self.row.id)
        self.left, self.named = await read_left(self.ledger, self.row.id)
        self._read_stored()
        async for page in event_pages(self.ledger, self.row.id):
            for event in page:
                verifier.step(event)
                self._add(event)
        # Another process may append while the pages are read: the head read first may lie before the end of the chain.
        verdict = verifier.finish([self.row.head, *heads] if self.row.last_seq else heads)
        await self._compare_end(verdict)
        await self._compare()
        return replace(verdict, problems=tuple(self.problems), not_covered=tuple(self.not_covered))

    def _read_stored(self) -> None:
        if self.records is None or not self.row.has_record:
            return
        try:
            self.stored = self.records.read(self.row.raw)
            self.stored_seq = self.records.seq(self.stored)
        except (LedgerDamaged, msgspec.MsgspecError) as error:
            self.problems.append(f"its record cannot be read: {error}")

    @property
    def is_deleted(self) -> bool:
        return self.last_type == SESSION_DELETED

    # The events

    def _add(self, event: Event) -> None:
        mark = (self.left.get(event.seq) if event.redacted else read_mark(event)) or {}
        is_forged = event.redacted and event.seq not in self.named
        # A body that was blanked must not pass as an old event, for which less is demanded.
        if not is_forged:
            self._count_mark(event, mark)
        self._add_mark(event, mark)
        if is_forged and len(self.blank) < MAX_LISTED:
            self.blank.append(event.seq)
        self.last_type = "" if event.redacted else event.type
        self.reason = event.body.get("reason") if self.is_deleted else None
        self._fold(event)
        if event.seq == self.stored_seq:
            self.record_at_row = self.record

    def _count_mark(self, event: Event, mark: Mark) -> None:
        """Count the events of an earlier version, which cannot follow an event with a mark."""
        if _is_marked(mark):
            self.is_marked = True
        elif not self.is_marked:
            self.unmarked += 1
        elif len(self.problems) < MAX_LISTED:
            self.problems.append(f"event {event.seq} has no mark of the ledger, but an event before it has one")

    def _add_mark(self, event: Event, mark: Mark) -> None:
        if event.seq == 1:
            self.session_mark = mark.get("session")
        self.row_seq = event.seq if "row" in mark else self.row_seq
        self.blobs.update(mark.get("blobs", ()))
        self.documents.update((space, path, digest) for space, path, digest in mark.get("documents", ()))
        for entry in mark.get("requests", ()):
            self.requests[entry["id"]] = _add_entry(self.requests.get(entry["id"], {}), entry)

    def _fold(self, event: Event) -> None:
        if self.records is None or self.record is None:
            return
        try:
            self.record = self.records.fold(self.record, view_events([event], self.left))
        except _NOT_FOLDABLE as error:
            self.record = None
            self._report(f"event {event.seq} ({event.type}) cannot be folded into its record: {error!r:.100}")

    def _report(self, sentence: str) -> None:
        """Report what differs: as not covered if the session begins with events of an earlier version."""
        (self.not_covered if self.unmarked else self.problems).append(sentence)

    async def _compare_end(self, verdict: ChainVerdict) -> None:
        """Demand that the row names the last event.

        While another process appends, the pages end with the row of the first or of the second read, or between them.
        """
        now = await self.ledger.session(self.row.id)
        first, last = (self.row.last_seq, self.row.head), (now.last_seq, now.head)
        is_between = self.row.last_seq < verdict.events < now.last_seq
        if (verdict.events, verdict.head) not in (first, last) and not is_between:
            self.problems.append(f"its row says that it ends with event {now.last_seq}, but its last event is {verdict.events}")

    # What is stored beside them

    async def _compare(self) -> None:
        rows = [row async for row in all_pages(partial(self.ledger.requests, session=self.row.id, state=None))]
        await (self._compare_deleted(rows) if self.is_deleted else self._compare_existing(rows))
        if await self.ledger.is_listed(self.row.id) is self.is_deleted:
            said = "contain it although it was deleted" if self.is_deleted else "leave it out although it was not deleted"
            self.problems.append(f"lists {said}: its row was changed")

    async def _compare_existing(self, rows: list[Request]) -> None:
        self.problems += [f"event {seq} has lost its body, and no {REDACTED} event names it" for seq in self.blank]
        self._compare_session()
        self._compare_record()
        self._compare_requests(rows)
        await self._compare_documents()
        await self._check_blobs()

    async def _compare_deleted(self, rows: list[Request]) -> None:
        row = self.row
        if (row.status, row.name, row.has_record) != (DELETED, None, False):
            self.problems.append(f"its events end with {SESSION_DELETED}, but its row has the status {row.status!r}")
        if row.reason != self.reason:
            self.problems.append(f"its row has the reason {row.reason!r:.80}, but its {SESSION_DELETED} event says another")
        for request in rows:
            problems = (
                f"request {request.id} {remains} although the session was deleted" for remains in _find_remains(request)
            )
            self.problems += problems

    def _compare_session(self) -> None:
        row, mark = self.row, self.session_mark
        if row.status == DELETED:
            self.problems.append(f"its row says that it was deleted, but no {SESSION_DELETED} event does")
        if mark is None:
            return
        found = {"kind": row.kind, "namespace": row.namespace, "name": row.name, "parent": row.parent, "at": row.created_at}
        for key in find_differences(mark, found):
            name = "time of its start" if key == "at" else key
            self.problems.append(f"its row has the {name} {found[key]!r}, but its first event says {mark[key]!r}")

    def _compare_record(self) -> None:
        if self.session_mark is not None and self.session_mark["kind"] != self.row.kind:
            return
        if self.records is None or self.record is None:
            if self.row.has_record and self.records is None:
                self.not_covered.append(f"its record is of kind {self.row.kind!r}, which nobody here can fold")
            return
        if self.stored is None:
            if self.row_seq and not self.row.has_record:
                self.problems.append(f"its record is missing, which event {self.row_seq} wrote")
            return
        if self.stored_seq is not None and self.stored_seq < self.row_seq:
            self.problems.append(f"its record is that of event {self.stored_seq}, but event {self.row_seq} wrote a newer one")
        self._compare_fold(self.record if self.stored_seq is None else self.record_at_row)

    def _compare_fold(self, folded: Any) -> None:
        """Compare the stored record, and the status that follows from it, with the record folded from the events."""
        if folded is None or self.records is None:
            self._report(f"its record is that of event {self.stored_seq}, which does not exist")
            return
        fields = self.stored.__struct_fields__
        if names := [name for name in fields if getattr(self.stored, name) != getattr(folded, name)]:
            self._report(f"its record differs from its events in: {', '.join(names)}")
        status, reason = self.records.status(folded)
        if (self.row.status, self.row.reason) != (status, reason or ""):
            self._report(f"its row has the status {self.row.status!r} ({self.row.reason!r:.80}), but its events say {status!r}")

    def _compare_requests(self, rows: list[Request]) -> None:
        missing = set(self.requests) - {row.id for row in rows}
        self.problems += [f"request {request} is missing, which its events mention" for request in sorted(missing)]
        old = 0
        for row in rows:
            expected = self.requests.get(row.id)
            if expected is None and self.unmarked:
                old += 1
            elif expected is None:
                self.problems.append(f"request {row.id} is in the inbox, but no event opened it")
            elif differences := find_differences(expected, describe_row(row)):
                self.problems.append(_describe_request(row.id, differences))
        if old:
            self.not_covered.append(f"{old} request{'s were' if old > 1 else ' was'} written by an earlier version")

    async def _compare_documents(self) -> None:
        stored: Counter[tuple[str, str, str | None]] = Counter()
        last: Document | None = None
        while page := await self.ledger.versions_of(self.row.id, after=last, limit=PAGE):
            stored.update((document.space, document.path, document.digest) for document in page)
            last = page[-1]
        self.blobs.update(digest for _, _, digest in stored if digest is not None)
        for space, path, _ in self.documents - stored:
            self.problems.append(f"a version of document {space}/{path} is missing or was changed")
        for space, path, _ in stored - self.documents:
            self._report(f"no event wrote a stored version of document {space}/{path}")

    async def _check_blobs(self) -> None:
        for digest in sorted(self.blobs):
            try:
                if await self.ledger.blob(digest) is None:
                    self.problems.append(f"the content with the digest {digest[:16]}… is missing")
            except RecordMismatch as error:
                self.problems.append(error.sentence)

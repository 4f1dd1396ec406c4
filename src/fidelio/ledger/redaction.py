"""Redaction of events together with everything that was derived from them: the record and the requests of the session.

A redacted body is erased, but the session must stay where it is, and its record must still follow from its events. So
`event.redacted` keeps, for each erased event that is folded into the record, what is not text: numbers, and the keys that the
package of the kind names as structure (ids, states, names of the definition). Record and requests are then computed again from
what is left, and `fidelio.ledger.audit` computes the same.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from fidelio.errors import BadRecord, Command, Hint, LedgerBusy, LedgerDamaged, SequenceConflict
from fidelio.ledger.contract import Ledger
from fidelio.ledger.encoding import REDACTED, build_redaction
from fidelio.ledger.marks import OPEN, VERSION, Mark, describe_row, read_mark
from fidelio.ledger.model import Change, CommitResult, Event, Request, Session
from fidelio.ledger.paging import all_events, all_pages

if TYPE_CHECKING:
    from fidelio.ledger.unit_of_work import RecordType

MAX_ATTEMPTS = 32
# The key of the mark of `event.redacted` with what is left of the events, by sequence number.
LEFT = "left"
# Suffixes of keys in the structure of a kind.
BY_ID, COUNTED = ".*", "[]"
# The key of the body of a first event with the digest of the definition: content of files, and no text of an agent or a person.
_SNAPSHOT = "snapshot"
_OPEN_KEYS = ("id", "opened", "question", "options", "rest")
_CLOSE_KEYS = ("id", *OPEN)


class EventView(msgspec.Struct, frozen=True):
    """An event as the fold of a record reads it: not committed yet, or with what a redaction has left of it."""

    seq: int
    type: str
    time: int
    body: dict[str, Any]


class Redaction(msgspec.Struct, frozen=True):
    """A redaction to carry out: its change, the events to erase, and the requests as they are after it.

    `remaining` are the digests of the blobs that what is left of the events still refers to.
    """

    change: Change
    seqs: tuple[int, ...]
    requests: tuple[Request, ...]
    remaining: tuple[str, ...] = ()


def view_events(events: Iterable[Event], left: Mapping[int, Mark]) -> list[EventView | Event]:
    """The events as they are folded. Of a redacted event without a rest only its number counts."""
    return [_view(event, left.get(event.seq, {})) if event.redacted else event for event in events]


def _view(event: Event, left: Mark) -> EventView:
    body = left.get("body")
    return EventView(event.seq, event.type if body is not None else REDACTED, event.time, body or {})


def blank_body(value: Any, structure: Collection[str], *, keep: bool = False) -> Any:
    """A copy of a value without text: only the keys in `structure` keep theirs; other lists and objects become empty.

    A key with `BY_ID` has an object whose keys are ids, one with `COUNTED` lists of which only the length is kept.
    """
    if isinstance(value, dict):
        return {key: _blank_item(key, item, structure) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [blank_body(item, structure, keep=keep) for item in value]
    return "" if isinstance(value, str) and not keep else value


def _blank_item(key: str, item: Any, structure: Collection[str]) -> Any:
    if key in structure:
        return blank_body(item, structure, keep=True)
    if f"{key}{BY_ID}" in structure and isinstance(item, dict):
        return {name: blank_body(child, structure, keep=True) for name, child in item.items()}
    if f"{key}{COUNTED}" in structure:
        return _blank_counted(item)
    return type(item)() if isinstance(item, dict | list) else blank_body(item, structure)


def _blank_counted(value: Any) -> Any:
    """A list, or an object of lists, with as many items as before and without their contents."""
    if isinstance(value, dict):
        return {name: _blank_counted(items) for name, items in value.items()}
    return [""] * len(value) if isinstance(value, list | tuple) else None


def read_seqs(event: Event) -> set[int]:
    """The numbers of the earlier events that an event `event.redacted` names."""
    try:
        seqs = event.body.get("seqs")
    except LedgerDamaged:
        # A body that was changed names nothing; the verification of the chain says so.
        return set()
    return {seq for seq in seqs if isinstance(seq, int) and seq < event.seq} if isinstance(seqs, list) else set()


async def read_left(ledger: Ledger, session: str) -> tuple[dict[int, Mark], set[int]]:
    """What earlier redactions of a session have left of its events, and the numbers of all events that they name."""
    left: dict[int, Mark] = {}
    named: set[int] = set()
    for event in await all_events(ledger, session, types=(REDACTED,)):
        named |= read_seqs(event)
        rest = (read_mark(event) or {}).get(LEFT, {})
        left |= {int(seq): mark for seq, mark in rest.items() if int(seq) not in left}
    return left, named


async def read_body(ledger: Ledger, event: Event) -> dict[str, Any]:
    """The body of an event, or what a redaction has left of it."""
    if not event.redacted:
        return event.body
    left, _ = await read_left(ledger, event.session)
    return dict(left.get(event.seq, {}).get("body", {}))


async def redact_events(
    ledger: Ledger, carry_out: Callable[[Redaction], Awaitable[CommitResult]], session: str, seqs: Sequence[int], **why: str
) -> CommitResult:
    """Plan a redaction and carry it out; plan it again if the session has changed meanwhile. `why`: actor and reason."""
    change = build_redaction(session, seqs, **why)
    for _ in range(MAX_ATTEMPTS):
        try:
            return await carry_out(await _plan(ledger, change, tuple(sorted(set(seqs)))))
        except SequenceConflict:
            continue
    raise LedgerBusy(f"Session {session} is being changed all the time.", remedy="Nothing was redacted. Try again.")


async def _plan(ledger: Ledger, change: Change, seqs: tuple[int, ...]) -> Redaction:
    row = await ledger.session(change.session)
    records = ledger.record_type(row.kind)
    events = await all_events(ledger, row.id)
    erased = [event for event in events if event.seq in set(seqs) and event.type != REDACTED and not event.redacted]
    rows = [request async for request in all_pages(partial(ledger.requests, session=row.id, state=None))]
    after, entries = _blank_requests(rows, events, erased)
    left = {event.seq: _describe_left(event, records, entries.get(event.seq, [])) for event in erased}
    change = replace(change, expect=row.last_seq, marks={LEFT: {str(seq): mark for seq, mark in left.items()}})
    before, _ = await read_left(ledger, row.id)
    remaining = tuple(sorted({digest for mark in left.values() for digest in mark.get("blobs", ())}))
    return Redaction(_add_record(change, row, records, events, {**left, **before}), seqs, after, remaining)


def _describe_left(event: Event, records: RecordType[Any] | None, requests: list[Mark]) -> Mark:
    mark = read_mark(event)
    rest: Mark = {key: mark[key] for key in ("session", "documents") if key in mark} if mark else {}
    # Only an event that is folded has keys that its package has chosen: another one may have any, and a key may be a text.
    is_folded = records is not None and event.type in records.folded
    body = {"body": _blank_event(event, records.structure)} if records is not None and is_folded else {}
    digest = body.get("body", {}).get(_SNAPSHOT)
    blobs = {"blobs": [digest]} if digest else {}
    return {**({"v": VERSION} if mark else {}), **rest, **body, **blobs, **({"requests": requests} if requests else {})}


def _blank_event(event: Event, structure: Collection[str]) -> dict[str, Any]:
    """What is left of the body of an event. The definition of a session stays: it could not go on without it."""
    body = event.body
    digest = body.get(_SNAPSHOT)
    is_digest = event.seq == 1 and isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest) is not None
    return {**blank_body(body, structure), **({_SNAPSHOT: digest} if is_digest else {})}


def _add_record(
    change: Change, row: Session, records: RecordType[Any] | None, events: list[Event], left: Mapping[int, Mark]
) -> Change:
    if not row.has_record:
        return change
    if records is None:
        raise BadRecord(
            f"The record of session {row.id} cannot be computed again: nobody knows the kind {row.kind!r} here.",
            remedy=Hint("Use ", Command("sessions"), " of an installation that has it."),
        )
    erased = [replace(event, raw=None, salt=None) if event.seq in left else event for event in events]
    notice = EventView(row.last_seq + 1, REDACTED, row.updated_at, {})
    record = records.fold(records.read("{}"), [*view_events(erased, left), notice])
    status, reason = records.status(record)
    return replace(change, record=record, status=status, reason=reason)


def _blank_requests(
    rows: Sequence[Request], events: Sequence[Event], erased: Sequence[Event]
) -> tuple[tuple[Request, ...], dict[int, list[Mark]]]:
    """The requests of the erased events, without their texts, and what is left of the marks of each."""
    after: dict[str, Request] = {}
    entries: dict[int, list[Mark]] = {}
    for before in rows:
        row = before
        naming = [event.seq for event in events if event.raw is not None and row.id in event.raw and event.type != REDACTED]
        for event in erased:
            opens, closes = _find_roles(event, row, naming)
            if opens or closes:
                row = after[row.id] = _blank_row(row, question=opens, answer=closes)
                described = describe_row(row)
                keys = (*(_OPEN_KEYS if opens else ()), *(_CLOSE_KEYS if closes else ()))
                entries.setdefault(event.seq, []).append({key: described[key] for key in keys})
    return tuple(after.values()), entries


async def find_request_events(ledger: Ledger, row: Request) -> tuple[set[int], set[int]]:
    """The numbers of the events with which the question, and with which the answer, of a request is erased."""
    found = [event for event in await ledger.events_naming(row.session, row.id) if event.type != REDACTED]
    roles = {event.seq: _find_roles(event, row, [each.seq for each in found]) for event in found}
    return {seq for seq, (opens, _) in roles.items() if opens}, {seq for seq, (_, closes) in roles.items() if closes}


def _find_roles(event: Event, row: Request, naming: Sequence[int]) -> tuple[bool, bool]:
    """Whether a request begins, and whether it ends, with an event. In earlier versions the first that names it begins it."""
    mark = read_mark(event)
    if mark is None:
        return event.seq in naming[:1], event.seq in naming[1:2]
    entries = [entry for entry in mark.get("requests", ()) if entry["id"] == row.id]
    return any("opened" in entry for entry in entries), any("state" in entry for entry in entries)


def _blank_row(row: Request, *, question: bool, answer: bool) -> Request:
    row = _blank_question(row) if question else row
    return replace(row, answer={}) if answer else row


def _blank_question(row: Request) -> Request:
    if row.state == "open":
        raise BadRecord(
            f"Request {row.id} of this event still waits for an answer, and nobody could answer it without its text.",
            remedy=Hint("Answer it, or end its session: ", Command("sessions", "--end", row.session), "."),
        )
    return replace(row, question="", options=(), subject="", detail={})

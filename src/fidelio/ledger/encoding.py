"""Encoding of a `Change` and the rows that follow from it, the same for both databases.

JSON is encoded deterministically, and values that JSON cannot represent exactly are refused. A deleted session keeps its events
with their digests, so its chain still verifies; bodies, requests, documents and jobs are erased. Its last event says who
deleted it and why. Its id stays reserved, its name becomes available, and every further change is refused.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from fidelio.errors import BadRecord, RecordMismatch, SessionNotFound
from fidelio.ids import new_id
from fidelio.ledger.chain import SALT_BYTES, hash_body, hash_event, hash_session_id
from fidelio.ledger.checks import check_change, check_label, check_redaction, check_session_id, check_text
from fidelio.ledger.marks import add_marks
from fidelio.ledger.model import (
    NO_RECORD,
    Change,
    CloseRequest,
    Event,
    Json,
    NewEvent,
    NewJob,
    NewSession,
    OpenRequest,
    PutDocument,
    Session,
)

DELETED = "deleted"
SESSION_DELETED = "session.deleted"
REDACTED = "event.redacted"
# Sessions per transaction: a large batch shares a single sync, but other writers wait until it ends.
LARGEST_BATCH = 1000


def build_deletions(
    sessions: Sequence[str], *, actor: str, reason: str, expect: Mapping[str, int] | None
) -> Iterator[list[Change]]:
    """Build the last changes of sessions that are erased, in batches. `expect` has their expected sequence numbers.

    Raises `BadRecord` for an invalid value before anything is erased.
    """
    check_label(actor, "actor")
    check_text(reason, "reason")
    for session in sessions:
        check_session_id(session)
    event, seqs = NewEvent(type=SESSION_DELETED, body={"reason": reason}, actor=actor), expect or {}
    changes = [
        Change(session=session, expect=seqs.get(session), events=(event,), status=DELETED, reason=reason, record={})
        for session in dict.fromkeys(sessions)
    ]
    return (changes[start : start + LARGEST_BATCH] for start in range(0, len(changes), LARGEST_BATCH))


def build_redaction(session: str, seqs: Sequence[int], *, actor: str, reason: str) -> Change:
    """Build the change that says what was redacted and by whom."""
    check_redaction(seqs, actor, reason)
    event = NewEvent(type=REDACTED, body={"seqs": sorted(set(seqs)), "reason": reason}, actor=actor)
    return Change(session=session, events=(event,))


def require_redactable(session: str, seq: int, event_type: str | None) -> None:
    """Raise `BadRecord` for an event that cannot be redacted; without a type there is no such event."""
    if event_type is None:
        raise BadRecord(f"Session {session} has no event {seq}.", remedy="Pass sequence numbers of existing events.")
    if event_type == REDACTED:
        raise BadRecord(
            f"Event {seq} of {session} says what was redacted and by whom; it cannot be redacted.", remedy="Leave it out."
        )


def session_deleted(session: str) -> SessionNotFound:
    return SessionNotFound(f"Session {session} was deleted.", remedy="Start another session.")


INITIAL_STATUS = "active"


def create_row(session: str, create: NewSession, *, now: int) -> Session:
    """Create the row of a session without events; its head is the hash of its id."""
    return Session(
        id=session,
        kind=create.kind,
        namespace=create.namespace,
        name=create.name,
        parent=create.parent,
        status=INITIAL_STATUS,
        reason="",
        raw=NO_RECORD,
        last_seq=0,
        head=hash_session_id(session),
        created_at=now,
        updated_at=now,
    )


def advance_row(session: Session, change: Change, events: Sequence[Event], *, raw: str | None, now: int) -> Session:
    """Compute the row after `change`; `raw` is the text of the new record, None if it stays.

    A new status without a reason clears the reason, which explained the previous status.
    """
    status, reason = (session.status, session.reason) if change.status is None else (change.status, "")
    return Session(
        session.id,
        session.kind,
        session.namespace,
        session.name,
        session.parent,
        status,
        reason if change.reason is None else change.reason,
        session.raw if raw is None else raw,
        events[-1].seq if events else session.last_seq,
        events[-1].hash if events else session.head,
        session.created_at,
        now,
    )


def changes_row(change: Change) -> bool:
    """Whether the row of the session changes; a change that only queues a job or stores a blob does not change it."""
    return bool(change.events) or change.status is not None or change.reason is not None or change.record is not None


MAX_TEXT = 1 << 20
MAX_DEPTH = 64
# A run of 19 digits may be an integer that does not fit into 64 bits. All digits are mapped to 0 to find such a run.
_LONG_NUMBER = b"0" * 19
_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_INTEGERS = range(-(1 << 63), 1 << 64)

_encoder = msgspec.json.Encoder(order="deterministic")
_object_decoder = msgspec.json.Decoder(dict[str, Any])
_list_decoder = msgspec.json.Decoder(list[dict[str, Any]])
_any_decoder = msgspec.json.Decoder()


def encode(value: Json | Sequence[Json], what: str) -> str:
    """Encode `value` as JSON text. `what` names the value in error messages."""
    try:
        raw = _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        _check(value, what, 0)
        raise BadRecord(f"The {what} cannot be written as JSON: {error}.") from error
    if not _round_trips(raw, value):
        _check(value, what, 0)
    return _check_length(raw.decode(), what)


def encode_record(record: Json | msgspec.Struct) -> str:
    """Encode the record of a session. A struct is not validated: it is folded from events that were validated."""
    if not isinstance(record, msgspec.Struct):
        return encode(record, "record")
    try:
        return _check_length(_encoder.encode(record).decode(), "record")
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadRecord(f"The record cannot be written as JSON: {error}.") from error


def _check_length(text: str, what: str) -> str:
    if len(text) > MAX_TEXT:
        raise BadRecord(
            f"The {what} has {len(text)} characters; the limit is {MAX_TEXT}.",
            remedy="Put large content into a blob and refer to it by its digest.",
        )
    return text


def decode(raw: str) -> dict[str, Any]:
    return _object_decoder.decode(raw)


def decode_list(raw: str) -> tuple[dict[str, Any], ...]:
    return tuple(_list_decoder.decode(raw))


def _round_trips(raw: bytes, value: object) -> bool:
    """Fast test that `raw` decodes to `value` and may be neither too deep nor hold an oversized integer."""
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH or _LONG_NUMBER in raw.translate(_DIGITS_TO_ZERO):
        return False
    return bool(_any_decoder.decode(raw) == value)


def _check(value: object, what: str, depth: int) -> None:
    # Scalars inside a list or object are tested inline: a call for each of them would dominate the cost.
    if type(value) is dict:
        _check_keys(value, what)
        items: Iterable[object] = value.values()
    elif type(value) is list or type(value) is tuple:
        items = value
    else:
        _check_scalar(value, what)
        return
    if depth >= MAX_DEPTH:
        raise BadRecord(f"The {what} is nested deeper than {MAX_DEPTH} levels.", remedy="Flatten it.")
    for item in items:
        kind = type(item)
        if not (kind is str or kind is bool or item is None or (kind is int and item in _INTEGERS)):
            _check(item, what, depth + 1)


def _check_keys(value: dict[object, object], what: str) -> None:
    for key in value:
        if type(key) is not str:
            raise BadRecord(f"The {what} has the key {key!r}; JSON keys are text.", remedy="Use strings as keys.")


def _check_scalar(value: object, what: str) -> None:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return
    if (kind is int and value in _INTEGERS) or (type(value) is float and math.isfinite(value)):
        return
    raise BadRecord(
        f"The {what} holds {value!r:.80}, which JSON cannot represent exactly.",
        remedy="Use only text, finite numbers of up to 64 bits, true, false, null, lists and objects.",
    )


EVENT_PREFIX = "e_"
ID_BYTES = 12


class EncodedEvent(NamedTuple):
    """An encoded event without sequence number, position and hash."""

    id: str
    type: str
    actor: str
    time: int
    raw: str
    salt: bytes
    digest: bytes
    blobs: tuple[str, ...]


def encode_event(event: NewEvent, *, now: int, raw: str | None = None) -> EncodedEvent:
    """Encode an event; `raw` is its encoded body with its mark."""
    raw = encode(event.body, f"body of {event.type}") if raw is None else raw
    random = os.urandom(SALT_BYTES + ID_BYTES)
    salt = random[:SALT_BYTES]
    return EncodedEvent(
        event.id or EVENT_PREFIX + random[SALT_BYTES:].hex(),
        event.type,
        event.actor,
        now if event.time is None else event.time,
        raw,
        salt,
        hash_body(salt, raw),
        event.blobs,
    )


def chain_event(encoded: EncodedEvent, *, session: str, seq: int, previous: bytes, position: int) -> Event:
    """Complete an encoded event: number `seq` of its session, chained to the hash `previous`."""
    return Event(
        position,
        session,
        seq,
        encoded.id,
        encoded.type,
        encoded.actor,
        encoded.time,
        encoded.raw,
        encoded.salt,
        encoded.digest,
        hash_event(previous, session, seq, encoded.id, encoded.type, encoded.actor, encoded.time, encoded.digest),
    )


JOB_PREFIX = "j_"
SMALL_CHANGE_ITEMS = 64
SMALL_CHANGE_BYTES = 256 * 1024
_ALL_NONE = (None,) * 6


class EncodedRequest(msgspec.Struct, frozen=True):
    """A request to open or close with its JSON as text. `payload` holds the options or the answer; closing has no `detail`."""

    request: OpenRequest | CloseRequest
    payload: str
    detail: str = ""


class EncodedJob(msgspec.Struct, frozen=True):
    """A job with its id and the text of its payload."""

    job: NewJob
    id: str
    payload: str


class EncodedDocument(msgspec.Struct, frozen=True):
    """A document with the digest of its text, None where the version deletes it."""

    document: PutDocument
    digest: str | None


class EncodedChange(NamedTuple):
    """A change with everything that a database stores for it. `blobs` maps digests to contents, including document texts.

    `appends_only` marks the most frequent kind of change: events without blobs, and nothing else.
    """

    change: Change
    now: int
    events: tuple[EncodedEvent, ...]
    record: str | None
    requests: tuple[EncodedRequest, ...] = ()
    documents: tuple[EncodedDocument, ...] = ()
    jobs: tuple[EncodedJob, ...] = ()
    blobs: Mapping[str, bytes] = MappingProxyType({})
    appends_only: bool = False

    @property
    def is_small(self) -> bool:
        """Whether applying it takes well under a millisecond, so that it may run on the event loop."""
        items = len(self.events) + len(self.requests) + len(self.documents) + len(self.jobs)
        size = sum([len(encoded.raw) for encoded in self.events]) + sum(map(len, self.blobs.values()))
        return items <= SMALL_CHANGE_ITEMS and size <= SMALL_CHANGE_BYTES


def encode_change(change: Change, *, now: int) -> EncodedChange:
    """Validate and encode a change; raise `BadRecord` for a value that cannot be stored."""
    check_change(change)
    time = now if change.time is None else change.time
    documents = tuple([_encode_document(document) for document in change.documents])
    bodies = [encode(event.body, f"body of {event.type}") for event in change.events]
    marked = add_marks(change, bodies, [document.digest for document in documents], now=now)
    events = tuple([encode_event(event, now=time, raw=raw) for event, raw in zip(change.events, marked, strict=True)])
    record = None if change.record is None else encode_record(change.record)
    if not (change.requests or change.documents or change.jobs or change.blobs):
        return EncodedChange(change, now, events, record, appends_only=_appends_only(change))
    return EncodedChange(
        change,
        now,
        events,
        record,
        requests=tuple([_encode_request(request) for request in change.requests]),
        documents=documents,
        jobs=tuple([_encode_job(job) for job in change.jobs]),
        blobs=_collect_blobs(change),
    )


def _appends_only(change: Change) -> bool:
    others = (change.create, change.lease, change.settle, change.status, change.reason, change.record)
    return bool(change.events) and others == _ALL_NONE and not any(event.blobs for event in change.events)


def hash_blob(content: bytes) -> str:
    """Compute the digest under which a blob is stored: its SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


def check_content(digest: str, content: bytes | None) -> bytes | None:
    """Return the content of a blob; raise `RecordMismatch` if it is not the content that was stored under its digest."""
    if content is not None and hash_blob(content) != digest:
        raise RecordMismatch(f"The content of blob {digest[:16]}… differs from its digest.")
    return content


def _encode_request(request: OpenRequest | CloseRequest) -> EncodedRequest:
    if isinstance(request, CloseRequest):
        return EncodedRequest(request, encode(request.answer, f"answer to {request.id}"))
    return EncodedRequest(
        request, encode(list(request.options), f"options of {request.id}"), encode(request.detail, f"detail of {request.id}")
    )


def _encode_document(document: PutDocument) -> EncodedDocument:
    return EncodedDocument(document, None if document.text is None else hash_blob(document.text.encode()))


def _encode_job(job: NewJob) -> EncodedJob:
    return EncodedJob(job, job.id or new_id(JOB_PREFIX), encode(job.payload, f"payload of {job.kind}"))


def _collect_blobs(change: Change) -> dict[str, bytes]:
    texts: Iterable[bytes] = (document.text.encode() for document in change.documents if document.text is not None)
    return {hash_blob(content): content for content in (*change.blobs, *texts)}

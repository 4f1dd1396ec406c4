"""Encoding of a `Change` into the values that both databases store.

Encoding needs nothing from the database, so the caller does it before the transaction begins. Only `chain_event` runs inside
the transaction, because the hash of an event depends on the event before it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from fidelio.ids import new_id
from fidelio.ledger.chain import SALT_BYTES, hash_body, hash_event
from fidelio.ledger.checks import check_change
from fidelio.ledger.codec import encode, encode_record
from fidelio.ledger.model import Change, CloseRequest, Event, NewEvent, NewJob, OpenRequest, PutDocument

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


def encode_event(event: NewEvent, *, now: int) -> EncodedEvent:
    raw = encode(event.body, f"body of {event.type}")
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
    events = tuple([encode_event(event, now=time) for event in change.events])
    record = None if change.record is None else encode_record(change.record)
    if not (change.requests or change.documents or change.jobs or change.blobs):
        return EncodedChange(change, now, events, record, appends_only=_appends_only(change))
    return EncodedChange(
        change,
        now,
        events,
        record,
        requests=tuple([_encode_request(request) for request in change.requests]),
        documents=tuple([_encode_document(document) for document in change.documents]),
        jobs=tuple([_encode_job(job) for job in change.jobs]),
        blobs=_collect_blobs(change),
    )


def _appends_only(change: Change) -> bool:
    others = (change.create, change.lease, change.settle, change.status, change.reason, change.record)
    return bool(change.events) and others == _ALL_NONE and not any(event.blobs for event in change.events)


def hash_blob(content: bytes) -> str:
    """Compute the digest under which a blob is stored: its SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


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

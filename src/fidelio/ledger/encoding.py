"""From a fact to an event: everything between `NewEvent` and the row that is stored.

In two steps, because they happen in two places. A draft needs nothing but the fact, so the caller makes it before it queues for
the database. The seal needs the event before it, so only the transaction that appends can set it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from fidelio.ids import new_id
from fidelio.ledger.chain import SALT_BYTES, body_digest, event_hash
from fidelio.ledger.checks import check_change
from fidelio.ledger.codec import encode, encode_record
from fidelio.ledger.model import Change, CloseRequest, Event, NewEvent, NewJob, OpenRequest, PutDocument

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


JOB_PREFIX = "j_"
FEW_PARTS = 64
SMALL_SIZE = 256 * 1024
_NOTHING = (None,) * 6


class PreparedRequest(msgspec.Struct, frozen=True):
    """A request to open or to close, with its JSON as text: `first` is the options or the answer, `detail` only for opening."""

    request: OpenRequest | CloseRequest
    first: str
    detail: str = ""


class PreparedJob(msgspec.Struct, frozen=True):
    """A job with its id and the text of its payload."""

    job: NewJob
    id: str
    payload: str


class PreparedDocument(msgspec.Struct, frozen=True):
    """A document with the digest of its text, None where the version deletes it."""

    document: PutDocument
    digest: str | None


class Prepared(NamedTuple):
    """Everything a database needs to carry out `change`. `blobs` includes the texts of the documents, by digest.

    `appends_only` marks the most frequent change of all: events without blobs, and nothing else.
    """

    change: Change
    now: int
    drafts: tuple[Draft, ...]
    record: str | None
    requests: tuple[PreparedRequest, ...] = ()
    documents: tuple[PreparedDocument, ...] = ()
    jobs: tuple[PreparedJob, ...] = ()
    blobs: Mapping[str, bytes] = MappingProxyType({})
    appends_only: bool = False

    @property
    def is_small(self) -> bool:
        """Whether carrying it out takes a moment and no more."""
        parts = len(self.drafts) + len(self.requests) + len(self.documents) + len(self.jobs)
        size = sum([len(draft.raw) for draft in self.drafts]) + sum(map(len, self.blobs.values()))
        return parts <= FEW_PARTS and size <= SMALL_SIZE


def prepare(change: Change, *, now: int) -> Prepared:
    """Raises `BadRecord` when the change holds something that cannot be kept."""
    check_change(change)
    moment = now if change.time is None else change.time
    drafts = tuple([draft(event, now=moment) for event in change.events])
    record = None if change.record is None else encode_record(change.record)
    if not (change.requests or change.documents or change.jobs or change.blobs):
        return Prepared(change, now, drafts, record, appends_only=_appends_only(change))
    return Prepared(
        change,
        now,
        drafts,
        record,
        requests=tuple([_request(request) for request in change.requests]),
        documents=tuple([_document(document) for document in change.documents]),
        jobs=tuple([_job(job) for job in change.jobs]),
        blobs=_blobs(change),
    )


def _appends_only(change: Change) -> bool:
    others = (change.create, change.lease, change.settle, change.status, change.reason, change.record)
    return bool(change.events) and others == _NOTHING and not any(event.blobs for event in change.events)


def digest_of(content: bytes) -> str:
    """The name of a blob: its SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


def _request(request: OpenRequest | CloseRequest) -> PreparedRequest:
    if isinstance(request, CloseRequest):
        return PreparedRequest(request, encode(request.answer, f"answer to {request.id}"))
    return PreparedRequest(
        request, encode(list(request.options), f"options of {request.id}"), encode(request.detail, f"detail of {request.id}")
    )


def _document(document: PutDocument) -> PreparedDocument:
    return PreparedDocument(document, None if document.text is None else digest_of(document.text.encode()))


def _job(job: NewJob) -> PreparedJob:
    return PreparedJob(job, job.id or new_id(JOB_PREFIX), encode(job.payload, f"payload of {job.kind}"))


def _blobs(change: Change) -> dict[str, bytes]:
    texts: Iterable[bytes] = (document.text.encode() for document in change.documents if document.text is not None)
    return {digest_of(content): content for content in (*change.blobs, *texts)}

"""A change made ready to be bound to statements: checked, encoded, digested, with every id it will have.

All of this happens in the caller, before it queues for the database: the transaction that holds the only write lock must do
nothing that could have been done outside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from fidelio.ids import new_id
from fidelio.ledger.checks import check_change
from fidelio.ledger.codec import encode, encode_record
from fidelio.ledger.model import Change, CloseRequest, NewJob, OpenRequest, PutDocument
from fidelio.ledger.sealing import Draft, draft

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

"""What the ledger takes and gives: plain frozen values, the same for every database.

They are structs and not dataclasses because every call of every session makes a dozen of them, and because a dataclass costs
more than half a millisecond to define, which an agent that starts a server waits for.

A `Change` is everything one transaction does to one session. There is no other way to write, so an event, the status it leads
to, the question it opens and the work it makes due are durable together or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec

T = TypeVar("T")

Json = Mapping[str, Any]
# The text of the record of a session that has none.
NO_RECORD = "{}"
SessionKind = Literal["workflow", "agent", "runtime"]
RequestState = Literal["open", "answered", "dismissed", "expired"]
JobState = Literal["queued", "dead"]
Relation = Literal["parent", "children", "siblings"]


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """The birth of a session. The name, where there is one, is unique in its namespace."""

    kind: SessionKind
    namespace: str = ""
    name: str | None = None
    parent: str | None = None


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A fact to be recorded. `blobs` are digests the body refers to: they live as long as something refers to them."""

    type: str
    body: Json = msgspec.field(default_factory=dict)
    actor: str = "system"
    id: str | None = None
    time: int | None = None
    blobs: tuple[str, ...] = ()


class OpenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Something that now waits for a person. `key` is what it is about: to ask twice in a session is refused."""

    id: str
    kind: str
    key: str
    question: str
    options: tuple[Json, ...] = ()
    subject: str = ""
    detail: Json = msgspec.field(default_factory=dict)
    expires_at: int | None = None


class CloseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The one answer, dismissal or expiry of an open request. A request that is not open refuses it with `RequestClosed`."""

    id: str
    state: Literal["answered", "dismissed", "expired"] = "answered"
    answer: Json = msgspec.field(default_factory=dict)
    by: str = ""
    channel: str = ""
    assurance: str = ""


class PutDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A new version of a text. `expect` is the version it is based on (0: it must not exist yet, None: whatever is there)."""

    space: str
    path: str
    text: str | None
    author: str = "system"
    expect: int | None = None


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """Work that becomes due, of a session that exists.

    With a `key`, at most one such job of the session and kind waits: a second is dropped, the earlier due time wins. A job that
    somebody works on no longer waits, so work that turns up meanwhile is not lost.
    """

    kind: str
    session: str
    due: int = 0
    payload: Json = msgspec.field(default_factory=dict)
    key: str | None = None
    id: str | None = None


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to carry out one job. `fence` grows with every claim of the session, so a late writer is known.

    From `expires` on somebody else may claim the session. Until somebody does, the lease is still good: a worker that was
    merely slow keeps its work. `attempt` counts from 1.
    """

    job: str
    kind: str
    session: str
    payload: Json
    attempt: int
    fence: int
    owner: str
    expires: int


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The job is finished and forgotten."""


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """The job is due again at `due`."""

    due: int
    error: str


class Dead(msgspec.Struct, frozen=True, kw_only=True):
    """The job has failed for good; it stays to be looked at."""

    error: str


Settlement = Done | Retry | Dead


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one transaction does to one session.

    `expect` is the sequence number the decision was based on (None: append whatever came before). `time` is when its events
    happened, where that is not the moment of the commit. `lease` must still be held when the transaction commits; `settle` ends
    its job in the same transaction. A `record` that is a struct is written as it is: what it is made of stands in events.
    """

    session: str
    expect: int | None = None
    create: NewSession | None = None
    events: tuple[NewEvent, ...] = ()
    time: int | None = None
    status: str | None = None
    reason: str | None = None
    record: Json | msgspec.Struct | None = None
    requests: tuple[OpenRequest | CloseRequest, ...] = ()
    documents: tuple[PutDocument, ...] = ()
    blobs: tuple[bytes, ...] = ()
    jobs: tuple[NewJob, ...] = ()
    lease: Lease | None = None
    settle: Settlement | None = None


class Event(msgspec.Struct, frozen=True):
    """A recorded fact. `raw` is the text whose digest the chain commits to; None once it was redacted."""

    position: int
    session: str
    seq: int
    id: str
    type: str
    actor: str
    time: int
    raw: str | None
    salt: bytes | None
    digest: bytes
    hash: bytes

    @property
    def redacted(self) -> bool:
        return self.raw is None

    @property
    def body(self) -> dict[str, Any]:
        return {} if self.raw is None else msgspec.json.decode(self.raw, type=dict[str, Any])


class Session(msgspec.Struct, frozen=True):
    """The current row of a session: a projection of its events. `raw` is the text of its record."""

    id: str
    kind: SessionKind
    namespace: str
    name: str | None
    parent: str | None
    status: str
    reason: str
    raw: str
    last_seq: int
    head: bytes
    created_at: int
    updated_at: int

    @property
    def record(self) -> dict[str, Any]:
        return msgspec.json.decode(self.raw, type=dict[str, Any])

    @property
    def has_record(self) -> bool:
        return self.raw != NO_RECORD


class Request(msgspec.Struct, frozen=True):
    """Something that waits, or waited, for a person."""

    id: str
    session: str
    kind: str
    key: str
    question: str
    options: tuple[dict[str, Any], ...]
    subject: str
    detail: dict[str, Any]
    state: RequestState
    answer: dict[str, Any]
    answered_by: str
    channel: str
    assurance: str
    opened_at: int
    closed_at: int | None
    expires_at: int | None


class Document(msgspec.Struct, frozen=True):
    """One version of a document. `text` is None for a version that deletes it."""

    space: str
    path: str
    version: int
    digest: str | None
    author: str
    time: int
    text: str | None


class Job(msgspec.Struct, frozen=True):
    """A job as an operator sees it. The lease is that of whoever works on it: whose it is, until when, and its number."""

    id: str
    kind: str
    session: str
    payload: dict[str, Any]
    due: int
    attempts: int
    state: JobState
    error: str
    lease_owner: str
    lease_expires: int
    lease_fence: int


class Committed(msgspec.Struct, frozen=True):
    """What one change became: its events with their numbers, and the session after it."""

    session: Session
    events: tuple[Event, ...]


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A bounded answer. `next` is the cursor of the following page, None at the end."""

    items: tuple[T, ...]
    next: str | None


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for. Words are all required; a quoted phrase stays together; a trailing `*` matches beginnings."""

    text: str
    session: str | None = None
    relation: Relation | None = None
    kind: SessionKind | None = None
    types: tuple[str, ...] = ()
    source: Literal["event", "document"] | None = None
    limit: int = 20


class FieldMatch(msgspec.Struct, frozen=True):
    """Why a hit is a hit: the words that stand in this field."""

    field: str
    terms: tuple[str, ...]
    excerpt: str


class Hit(msgspec.Struct, frozen=True):
    """One find. Events are named by session and seq, documents by space, path and version (and the session that wrote it)."""

    source: Literal["event", "document"]
    session: str | None
    seq: int | None
    type: str
    space: str | None
    path: str | None
    version: int | None
    time: int
    score: float
    matches: tuple[FieldMatch, ...]

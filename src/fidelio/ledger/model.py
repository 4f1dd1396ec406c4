"""Values that the ledger takes and returns, the same for both databases.

They are msgspec structs because every call creates about a dozen of them, and because defining a dataclass takes more than half
a millisecond at import, which delays the start of a server.

A `Change` is the only input for writes: an event, the resulting status, the request it opens and the job it queues are stored
in a single transaction or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec

from fidelio.errors.ledger import damaged_value

T = TypeVar("T")

Json = Mapping[str, Any]
# The stored text of the record of a session without a record.
NO_RECORD = "{}"
# The key of an event body that only the ledger writes (`fidelio.ledger.marks`).
MARK = "ledger"
SessionKind = Literal["workflow", "agent", "runtime"]
RequestState = Literal["open", "answered", "dismissed", "expired"]
JobState = Literal["queued", "dead"]
Relation = Literal["parent", "children", "siblings"]


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session to be created. Its name, if any, is unique in its namespace."""

    kind: SessionKind
    namespace: str = ""
    name: str | None = None
    parent: str | None = None


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event to append. `blobs` are the digests its body refers to; a blob is deleted with its last reference."""

    type: str
    body: Json = msgspec.field(default_factory=dict)
    actor: str = "system"
    id: str | None = None
    time: int | None = None
    blobs: tuple[str, ...] = ()


class OpenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A new request. `key` identifies its subject: a second request with that key in a session is refused."""

    id: str
    kind: str
    key: str
    question: str
    options: tuple[Json, ...] = ()
    subject: str = ""
    detail: Json = msgspec.field(default_factory=dict)
    expires_at: int | None = None


class CloseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, dismissal or expiry of an open request; `RequestClosed` is raised if it is no longer open."""

    id: str
    state: Literal["answered", "dismissed", "expired"] = "answered"
    answer: Json = msgspec.field(default_factory=dict)
    by: str = ""
    channel: str = ""
    assurance: str = ""


class PutDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A new version of a document. `expect` is the version it is based on (0: none exists yet, None: no check)."""

    space: str
    path: str
    text: str | None
    author: str = "system"
    expect: int | None = None


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to be queued for an existing session.

    With a `key`, at most one job of that session, kind and key waits: another is merged into it, with the earlier due time. A
    job that has been claimed does not count as waiting, so a job that is queued meanwhile is not lost.
    """

    kind: str
    session: str
    due: int = 0
    payload: Json = msgspec.field(default_factory=dict)
    key: str | None = None
    id: str | None = None


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to run a claimed job. `fence` is a fencing token: it grows with every claim in the session.

    After `expires` another worker may claim the session. Until that happens the lease stays valid, so a slow worker can still
    commit. `attempt` counts from 1. `error` is that of the attempt before.
    """

    job: str
    kind: str
    session: str
    payload: Json
    attempt: int
    fence: int
    owner: str
    expires: int
    error: str = ""


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """Settlement of a job that succeeded; it is deleted."""


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """Settlement of a job that failed and is due again at `due`."""

    due: int
    error: str


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """Settlement of a job that will not be retried; it stays stored with its error."""

    error: str


Settlement = Completion | Retry | DeadLetter


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a transaction changes in a session.

    `expect` is the sequence number the decision was based on (None: no check). `time` is the time of its events if it differs
    from the time of the commit. `lease` must still be valid when the transaction commits; `settle` ends its job in the same
    transaction. A `record` that is a struct is not validated, because it is folded from validated events. `marks` are added to
    the mark of the last event, by the ledger only.
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
    marks: Json = msgspec.field(default_factory=dict)


class Event(msgspec.Struct, frozen=True):
    """A stored event. `raw` is the JSON text of its body, whose digest the chain covers; None after redaction."""

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
        return {} if self.raw is None else decode_body(self.raw)


def _decode(raw: str, what: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise damaged_value(what, error) from error


def decode_body(raw: str) -> dict[str, Any]:
    """Decode the body of an event, without what the ledger added to it."""
    body = _decode(raw, "body of an event")
    body.pop(MARK, None)
    return body


class Session(msgspec.Struct, frozen=True):
    """The current row of a session, a projection of its events. `raw` is the JSON text of its record."""

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
        return _decode(self.raw, "record of a session")

    @property
    def has_record(self) -> bool:
        return self.raw != NO_RECORD


class SessionHead(msgspec.Struct, frozen=True):
    """The last event of a session: its number and its hash; without events 0 and the hash of the session id."""

    session: str
    seq: int
    hash: bytes


class Request(msgspec.Struct, frozen=True):
    """A stored request, open or closed."""

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
    """A version of a document. `text` is None for a version that deletes it."""

    space: str
    path: str
    version: int
    digest: str | None
    author: str
    time: int
    text: str | None


class Job(msgspec.Struct, frozen=True):
    """A stored job with its current lease: owner, expiry and fencing token."""

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


class CommitResult(msgspec.Struct, frozen=True):
    """Result of a committed change: its events with their numbers, and the session after it."""

    session: Session
    events: tuple[Event, ...]


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list. `next` is the cursor of the following page, None at the end."""

    items: tuple[T, ...]
    next: str | None


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A search query. All words must match; a quoted phrase matches as a sequence; a trailing `*` matches a prefix."""

    text: str
    session: str | None = None
    relation: Relation | None = None
    kind: SessionKind | None = None
    types: tuple[str, ...] = ()
    source: Literal["event", "document"] | None = None
    limit: int = 20


class FieldMatch(msgspec.Struct, frozen=True):
    """The terms of the query that a field contains, with an excerpt."""

    field: str
    terms: tuple[str, ...]
    excerpt: str


class Hit(msgspec.Struct, frozen=True):
    """A search hit: an event (session, seq) or a document (space, path, version and the session that wrote it)."""

    source: Literal["event", "document"]
    session: str | None
    seq: int | None
    type: str
    space: str | None
    path: str | None
    version: int | None
    time: int
    rank: float = msgspec.field(name="score")
    matches: tuple[FieldMatch, ...]


class RankQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query whose hits are ordered by BM25: any word of `terms`, and any of `phrases`, may match.

    `sessions` and `parents` limit it to these sessions and to the children of these; a row of either passes. `without` leaves
    sessions out, and `record` keeps only sessions whose record has these values. The type of a document is `document`. The best
    events of the `favoured` sessions are hits in addition to `limit`, however many others are better. `texts` are further texts
    by name that are ranked with what is stored: the content of a file, for example. `is_quick`: look at fewer rows.
    """

    terms: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    sessions: tuple[str, ...] | None = None
    parents: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    favoured: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    record: Mapping[str, str] = {}
    types: tuple[str, ...] = ()
    source: Literal["event", "document"] | None = None
    texts: Mapping[str, str] = {}
    is_quick: bool = False
    limit: int = 20


class RankedHit(msgspec.Struct, frozen=True, kw_only=True):
    """A hit of a `RankQuery`: an event, a document, or a text of the query, whose name is the `path`.

    `relevance` is its BM25 score. `words` and `phrases` are those that occur in it. `raw` is the JSON text of the event's body,
    or the text itself.
    """

    source: Literal["event", "document", "text"]
    relevance: float
    words: tuple[str, ...]
    phrases: tuple[str, ...]
    excerpt: str
    raw: str
    type: str
    session: str | None = None
    seq: int | None = None
    event: str | None = None
    time: int = 0
    space: str | None = None
    path: str | None = None
    version: int | None = None

    @property
    def body(self) -> dict[str, Any]:
        """The body of the event; empty for a document or a text."""
        return decode_body(self.raw) if self.source == "event" else {}

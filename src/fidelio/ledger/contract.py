"""Abstract base class of the ledger, implemented for SQLite and PostgreSQL.

`tests/ledger/contract/` tests this contract against both databases. No awaited write returns before it is durable. An error
means that nothing of the call was stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fidelio.ledger.model import (
    Change,
    CommitResult,
    Document,
    Event,
    Hit,
    Job,
    Lease,
    NewEvent,
    Page,
    Query,
    RankedHit,
    RankQuery,
    Request,
    RequestState,
    Session,
    SessionHead,
    SessionKind,
    Settlement,
)

if TYPE_CHECKING:
    from fidelio.ledger.unit_of_work import RecordType


class Ledger(ABC):
    """Store of sessions, events, requests, documents and jobs, with full-text search.

    `record_type` is a port: it maps a kind of session to its records, which only packages above know; `app` binds it. The
    ledger needs it to verify a record and to compute it again after a redaction.
    """

    record_type: Callable[[SessionKind], RecordType[Any] | None] = staticmethod(lambda _kind: None)

    # Writing

    @abstractmethod
    async def commit(self, *changes: Change) -> tuple[CommitResult, ...]:
        """Apply all changes in a single transaction, or none of them."""

    async def append(self, session: str, *events: NewEvent, expect: int | None = None) -> CommitResult:
        (result,) = await self.commit(Change(session=session, events=events, expect=expect))
        return result

    @abstractmethod
    async def redact(self, session: str, seqs: Sequence[int], *, actor: str, reason: str) -> CommitResult:
        """Erase bodies, salts, search rows and unreferenced blobs of events; append `event.redacted`. The chain stays valid.

        What was derived from the bodies is erased too: the texts of the requests that the events opened or closed, and what
        they brought into the record. An event of a request that is still open is refused.
        """

    @abstractmethod
    async def erase(self, sessions: Sequence[str], *, actor: str, reason: str, expect: Mapping[str, int] | None = None) -> None:
        """Erase whole sessions: bodies of events, requests, documents and jobs, up to 1,000 sessions per transaction.

        The last event of each is `session.deleted`, and its status is "deleted". The chain stays valid, the id stays reserved,
        the name becomes available, and no change is accepted any more. A session that is already deleted is skipped; an
        unknown session raises `SessionNotFound`. `expect` maps sessions to expected sequence numbers; another number raises
        `SequenceConflict`.
        """

    @abstractmethod
    async def erasure_pending(self) -> bool:
        """Whether bytes of erased texts are still in the files because a reader holds them; they are erased after it ends.

        PostgreSQL erases them by its own VACUUM and never says so.
        """

    # Reading

    @abstractmethod
    async def session(self, session: str) -> Session:
        """The session with this id; raises `SessionNotFound`."""

    @abstractmethod
    async def session_by_name(self, name: str, *, namespace: str = "") -> Session:
        """The session with this name; raises `SessionNotFound`."""

    @abstractmethod
    async def sessions(  # noqa: PLR0913  # each filter is an argument
        self,
        *,
        kind: SessionKind | None = None,
        status: str | None = None,
        namespace: str | None = None,
        parent: str | None = None,
        name: str | None = None,
        without: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
        oldest_first: bool = False,
    ) -> Page[Session]:
        """List sessions, newest first unless `oldest_first`; deleted sessions only with `status="deleted"`.

        A page costs the same at any depth. `without`: not those whose namespace begins with these letters and hyphens.
        """

    @abstractmethod
    async def all_sessions(self, *, cursor: str | None = None, limit: int = 50) -> Page[Session]:
        """List every row of sessions, newest first, whatever its status and flags: nothing can be hidden from verification."""

    @abstractmethod
    async def sessions_by_id(self, beginning: str, *, limit: int = 50) -> tuple[Session, ...]:
        """List the rows of sessions whose id begins with a text, by id, whatever their status; uses an index."""

    @abstractmethod
    async def sessions_by_name(self, namespace: str, ending: str, *, after: str = "", limit: int = 50) -> tuple[Session, ...]:
        """List the sessions of a namespace whose name ends with a text, by name. `after` is the last name of the previous page.

        Only matching rows are read, and an index of the names of the namespace.
        """

    @abstractmethod
    async def heads(self, *, cursor: str | None = None, limit: int = 50) -> Page[SessionHead]:
        """List the heads of the sessions of `all_sessions`, read from their events and not from their rows."""

    @abstractmethod
    async def stray_sessions(self) -> tuple[str, ...]:
        """List the first 1,000 ids that events, requests or documents name as their session although it has no row."""

    @abstractmethod
    async def is_listed(self, session: str) -> bool:
        """Whether `sessions` lists a session without a filter; raises `SessionNotFound`."""

    @abstractmethod
    async def count_sessions(
        self, *, kind: SessionKind | None = None, status: str | None = None, namespace: str | None = None
    ) -> int:
        """Count the sessions that `sessions` would list, using an index."""

    @abstractmethod
    async def events(
        self, session: str | None = None, *, after: int = 0, types: Sequence[str] = (), limit: int = 1000
    ) -> tuple[Event, ...]:
        """List events in order. `after` is a sequence number if a session is passed, otherwise a global position."""

    @abstractmethod
    async def events_naming(self, session: str, text: str) -> tuple[Event, ...]:
        """List the first 1,000 events of a session whose stored bodies contain a text, such as the id of a request."""

    @abstractmethod
    def follow(self, session: str | None = None, *, after: int = 0, types: Sequence[str] = ()) -> AsyncIterator[Event]:
        """Yield the stored events, then every event as it is appended by this or another process; never ends."""

    @abstractmethod
    async def wait(self, *, after: int, timeout: float) -> int:
        """Return the newest global position as soon as it exceeds `after`, at the latest after `timeout` seconds."""

    @abstractmethod
    async def request(self, request: str) -> Request:
        """The request with this id; raises `RequestNotFound`."""

    @abstractmethod
    async def requests(
        self,
        *,
        session: str | None = None,
        state: RequestState | None = "open",
        key: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Request]:
        """List requests, oldest first."""

    @abstractmethod
    async def count_requests(self, *, session: str | None = None, state: RequestState | None = "open") -> int:
        """Count the requests that `requests` would list, using an index."""

    @abstractmethod
    async def document(self, space: str, path: str, *, version: int | None = None) -> Document | None:
        """A version of a document with its text: the newest if `version` is None."""

    @abstractmethod
    async def documents(self, space: str, *, prefix: str = "", cursor: str | None = None, limit: int = 50) -> Page[Document]:
        """List the newest versions below a path prefix in path order, without texts and without deleted documents."""

    @abstractmethod
    async def versions(self, space: str, path: str, *, limit: int = 50) -> tuple[Document, ...]:
        """List the versions of a document, newest first, without texts."""

    @abstractmethod
    async def versions_of(self, session: str, *, after: Document | None = None, limit: int = 1000) -> tuple[Document, ...]:
        """List the document versions that a session wrote, by path and version, without texts."""

    @abstractmethod
    async def blob(self, digest: str) -> bytes | None:
        """The content with this SHA-256 digest in hex, or None. Raises `RecordMismatch` if the content was changed."""

    @abstractmethod
    async def search(self, query: Query) -> tuple[Hit, ...]:
        """Find the newest matches and rank them; each has the fields and words that matched."""

    @abstractmethod
    async def rank(self, query: RankQuery) -> tuple[RankedHit, ...]:
        """Find what contains any of the words, ordered by BM25 (`fidelio.ledger.ranking`), then newest first."""

    @abstractmethod
    async def update_index(self) -> int:
        """Bring the search index up to date and return the position of the last indexed event."""

    # Jobs. Only for the job runner (`fidelio.ledger.jobs`); services use its `register` and `enqueue`.

    @abstractmethod
    async def claim(self, owner: str, kinds: Sequence[str], *, lease_ms: int, session: str | None = None) -> Lease | None:
        """Claim the next due job of these kinds in a session without an active lease; None if there is none.

        `session` limits the claim to a session.
        """

    @abstractmethod
    async def heartbeat(self, lease: Lease, *, lease_ms: int) -> Lease:
        """Renew a lease that is still held; raises `StaleLease`."""

    @abstractmethod
    async def settle(self, lease: Lease, settlement: Settlement) -> None:
        """End a lease without any other change; raises `StaleLease`."""

    @abstractmethod
    async def next_due(self, kinds: Sequence[str]) -> int | None:
        """The time at which the next job of these kinds can be claimed; None if there is none."""

    @abstractmethod
    async def jobs(
        self,
        *,
        session: str | None = None,
        kind: str | None = None,
        dead: bool = False,
        after: Job | None = None,
        limit: int = 50,
    ) -> tuple[Job, ...]:
        """List queued jobs in due order, or the dead letters. `after` is the last job of the previous page."""

    # Maintenance

    @abstractmethod
    async def check(self) -> None:
        """Run the integrity check of the database; raises `LedgerDamaged`."""

    @abstractmethod
    async def close(self) -> None:
        """Finish all accepted work and close the database. A second call does nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

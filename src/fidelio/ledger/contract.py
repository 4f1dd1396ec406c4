"""The contract every ledger keeps, whichever database is under it.

`tests/ledger/contract/` is this page as tests; it runs unchanged against SQLite and PostgreSQL. Nothing is acknowledged (no
awaited call returns) before it is durable. An error means that nothing of the call was kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from fidelio.ledger.model import (
    Change,
    Committed,
    Document,
    Event,
    Hit,
    Job,
    Lease,
    NewEvent,
    Page,
    Query,
    Request,
    RequestState,
    Session,
    SessionKind,
    Settlement,
)


class Ledger(ABC):
    """Sessions, events, requests, documents, jobs and search over one database."""

    # Writing

    @abstractmethod
    async def commit(self, *changes: Change) -> tuple[Committed, ...]:
        """Carries out all changes in one transaction, or none of them."""

    async def append(self, session: str, *events: NewEvent, expect: int | None = None) -> Committed:
        (done,) = await self.commit(Change(session=session, events=events, expect=expect))
        return done

    @abstractmethod
    async def redact(self, session: str, seqs: Sequence[int], *, actor: str, reason: str) -> Committed:
        """Erases bodies, salts, search rows and blobs nobody else refers to; appends `event.redacted`. The chain holds."""

    @abstractmethod
    async def erase(self, sessions: Sequence[str], *, actor: str, reason: str, expect: Mapping[str, int] | None = None) -> None:
        """Deletes whole sessions, a thousand in one transaction: what they said and were asked, wrote and still had to do.

        Each ends with `session.deleted` and the status "deleted"; its chain holds, its id stays taken, its name is free, and
        nothing can be written to it again. One that was deleted before stays as it is; raises `SessionNotFound`. `expect` are
        the sequence numbers that the decision was based on, by session: raises `SequenceConflict` where one has moved on.
        """

    # Reading

    @abstractmethod
    async def session(self, session: str) -> Session:
        """The session with this id; raises `SessionNotFound`."""

    @abstractmethod
    async def named(self, name: str, *, namespace: str = "") -> Session:
        """The session with this name; raises `SessionNotFound`."""

    @abstractmethod
    async def sessions(
        self,
        *,
        kind: SessionKind | None = None,
        status: str | None = None,
        namespace: str | None = None,
        parent: str | None = None,
        name: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Session]:
        """Newest first; deleted ones only where `status` asks for them. The cost of a page does not grow with their number."""

    @abstractmethod
    async def count_sessions(
        self, *, kind: SessionKind | None = None, status: str | None = None, namespace: str | None = None
    ) -> int:
        """How many `sessions` would list, counted in an index."""

    @abstractmethod
    async def events(
        self, session: str | None = None, *, after: int = 0, types: Sequence[str] = (), limit: int = 1000
    ) -> tuple[Event, ...]:
        """In order. `after` is a seq with a session and a global position without one."""

    @abstractmethod
    def follow(self, session: str | None = None, *, after: int = 0, types: Sequence[str] = ()) -> AsyncIterator[Event]:
        """`events` that never ends: yields what is there, then what is appended, by this process or another."""

    @abstractmethod
    async def wait(self, *, after: int, timeout: float) -> int:
        """Returns the newest global position as soon as it exceeds `after`, or at the latest after `timeout` seconds."""

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
        """Oldest first: the order in which people should be served."""

    @abstractmethod
    async def document(self, space: str, path: str, *, version: int | None = None) -> Document | None:
        """The newest (or the given) version, with its text."""

    @abstractmethod
    async def documents(self, space: str, *, prefix: str = "", cursor: str | None = None, limit: int = 50) -> Page[Document]:
        """The newest versions below a path prefix in path order, deleted ones left out, without texts."""

    @abstractmethod
    async def versions(self, space: str, path: str, *, limit: int = 50) -> tuple[Document, ...]:
        """The history of one document, newest first, without texts."""

    @abstractmethod
    async def blob(self, digest: str) -> bytes | None:
        """Content by its SHA-256 in hex."""

    @abstractmethod
    async def search(self, query: Query) -> tuple[Hit, ...]:
        """Newest matches, ranked, each with the fields and words that made it a hit."""

    @abstractmethod
    async def indexed(self) -> int:
        """Brings the search index up to date and returns the position it has reached."""

    # Due work. Private to the embedded job runner (`fidelio.ledger.jobs`): services use `register` and `enqueue`.

    @abstractmethod
    async def claim(self, owner: str, kinds: Sequence[str], *, lease_ms: int) -> Lease | None:
        """The next due job of these kinds whose session nobody else holds, or None."""

    @abstractmethod
    async def heartbeat(self, lease: Lease, *, lease_ms: int) -> Lease:
        """Prolongs a lease that is still held; raises `StaleLease`."""

    @abstractmethod
    async def settle(self, lease: Lease, how: Settlement) -> None:
        """Ends the lease without any other change; raises `StaleLease`."""

    @abstractmethod
    async def next_due(self, kinds: Sequence[str]) -> int | None:
        """When the next job of these kinds can be claimed, to sleep until then; None when there is none."""

    @abstractmethod
    async def jobs(self, *, session: str | None = None, dead: bool = False, limit: int = 50) -> tuple[Job, ...]:
        """Queued jobs in due order, or the dead letters, for operators."""

    # Life

    @abstractmethod
    async def check(self) -> None:
        """Asks the database to check itself as a whole; raises `LedgerDamaged`."""

    @abstractmethod
    async def close(self) -> None:
        """Finishes what was accepted and lets go of the database. Closing twice is fine."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

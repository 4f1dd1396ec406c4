"""Reads over the ledger that every surface shares: list, find, follow, search, verify and erase.

Surfaces know of the ledger only its model. What they may do with it beyond the services is here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from fidelio.errors import ChainBroken, SessionNotFound
from fidelio.ledger import Ledger
from fidelio.ledger.audit import iter_sessions, verify_all, verify_session
from fidelio.ledger.chain import ChainVerdict
from fidelio.ledger.model import Event, Hit, Page, Query, Session, SessionKind
from fidelio.ledger.paging import event_pages

if TYPE_CHECKING:
    from fidelio.workflows.report import Report

__all__ = ["ChainVerdict", "Records"]


class Records:
    """Sessions and their events, whatever their kind."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def find(self, text: str) -> Session:
        """The session with this id, else the one with this name; raises `SessionNotFound`."""
        try:
            return await self._ledger.session(text)
        except SessionNotFound:
            return await self._ledger.session_by_name(text)

    async def sessions(
        self, *, kind: SessionKind | None = None, status: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[Session]:
        return await self._ledger.sessions(kind=kind, status=status, cursor=cursor, limit=limit)

    async def events(
        self, session: str | None = None, *, after: int = 0, types: Sequence[str] = (), limit: int = 1000
    ) -> tuple[Event, ...]:
        """One page, in order."""
        return await self._ledger.events(session, after=after, types=types, limit=limit)

    async def all_events(self, session: str, *, types: Sequence[str] = ()) -> AsyncIterator[Event]:
        """All events of a session, read page by page."""
        async for page in event_pages(self._ledger, session, types=types):
            for event in page:
                yield event

    def follow(self, session: str | None = None, *, after: int = 0, types: Sequence[str] = ()) -> AsyncIterator[Event]:
        """Events as they are appended, without end."""
        return self._ledger.follow(session, after=after, types=types)

    async def wait(self, *, after: int, timeout: float) -> int:
        """The newest global position, as soon as it exceeds `after` or `timeout` seconds have passed."""
        return await self._ledger.wait(after=after, timeout=timeout)

    async def search(self, query: Query) -> tuple[Hit, ...]:
        """The best matches, from an index that is brought up to date first."""
        await self._ledger.update_index()
        return await self._ledger.search(query)

    async def verify(self, session: str, *, heads: Collection[bytes] = ()) -> ChainVerdict:
        """Raises `ChainBroken` where the record is not what was acknowledged."""
        return await verify_session(self._ledger, session, heads=heads)

    async def verify_all(self, heads: Sequence[bytes] = ()) -> tuple[list[ChainVerdict | ChainBroken], list[bytes]]:
        """The verdict on every session, and those of `heads` that no session contains."""
        verdicts = [verdict async for verdict in verify_all(self._ledger)]
        missing = set(heads)
        async for session in iter_sessions(self._ledger):
            if not missing:
                break
            async for event in self.all_events(session.id):
                missing.discard(event.hash)
        return verdicts, [head for head in heads if head in missing]

    async def erase(self, sessions: Sequence[str], *, actor: str, reason: str, expect: Mapping[str, int] | None = None) -> None:
        await self._ledger.erase(sessions, actor=actor, reason=reason, expect=expect)

    async def check(self) -> None:
        """Lets the database check itself as a whole; raises `LedgerDamaged`."""
        await self._ledger.check()

    async def report(self, session: str) -> Report:
        """What the definition of a workflow session asked, what happened, and where they differ."""
        from fidelio.workflows.report import report_session

        return await report_session(self._ledger, session)

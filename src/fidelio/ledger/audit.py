"""Checking a whole session, or all of them, against the chain: page by page, whichever database holds them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from functools import partial

from fidelio.errors import ChainBroken
from fidelio.ledger.chain import Verdict, Walker
from fidelio.ledger.contract import Ledger
from fidelio.ledger.model import Session
from fidelio.ledger.paging import all_pages, event_pages
from fidelio.ledger.projection import DELETED


async def verify_session(ledger: Ledger, session: str, *, heads: Iterable[bytes] = ()) -> Verdict:
    """Raises `ChainBroken` at the first event that does not hold, or when the session's row promises more than there is."""
    row = await ledger.session(session)
    walker = Walker(session)
    async for page in event_pages(ledger, session):
        for event in page:
            walker.step(event)
    # Somebody may append while we read, so the row from before must be on the way, not at the end.
    return walker.finish([row.head, *heads] if row.last_seq else heads)


async def verify_all(ledger: Ledger) -> AsyncIterator[Verdict | ChainBroken]:
    """One result per session; a broken one does not hide the others."""
    async for session in every_session(ledger):
        try:
            yield await verify_session(ledger, session.id)
        except ChainBroken as broken:
            yield broken


async def every_session(ledger: Ledger) -> AsyncIterator[Session]:
    """Deleted ones too: what they said is gone, but their chains must still hold."""
    for status in (None, DELETED):
        async for session in all_pages(partial(ledger.sessions, status=status)):
            yield session

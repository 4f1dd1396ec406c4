"""Verification of stored hash chains, of a single session or of all sessions, read page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from functools import partial

from fidelio.errors import ChainBroken
from fidelio.ledger.chain import ChainVerdict, ChainVerifier
from fidelio.ledger.contract import Ledger
from fidelio.ledger.encoding import DELETED
from fidelio.ledger.model import Session
from fidelio.ledger.paging import all_pages, event_pages


async def verify_session(ledger: Ledger, session: str, *, heads: Iterable[bytes] = ()) -> ChainVerdict:
    """Verify the chain of a session; raise `ChainBroken` at the first invalid event.

    The chain must contain the head in the row of the session and the `heads` that were recorded earlier.
    """
    row = await ledger.session(session)
    verifier = ChainVerifier(session)
    async for page in event_pages(ledger, session):
        for event in page:
            verifier.step(event)
    # Another process may append while the pages are read: the head read first may lie before the end of the chain.
    return verifier.finish([row.head, *heads] if row.last_seq else heads)


async def verify_all(ledger: Ledger) -> AsyncIterator[ChainVerdict | ChainBroken]:
    """Yield a result for every session; a broken chain does not stop the iteration."""
    async for session in iter_sessions(ledger):
        try:
            yield await verify_session(ledger, session.id)
        except ChainBroken as error:
            yield error


async def iter_sessions(ledger: Ledger) -> AsyncIterator[Session]:
    """Iterate over all sessions, including deleted sessions: their bodies are erased, but their chains stay verifiable."""
    for status in (None, DELETED):
        async for session in all_pages(partial(ledger.sessions, status=status)):
            yield session

"""Concurrent writers in the same database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from fidelio.errors import BadRecord
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.encoding import hash_blob
from fidelio.ledger.model import Change, CommitResult, NewEvent, NewSession, PutDocument
from tests.support import proves
from tests.support.ledgers import TIMEOUT_SECONDS, start

SESSIONS = [f"s_{number}" for number in range(8)]
EACH = 12


@pytest.fixture
async def two_ledgers(postgres_database: str) -> AsyncIterator[tuple[Ledger, Ledger]]:
    async with await open_ledger(postgres_database) as one, await open_ledger(postgres_database) as two:
        for session in SESSIONS:
            await one.commit(Change(session=session, create=NewSession(kind="agent")))
        yield one, two


@proves("postgres.positions")
async def test_a_reader_by_position_never_misses_an_event(two_ledgers: tuple[Ledger, Ledger]) -> None:
    one, two = two_ledgers

    async def write(ledger: Ledger, session: str) -> None:
        for number in range(EACH):
            await ledger.append(session, *[NewEvent(type="step")] * (1 + number % 3))

    writing = asyncio.gather(*(write(ledger, session) for session in SESSIONS for ledger in two_ledgers))
    seen: list[int] = []
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not writing.done() or len(seen) < await one.wait(after=-1, timeout=0):
            seen += [event.position for event in await two.events(after=len(seen))]
            assert seen == list(range(1, len(seen) + 1)), "a smaller position became visible after a larger one"
        await writing

    assert len(seen) == len(SESSIONS) * 2 * (EACH * 2)


@proves("postgres.circles")
async def test_commits_over_the_same_things_in_different_orders_do_not_block_each_other(
    two_ledgers: tuple[Ledger, Ledger],
) -> None:
    def changes(sessions: list[str], paths: str) -> list[Change]:
        return [
            Change(
                session=session,
                events=(NewEvent(type="step"),) * (number % 2),
                documents=(PutDocument(space="notes", path=path, text=f"{session} was here"),),
            )
            for number, (session, path) in enumerate(zip(sessions, paths, strict=True))
        ]

    orders = [(SESSIONS[:4], "abcd"), (SESSIONS[3::-1], "cdab"), (SESSIONS[4:], "dcba"), (SESSIONS[:3:-1], "badc")]
    async with asyncio.timeout(TIMEOUT_SECONDS):
        for _ in range(5):
            commits = [ledger.commit(*changes(*order)) for order in orders for ledger in two_ledgers]
            await asyncio.gather(*commits)

    documents = await two_ledgers[0].documents("notes")
    assert [(document.path, document.version) for document in documents.items] == [(path, 5 * 8) for path in "abcd"]


@proves("postgres.blobs")
async def test_a_blob_that_is_being_referred_to_is_not_erased(postgres_database: str) -> None:
    content = b"kept by a reference that is not committed yet"
    async with await open_ledger(postgres_database) as ledger:
        await start(ledger, "s_a")
        letter = NewEvent(type="letter", blobs=(hash_blob(content),))
        await ledger.commit(Change(session="s_a", events=(letter,), blobs=(content,)))
        other = await asyncpg.connect(postgres_database, server_settings={"search_path": "fidelio"})
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async with other.transaction():
                await other.execute("SELECT 1 FROM blobs WHERE digest = $1 FOR KEY SHARE", hash_blob(content))
                await other.execute("INSERT INTO event_blobs VALUES ($1, 999)", hash_blob(content))
                redacting = asyncio.create_task(ledger.redact("s_a", [2], actor="pizarro", reason="secret"))
                while not await other.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                    assert not redacting.done(), "the redaction did not wait"
            await redacting
        await other.close()

        assert await ledger.blob(hash_blob(content)) == content


@proves("postgres.blobs")
async def test_a_blob_is_referred_to_or_gone_but_never_both(two_ledgers: tuple[Ledger, Ledger]) -> None:
    one, two = two_ledgers
    for number in range(10):
        content = f"contested {number}".encode()
        letter = NewEvent(type="letter", blobs=(hash_blob(content),))
        (sent,) = await one.commit(Change(session="s_0", events=(letter,), blobs=(content,)))
        redaction = one.redact("s_0", [sent.events[0].seq], actor="pizarro", reason="secret")
        redacted, answer = await asyncio.gather(redaction, two.append("s_1", letter), return_exceptions=True)

        assert isinstance(redacted, CommitResult)
        assert isinstance(answer, BadRecord if await one.blob(hash_blob(content)) is None else CommitResult)

"""Calls while the connection to the server breaks."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import pytest

from fidelio.errors import LedgerClosed, LedgerUnavailable
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.model import Change, NewEvent, NewSession
from fidelio.ledger.postgres import database
from tests.ledger.postgres.fixtures import HANG_UP
from tests.ledger.postgres.proxy import proxied
from tests.ledger.postgres.server import PrivateServer
from tests.support import proves

T = TypeVar("T")

PATIENCE = 30
BIRTH = Change(session="s_a", create=NewSession(kind="workflow"))


@pytest.fixture
def socket_place() -> Iterator[Path]:
    """Short enough for the address of a socket."""
    with tempfile.TemporaryDirectory(prefix="fidelio-") as place:
        yield Path(place)


@proves("postgres.unknown-outcome")
@pytest.mark.parametrize(("rule", "kept"), [("pass, hang up", 1), ("hang up", 0)])
async def test_a_connection_lost_at_the_commit_leaves_an_unknown_outcome(
    postgres_database: str, socket_place: Path, rule: str, kept: int
) -> None:
    commits = 0

    def at_commit(data: bytes) -> str:
        nonlocal commits
        if b"COMMIT;" not in data:
            return "pass"
        commits += 1
        return rule

    async with proxied(postgres_database, socket_place) as proxy, await open_ledger(proxy.url) as ledger:
        await ledger.commit(BIRTH)
        proxy.on_request = at_commit
        with pytest.raises(LedgerUnavailable, match=r"the outcome is unknown\. Read the session again") as lost:
            await ledger.append("s_a", NewEvent(type="step"))
        proxy.on_request = lambda _: "pass"

        assert "postgres@" not in str(lost.value)
        # The server may still be at the commit whose answer was lost.
        await _wait_for_events(postgres_database, kept)
        assert await _number_of_events(postgres_database) == kept
        assert commits == 1, "the commit was repeated"
        assert (await ledger.append("s_a", NewEvent(type="step"))).session.last_seq == kept + 1


@proves("postgres.restart")
async def test_a_connection_lost_before_the_commit_wrote_nothing(postgres_database: str, socket_place: Path) -> None:
    async with proxied(postgres_database, socket_place) as proxy, await open_ledger(proxy.url) as ledger:
        await ledger.commit(BIRTH)
        proxy.on_request = lambda data: "hang up" if b"s_a" in data else "pass"
        with pytest.raises(LedgerUnavailable, match="cannot be reached"):
            await ledger.append("s_a", NewEvent(type="step"))
        proxy.on_request = lambda _: "pass"

        assert (await ledger.append("s_a", NewEvent(type="step"))).session.last_seq == 1


@proves("postgres.bounded")
async def test_a_server_that_stops_answering_is_reported(
    postgres_database: str, socket_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "ANSWER_SECONDS", 0.3)
    async with proxied(postgres_database, socket_place) as proxy, await open_ledger(proxy.url) as ledger:
        await ledger.commit(BIRTH)
        proxy.on_request = lambda data: "swallow" if b"s_a" in data else "pass"
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(LedgerUnavailable, match="did not answer in time"):
                await ledger.session("s_a")
            with pytest.raises(LedgerUnavailable):
                await ledger.append("s_a", NewEvent(type="step"))
        proxy.on_request = lambda _: "pass"

        assert await _number_of_events(postgres_database) == 0
        assert (await ledger.session("s_a")).last_seq == 0


@proves("postgres.restart", "postgres.crash")
async def test_every_connection_ended_by_the_server_is_replaced(postgres_server: PrivateServer, postgres_database: str) -> None:
    async with await open_ledger(postgres_database) as ledger, await open_ledger(postgres_database) as watching:
        await ledger.commit(BIRTH)
        enough = asyncio.Event()
        writing = asyncio.create_task(_append_until(ledger, enough))
        async with asyncio.timeout(PATIENCE):
            for _ in range(5):
                newest = await _patiently(lambda: watching.wait(after=-1, timeout=0))
                await _patiently(partial(watching.wait, after=newest + 3, timeout=PATIENCE))
                await asyncio.to_thread(_end_connections, postgres_server, postgres_database)
            enough.set()
            acknowledged = await writing

        there = {event.seq: event.hash for event in await _patiently(lambda: watching.events("s_a", limit=10_000))}
        assert len(acknowledged) > 5
        assert all(there[seq] == hash_ for seq, hash_ in acknowledged)


@proves("postgres.news", "postgres.restart")
async def test_a_follower_goes_on_after_the_server_ended_its_connection(
    postgres_server: PrivateServer, postgres_database: str
) -> None:
    async with await open_ledger(postgres_database) as ledger, await open_ledger(postgres_database) as other:
        await ledger.commit(Change(session="s_a", create=NewSession(kind="workflow"), events=(NewEvent(type="first"),)))
        follower = ledger.follow("s_a")
        async with asyncio.timeout(PATIENCE):
            assert (await anext(follower)).type == "first"
            waiting = asyncio.ensure_future(anext(follower))
            await ledger.wait(after=0, timeout=PATIENCE)
            await asyncio.to_thread(_end_connections, postgres_server, postgres_database)
            await _patiently(lambda: other.append("s_a", NewEvent(type="second"), expect=1))
            assert (await waiting).type == "second"


@proves("postgres.news")
async def test_an_append_of_another_process_wakes_who_waits(postgres_database: str) -> None:
    async with await open_ledger(postgres_database) as ledger, await open_ledger(postgres_database) as other:
        await other.commit(BIRTH)
        waiting = asyncio.create_task(ledger.wait(after=0, timeout=PATIENCE))
        following = asyncio.ensure_future(anext(ledger.follow(after=0)))
        async with asyncio.timeout(PATIENCE / 3):
            done = await other.append("s_a", NewEvent(type="step"))
            assert await waiting == 1
            assert await following == done.events[0]


@proves("postgres.restart")
async def test_a_closed_ledger_says_so(postgres_database: str) -> None:
    ledger = await open_ledger(postgres_database)
    await ledger.close()
    await ledger.close()

    with pytest.raises(LedgerClosed):
        await ledger.session("s_a")


async def _append_until(ledger: Ledger, enough: asyncio.Event) -> list[tuple[int, bytes]]:
    """What was acknowledged on the way; a call that failed is followed by the next."""
    acknowledged = []
    while not enough.is_set():
        with suppress(LedgerUnavailable):
            (event,) = (await ledger.append("s_a", NewEvent(type="step"))).events
            acknowledged.append((event.seq, event.hash))
    return acknowledged


async def _patiently(call: Callable[[], Awaitable[T]]) -> T:
    """The first call after a lost connection may say so; the next one has a new connection."""
    try:
        return await call()
    except LedgerUnavailable:
        return await call()


def _end_connections(server: PrivateServer, url: str) -> None:
    server.sql(urlsplit(url).path[1:], HANG_UP)


async def _wait_for_events(url: str, number: int) -> None:
    async with await open_ledger(url) as ledger:
        await ledger.wait(after=number - 1, timeout=PATIENCE)


async def _number_of_events(url: str) -> int:
    async with await open_ledger(url) as ledger:
        return len(await ledger.events("s_a"))

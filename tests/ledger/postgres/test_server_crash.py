"""A server that is killed; each test has a server of its own."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Iterator

import pytest

from fidelio.errors import LedgerUnavailable
from fidelio.ledger import open_ledger
from fidelio.ledger.model import NewEvent
from tests.ledger.postgres.server import PrivateServer, start_server
from tests.ledger.programs import appender
from tests.ledger.programs.processes import child
from tests.ledger.programs.running import ledger_with_sessions
from tests.ledger.programs.survivors import SESSION, Survivors
from tests.support import proves
from tests.support.ledgers import TIMEOUT_SECONDS, take


@pytest.fixture
def doomed_server(postgres_server: PrivateServer) -> Iterator[PrivateServer]:
    server = start_server(postgres_server.programs)
    yield server
    server.stop()


@proves("postgres.crash", "kill.acknowledged", "kill.leases")
async def test_what_was_acknowledged_survives_a_killed_server(doomed_server: PrivateServer) -> None:
    seed = secrets.randbits(32)
    print(f"The seed was {seed}.")  # noqa: T201  # pytest shows it when the test fails
    chance = random.Random(seed)
    address = doomed_server.url("postgres")
    async with ledger_with_sessions(address, SESSION):
        pass
    survivors = Survivors(address)
    for _ in range(5):
        messages = _told_before_the_crash(doomed_server, address, chance)
        assert messages[-1] == ("ended", "ledger.unavailable")
        assert await survivors.check(messages) > 1


@proves("postgres.restart", "postgres.news")
async def test_a_ledger_and_its_followers_outlive_a_restart_of_the_server(doomed_server: PrivateServer) -> None:
    async with ledger_with_sessions(doomed_server.url("postgres"), "s_a") as ledger:
        await ledger.append("s_a", NewEvent(type="before"))
        follower = ledger.follow("s_a")
        (before,) = await take(follower, 1)
        after = asyncio.create_task(take(follower, 1))
        await asyncio.to_thread(doomed_server.crash)
        try:
            done = await ledger.append("s_a", NewEvent(type="after"), expect=1)
        except LedgerUnavailable:
            done = await ledger.append("s_a", NewEvent(type="after"), expect=1)

        assert before.type == "before"
        assert await after == list(done.events)


@proves("postgres.restart")
async def test_a_server_that_is_not_there_is_out_of_reach(doomed_server: PrivateServer) -> None:
    doomed_server.stop()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        with pytest.raises(LedgerUnavailable, match="cannot be reached"):
            await open_ledger(doomed_server.url("postgres"))


def _told_before_the_crash(server: PrivateServer, address: str, chance: random.Random) -> list[tuple[object, ...]]:
    with child(appender.main, address, SESSION, chance.randrange(1 << 32)) as client:
        messages = [client.receive()]
        time.sleep(chance.random() * 0.2)  # not for anything to happen: this is the random moment
        server.crash()
        return [*messages, *client.receive_rest()]

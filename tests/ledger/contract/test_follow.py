"""`follow` yields stored and new events, each of them once."""

from __future__ import annotations

import asyncio

import pytest

from fidelio.errors import LedgerClosed, SessionNotFound
from fidelio.ledger import Ledger, open_ledger
from tests.support import proves
from tests.support.ledgers import TIMEOUT_SECONDS, MovingClock, say, start, take


@proves("ledger.follow")
async def test_a_follower_sees_what_is_there_and_then_what_comes(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await say(ledger, "s_a", {"n": 1})
    follower = ledger.follow("s_a")

    before = await take(follower, 2)
    waiting = asyncio.create_task(take(follower, 2))
    await start(ledger, "s_b")
    await say(ledger, "s_a", {"n": 2})
    await say(ledger, "s_a", {"n": 3})

    assert [event.seq for event in before + await waiting] == [1, 2, 3, 4]


@proves("ledger.follow")
async def test_a_follower_of_everything_sees_all_sessions_in_order(ledger: Ledger) -> None:
    follower = ledger.follow()
    waiting = asyncio.create_task(take(follower, 4))
    await start(ledger, "s_a")
    await start(ledger, "s_b")
    await say(ledger, "s_a", {})
    await say(ledger, "s_b", {})

    assert [(event.session, event.seq) for event in await waiting] == [("s_a", 1), ("s_b", 1), ("s_a", 2), ("s_b", 2)]


@proves("ledger.follow")
async def test_a_follower_begins_after_a_number_and_sees_only_its_types(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    follower = ledger.follow("s_a", after=2, types=["wanted"])
    waiting = asyncio.create_task(take(follower, 2))
    for type_ in ("wanted", "other", "wanted", "other", "wanted"):
        await say(ledger, "s_a", {}, type_)

    assert [event.seq for event in await waiting] == [4, 6]


@proves("ledger.follow")
async def test_many_followers_miss_nothing_while_many_append(ledger: Ledger) -> None:
    sessions = [f"s_{number}" for number in range(4)]
    for session in sessions:
        await start(ledger, session)
    readers = [asyncio.create_task(take(ledger.follow(session), 21)) for session in sessions]
    everything = asyncio.create_task(take(ledger.follow(), 84))

    await asyncio.gather(*(say(ledger, session, {"n": n}) for n in range(20) for session in sessions))

    for reader in readers:
        assert [event.seq for event in await reader] == list(range(1, 22))
    positions = [event.position for event in await everything]
    assert positions == sorted(set(positions))


@proves("ledger.follow")
async def test_an_unknown_session_cannot_be_followed(ledger: Ledger) -> None:
    with pytest.raises(SessionNotFound):
        await take(ledger.follow("s_nobody"), 1)


@proves("ledger.follow")
async def test_waiting_ends_with_news_or_with_its_time(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    newest = await ledger.wait(after=0, timeout=TIMEOUT_SECONDS)
    waiting = asyncio.create_task(ledger.wait(after=newest, timeout=TIMEOUT_SECONDS))
    event = await say(ledger, "s_a", {})

    assert newest < event.position == await waiting
    assert await ledger.wait(after=event.position, timeout=0.01) == event.position


@proves("ledger.follow-others")
async def test_what_another_opening_of_the_database_appends_is_followed_too(address: str, clock: MovingClock) -> None:
    async with await open_ledger(address, clock=clock) as ours, await open_ledger(address, clock=clock) as theirs:
        await start(theirs, "s_a")
        follower = asyncio.create_task(take(ours.follow("s_a"), 3))
        waiting = asyncio.create_task(ours.wait(after=1, timeout=TIMEOUT_SECONDS))
        await say(theirs, "s_a", {})
        await say(theirs, "s_a", {})

        assert [event.seq for event in await follower] == [1, 2, 3]
        assert await waiting >= 2


@proves("ledger.closed")
async def test_closing_ends_those_who_wait(address: str, clock: MovingClock) -> None:
    ledger = await open_ledger(address, clock=clock)
    await start(ledger, "s_a")
    follower = ledger.follow("s_a")
    await take(follower, 1)
    waiting = asyncio.create_task(take(follower, 1))
    timed = asyncio.create_task(ledger.wait(after=1, timeout=TIMEOUT_SECONDS))
    await asyncio.sleep(0)  # both are waiting from here on
    await ledger.close()

    for task in (waiting, timed):
        with pytest.raises(LedgerClosed):
            await task

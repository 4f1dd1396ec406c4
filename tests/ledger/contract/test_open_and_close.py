"""Opening and closing a ledger."""

from __future__ import annotations

import asyncio

import pytest

from fidelio.errors import LedgerClosed
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.model import NewEvent, Query
from tests.support import proves
from tests.support.ledgers import TIMEOUT_SECONDS, MovingClock, say, start


@proves("ledger.closed")
async def test_closing_finishes_what_was_accepted(address: str, clock: MovingClock) -> None:
    ledger = await open_ledger(address, clock=clock)
    await start(ledger, "s_a")
    accepted = [asyncio.create_task(say(ledger, "s_a", {"n": n})) for n in range(10)]
    await asyncio.sleep(0)  # every task has queued its commit
    await asyncio.gather(ledger.close(), *accepted)

    async with await open_ledger(address, clock=clock) as again:
        assert (await again.session("s_a")).last_seq == 11


@proves("ledger.closed")
async def test_a_closed_ledger_says_so(address: str, clock: MovingClock) -> None:
    ledger = await open_ledger(address, clock=clock)
    await start(ledger, "s_a")
    await ledger.close()
    await ledger.close()

    with pytest.raises(LedgerClosed):
        await ledger.append("s_a", NewEvent(type="note"))
    with pytest.raises(LedgerClosed):
        await ledger.session("s_a")
    with pytest.raises(LedgerClosed):
        await ledger.search(Query(text="x"))
    with pytest.raises(LedgerClosed):
        await ledger.wait(after=0, timeout=TIMEOUT_SECONDS)


@proves("ledger.damaged")
async def test_a_sound_ledger_passes_its_own_check(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await ledger.check()


@proves("ledger.search-follows")
async def test_the_index_follows_by_itself(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    event = await say(ledger, "s_a", {"a": "needle"})

    assert await _found_in_time(ledger, "needle") == event.seq


@proves("ledger.search-follows")
async def test_the_index_catches_up_on_opening(address: str, clock: MovingClock) -> None:
    async with await open_ledger(address, clock=clock) as ledger:
        await start(ledger, "s_a")
        await ledger.append("s_a", *(NewEvent(type="note", body={"a": f"needle{n}"}) for n in range(600)))
    async with await open_ledger(address, clock=clock) as ledger:
        assert await _found_in_time(ledger, "needle599") == 601
        assert await ledger.update_index() == (await ledger.events("s_a"))[-1].position


async def _found_in_time(ledger: Ledger, text: str) -> int | None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            hits = await ledger.search(Query(text=text))
            if hits:
                return hits[0].seq
            # The index sends no notification; waiting for a position that never comes is a bounded pause.
            await ledger.wait(after=1 << 40, timeout=0.02)

"""Turns on a session: one at a time, in order, and never lost with somebody who gives up waiting."""

from __future__ import annotations

import asyncio

from fidelio.locks import Turns
from tests.support import proves


async def held(turns: Turns, session: str, order: list[str], name: str) -> None:
    await turns.take(session)
    try:
        order.append(name)
        await asyncio.sleep(0)
        order.append(name)
    finally:
        turns.give(session)


@proves("sessions.in-flight")
async def test_turns_come_one_after_the_other_in_the_order_of_asking() -> None:
    turns, order = Turns(), list[str]()

    await asyncio.gather(*(held(turns, "s", order, name) for name in "abc"))

    assert order == list("aabbcc")


@proves("sessions.in-flight")
async def test_other_sessions_do_not_wait() -> None:
    turns, order = Turns(), list[str]()

    await asyncio.gather(held(turns, "s", order, "a"), held(turns, "t", order, "b"))

    assert order == list("abab")


@proves("sessions.in-flight")
async def test_whoever_gives_up_waiting_takes_no_turn_from_anybody() -> None:
    turns, order = Turns(), list[str]()
    await turns.take("s")
    waiting = [asyncio.ensure_future(held(turns, "s", order, name)) for name in "abc"]
    await asyncio.sleep(0)

    waiting[0].cancel()
    turns.give("s")
    waiting[1].cancel()
    async with asyncio.timeout(10):
        await asyncio.wait(waiting)
        await turns.take("s")

    assert order == list("cc")

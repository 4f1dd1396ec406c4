"""KeyedLock on a session: one at a time, in order, and never lost with somebody who gives up waiting."""

from __future__ import annotations

import asyncio

from fidelio.locks import KeyedLock
from tests.support import proves


async def held(lock: KeyedLock, session: str, order: list[str], name: str) -> None:
    await lock.acquire(session)
    try:
        order.append(name)
        await asyncio.sleep(0)
        order.append(name)
    finally:
        lock.release(session)


@proves("sessions.in-flight")
async def test_turns_come_one_after_the_other_in_the_order_of_asking() -> None:
    lock, order = KeyedLock(), list[str]()

    await asyncio.gather(*(held(lock, "s", order, name) for name in "abc"))

    assert order == list("aabbcc")


@proves("sessions.in-flight")
async def test_other_sessions_do_not_wait() -> None:
    lock, order = KeyedLock(), list[str]()

    await asyncio.gather(held(lock, "s", order, "a"), held(lock, "t", order, "b"))

    assert order == list("abab")


@proves("sessions.in-flight")
async def test_whoever_gives_up_waiting_takes_no_turn_from_anybody() -> None:
    lock, order = KeyedLock(), list[str]()
    await lock.acquire("s")
    waiting = [asyncio.ensure_future(held(lock, "s", order, name)) for name in "abc"]
    await asyncio.sleep(0)

    waiting[0].cancel()
    lock.release("s")
    waiting[1].cancel()
    async with asyncio.timeout(10):
        await asyncio.wait(waiting)
        await lock.acquire("s")

    assert order == list("cc")

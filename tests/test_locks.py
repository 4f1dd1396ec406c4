"""Keyed locks: one holder a key, first come first served, and never lost with a waiter that is cancelled."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from fidelio.clock import now_ms
from fidelio.locks import FileLock, KeyedLock, find_holder
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
async def test_waiters_get_the_lock_in_the_order_of_their_calls() -> None:
    lock, order = KeyedLock(), list[str]()

    await asyncio.gather(*(held(lock, "s", order, name) for name in "abc"))

    assert order == list("aabbcc")


@proves("sessions.in-flight")
async def test_other_keys_do_not_wait() -> None:
    lock, order = KeyedLock(), list[str]()

    await asyncio.gather(held(lock, "s", order, "a"), held(lock, "t", order, "b"))

    assert order == list("abab")


@proves("sessions.in-flight")
async def test_a_cancelled_waiter_does_not_keep_the_lock() -> None:
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


@proves("web.health-hosts")
def test_the_holder_of_a_lock_is_found_while_it_holds_it(tmp_path: Path) -> None:
    file = tmp_path / "x.lock"
    lock = FileLock(file)

    assert find_holder(file) is None
    assert lock.acquire()
    holder = find_holder(file)
    assert holder is not None
    assert holder.process == os.getpid()
    assert 0 <= now_ms() - holder.since < 60_000
    lock.release()
    assert find_holder(file) is None
    # Earlier versions noted nothing.
    file.write_text("")
    assert lock.acquire()
    file.write_text("")
    assert find_holder(file) is None
    assert lock.is_held
    lock.release()

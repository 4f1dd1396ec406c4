"""Inline commits on the event loop of a single caller."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from fidelio.errors import SequenceConflict
from fidelio.ledger.model import NewEvent
from fidelio.ledger.sqlite import SqliteLedger, group_commit, open_sqlite
from fidelio.ledger.sqlite.group_commit import Committer, Transaction, WorkItem
from tests.ledger.sqlite.programs import finish, running
from tests.support import proves
from tests.support.ledgers import TIMEOUT_SECONDS, say, start


def thread_name(_: Transaction) -> str:
    return threading.current_thread().name


async def wait_for_inline_commit(ledger: SqliteLedger) -> str:
    """Commit until a commit runs inline (the writer thread may be indexing); return the name of the thread."""
    name = ""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while name != threading.current_thread().name:
            name = await ledger._writer.execute(thread_name, is_brief=True)
    return name


@proves("ledger.alone")
async def test_a_lone_caller_commits_on_its_own_thread(tmp_path: Path) -> None:
    async with await open_sqlite(tmp_path / "ledger.db") as ledger:
        assert await wait_for_inline_commit(ledger) == threading.current_thread().name


@proves("ledger.alone")
async def test_of_many_callers_all_but_the_first_share_the_commit_of_the_writer(tmp_path: Path) -> None:
    async with await open_sqlite(tmp_path / "ledger.db") as ledger:
        await wait_for_inline_commit(ledger)
        await asyncio.sleep(0)

        names = await asyncio.gather(*(ledger._writer.execute(thread_name, is_brief=True) for _ in range(5)))

        assert names[1:] == ["fidelio-ledger"] * 4


@proves("ledger.alone")
async def test_work_that_takes_long_and_work_on_a_slow_disk_is_left_to_the_writer(tmp_path: Path) -> None:
    async with await open_sqlite(tmp_path / "ledger.db") as ledger:
        await wait_for_inline_commit(ledger)
        await asyncio.sleep(0)
        assert await ledger._writer.execute(thread_name) == "fidelio-ledger"
        ledger._writer._committer.commit_seconds = 1000.0
        assert await ledger._writer.execute(thread_name, is_brief=True) == "fidelio-ledger"


@proves("ledger.alone")
async def test_a_loop_never_waits_for_another_process(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with await open_sqlite(path) as ledger:
        await start(ledger, "s_a")
        await wait_for_inline_commit(ledger)
        await asyncio.sleep(0)
        with running("hold", path) as holder:
            waiting = asyncio.create_task(say(ledger, "s_a", {}))
            # If the event loop waited for the lock, the holder could never be finished.
            await asyncio.to_thread(finish, holder)
            assert (await waiting).seq == 2
        assert [event.seq for event in await ledger.events("s_a")] == [1, 2]


@proves("ledger.alone")
async def test_whoever_commits_again_and_again_leaves_room_for_others(tmp_path: Path) -> None:
    async with await open_sqlite(tmp_path / "ledger.db") as ledger:
        await start(ledger, "s_a")
        iterations = 0

        async def others() -> None:
            nonlocal iterations
            while True:
                iterations += 1
                await asyncio.sleep(0)

        background = asyncio.create_task(others())
        for number in range(50):
            await say(ledger, "s_a", {"n": number})
        background.cancel()

        assert iterations >= 20


@proves("ledger.alone", "ledger.neighbours")
async def test_a_lone_caller_that_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    async with await open_sqlite(tmp_path / "ledger.db") as ledger:
        await start(ledger, "s_a")
        await wait_for_inline_commit(ledger)
        await asyncio.sleep(0)
        with pytest.raises(SequenceConflict):
            await ledger.append("s_a", NewEvent(type="note"), expect=7)
        await asyncio.sleep(0)

        assert (await say(ledger, "s_a", {})).seq == 2


@proves("ledger.alone")
async def test_a_bug_in_the_work_of_a_lone_caller_is_told_to_that_caller(tmp_path: Path) -> None:
    async with await open_sqlite(tmp_path / "ledger.db") as ledger:
        await start(ledger, "s_a")
        committer, loop = ledger._writer._committer, asyncio.get_running_loop()

        def half(transaction: Transaction) -> None:
            transaction.connection.execute("DELETE FROM events")
            raise ZeroDivisionError("a bug")

        with committer.lock, pytest.raises(ZeroDivisionError):
            committer.commit_unless_busy(WorkItem(half, (), loop.create_future(), loop))

        assert len(await ledger.events("s_a")) == 1
        assert (await say(ledger, "s_a", {})).seq == 2


@proves("ledger.alone")
async def test_closing_finishes_what_was_handed_over_because_the_file_was_busy(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = await open_sqlite(path)
    await start(ledger, "s_a")
    await wait_for_inline_commit(ledger)
    with running("hold", path) as holder:
        waiting = asyncio.create_task(say(ledger, "s_a", {}))
        await asyncio.sleep(0)
        closing = asyncio.create_task(ledger.close())
        await asyncio.to_thread(finish, holder)
        assert (await waiting).seq == 2
        await closing


@proves("ledger.alone")
async def test_the_write_ahead_file_is_carried_over_by_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    carried_over = threading.Event()
    original = Committer.checkpoint

    def record_thread(committer: Committer) -> None:
        original(committer)
        done.append(threading.current_thread().name)
        carried_over.set()

    monkeypatch.setattr(Committer, "checkpoint", record_thread)
    monkeypatch.setattr(group_commit, "MAX_WAL_PAGES", 1)
    async with await open_sqlite(tmp_path / "ledger.db") as ledger:
        await start(ledger, "s_a")
        await wait_for_inline_commit(ledger)
        await asyncio.sleep(0)
        carried_over.clear()
        await say(ledger, "s_a", {})

        assert await asyncio.to_thread(carried_over.wait, TIMEOUT_SECONDS)
    assert set(done) == {"fidelio-ledger"}

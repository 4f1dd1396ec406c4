"""The writer thread: group commit, polling only with listeners, and shutdown."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fidelio.errors import LedgerClosed
from fidelio.ledger.sqlite import SqliteLedger, open_sqlite
from fidelio.ledger.sqlite.group_commit import Committer, Transaction, WorkItem
from fidelio.ledger.sqlite.writer import Writer
from tests.support import proves
from tests.support.ledgers import TIMEOUT_SECONDS, say, start, take


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """One entry for every look at what other processes have done."""
    found: list[float] = []
    original: Callable[[Writer], None] = Writer._poll_other_processes

    def counted(writer: Writer) -> None:
        found.append(0)
        original(writer)

    monkeypatch.setattr(Writer, "_poll_other_processes", counted)
    return found


@proves("ledger.follow-quiet")
async def test_nobody_looks_for_others_while_nobody_waits(tmp_path: Path, looks: list[float]) -> None:
    async with await open_sqlite(tmp_path / "ledger.db") as ledger:
        await start(ledger, "s_a")
        for number in range(20):
            await say(ledger, "s_a", {"n": number})
        await ledger.update_index()
        assert looks == []
        await ledger.wait(after=1 << 40, timeout=0.2)
        assert looks
        # The one who waited has gone, and with them the looking: the writer sleeps until it is needed.
        assert ledger._writer._next_timeout() is None or not ledger._writer.notifier


@proves("ledger.follow-quiet")
async def test_a_follower_in_the_same_process_is_woken_by_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Writer, "_poll_other_processes", lambda _: None)
    async with await open_sqlite(tmp_path / "ledger.db") as ledger:
        await start(ledger, "s_a")
        follower = asyncio.create_task(take(ledger.follow("s_a"), 4))
        waiter = asyncio.create_task(ledger.wait(after=3, timeout=TIMEOUT_SECONDS))
        for number in range(3):
            await say(ledger, "s_a", {"n": number})

        assert len(await follower) == 4
        assert await waiter == 4


@proves("ledger.durable")
async def test_many_commits_at_once_share_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[int] = []
    original = Committer._execute

    def counted(committer: Committer, group: Sequence[WorkItem]) -> None:
        groups.append(len(group))
        original(committer, group)

    async with await open_sqlite(tmp_path / "ledger.db") as ledger:
        await start(ledger, "s_a")
        monkeypatch.setattr(Committer, "_execute", counted)
        for _ in range(10):
            await asyncio.gather(*(say(ledger, "s_a", {"n": n}) for n in range(100)))

    assert sum(groups) == 1000
    # In each round one may go ahead by itself, and then all the others have company.
    assert len(groups) <= 30


@proves("ledger.durable")
async def test_a_commit_that_was_cancelled_in_the_queue_is_dropped(tmp_path: Path) -> None:
    async with await open_sqlite(tmp_path / "ledger.db") as ledger:
        await start(ledger, "s_a")
        gate = threading.Event()
        blocked = asyncio.create_task(ledger._writer.execute(_until(gate)))
        cancelled = asyncio.create_task(say(ledger, "s_a", {}))
        await asyncio.sleep(0)  # both have queued
        cancelled.cancel()
        await asyncio.sleep(0)
        gate.set()
        await blocked

        assert (await ledger.session("s_a")).last_seq == 1


@proves("ledger.closed")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_writer_that_dies_leaves_nobody_waiting(tmp_path: Path) -> None:
    ledger = await open_sqlite(tmp_path / "ledger.db")
    await start(ledger, "s_a")
    follower = asyncio.create_task(take(ledger.follow("s_a"), 2))
    broken = asyncio.create_task(ledger._writer.execute(_fail))
    behind = asyncio.create_task(say(ledger, "s_a", {}))

    for task in (broken, behind, follower):
        with pytest.raises(LedgerClosed):
            await task
    await ledger.close()


@proves("ledger.closed")
async def test_work_whose_batch_was_not_sent_before_the_writer_closes_is_done_once(tmp_path: Path) -> None:
    done: list[Transaction] = []
    async with await open_sqlite(tmp_path / "ledger.db") as ledger:
        with ledger._writer._committer.lock:  # so that neither is committed inline
            both = [asyncio.create_task(ledger._writer.execute(done.append, is_brief=True)) for _ in range(2)]
            await asyncio.sleep(0)  # both wait for the end of this iteration of the loop
        assert not done
        ledger._writer.close()
        await asyncio.gather(*both)

    assert len(done) == 2


@proves("ledger.closed")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_work_whose_batch_was_not_sent_before_the_writer_dies_is_refused(tmp_path: Path) -> None:
    done: list[Transaction] = []
    async with await open_sqlite(tmp_path / "ledger.db") as ledger:
        with ledger._writer._committer.lock:  # so that it is not committed inline
            refused = asyncio.create_task(ledger._writer.execute(done.append, is_brief=True))
            await asyncio.sleep(0)  # it waits for the end of this iteration of the loop
        ledger._writer._queue.put(None)  # type: ignore[arg-type]  # a bug, on which the thread dies
        ledger._writer._thread.join(TIMEOUT_SECONDS)
        with pytest.raises(LedgerClosed):
            await refused

    assert not done


@proves("ledger.many-processes")
async def test_several_event_loops_can_share_a_ledger(tmp_path: Path) -> None:
    async with await open_sqlite(tmp_path / "ledger.db") as ledger:
        await start(ledger, "s_a")
        threads = [threading.Thread(target=asyncio.run, args=(_many(ledger, name),)) for name in "abc"]
        for thread in threads:
            thread.start()
        await _many(ledger, "d")
        for thread in threads:
            await asyncio.to_thread(thread.join, TIMEOUT_SECONDS)

        assert (await ledger.session("s_a")).last_seq == 1 + 4 * 20


async def _many(ledger: SqliteLedger, name: str) -> None:
    for number in range(20):
        event = await say(ledger, "s_a", {"by": name, "n": number})
        assert (await ledger.events("s_a", after=event.seq - 1, limit=1))[0] == event


def _until(gate: threading.Event) -> Callable[[Transaction], Any]:
    return lambda _: gate.wait(TIMEOUT_SECONDS)


def _fail(_: Transaction) -> None:
    raise ZeroDivisionError("a bug")


@proves("ledger.follow-others")
async def test_what_another_appends_before_the_writer_has_begun_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, may_begin, begin = tmp_path / "ledger.db", threading.Event(), Writer._run

    def begin_late(writer: Writer) -> None:
        may_begin.wait(TIMEOUT_SECONDS)
        begin(writer)

    async with await open_sqlite(path) as theirs:
        await start(theirs, "s_a")
        monkeypatch.setattr(Writer, "_run", begin_late)
        async with await open_sqlite(path) as ours:
            follower = ours.follow("s_a")
            await take(follower, 1)
            waiting = asyncio.create_task(take(follower, 1))
            # In its first step the follower reads that there is nothing, and waits.
            await asyncio.sleep(0)
            await say(theirs, "s_a", {})
            may_begin.set()

            assert [event.seq for event in await waiting] == [2]

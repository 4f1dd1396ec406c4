"""Several processes with the same file."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

from fidelio.errors import LedgerBusy
from fidelio.ledger.sqlite import open_sqlite
from tests.ledger.sqlite.programs import finish, running
from tests.support import proves
from tests.support.chains import verify_chain
from tests.support.ledgers import say, start, take

PROCESSES = 3


async def started(path: Path) -> None:
    async with await open_sqlite(path) as ledger:
        await start(ledger, "s_a")


@proves("ledger.many-processes")
async def test_many_processes_append_without_losing_or_doubling_an_event(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await started(path)
    with ExitStack() as stack:
        processes = [stack.enter_context(running("append", path, "s_a", 60)) for _ in range(PROCESSES)]
        outputs = await asyncio.gather(*(asyncio.to_thread(finish, process) for process in processes))

    acknowledged = [id_ for output in outputs for id_ in output]
    async with await open_sqlite(path) as ledger:
        events = await ledger.events("s_a", after=1)
        verify_chain("s_a", await ledger.events("s_a"))
        await ledger.check()
    assert len(acknowledged) == 60 * PROCESSES
    assert sorted(event.id for event in events) == sorted(acknowledged)


@proves("ledger.expected-seq", "ledger.many-processes")
async def test_two_processes_with_the_same_expectation_never_both_win(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await started(path)
    with running("compete", path, "s_a", 80) as one, running("compete", path, "s_a", 80) as two:
        outputs = await asyncio.gather(asyncio.to_thread(finish, one), asyncio.to_thread(finish, two))

    won = sorted(int(number) for output in outputs for number in output)
    assert won == list(range(2, len(won) + 2))
    async with await open_sqlite(path) as ledger:
        assert (await ledger.session("s_a")).last_seq == len(won) + 1


@proves("ledger.busy")
async def test_a_file_that_another_process_holds_is_busy_and_then_works_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with await open_sqlite(path, busy_timeout_ms=50) as ledger:
        await start(ledger, "s_a")
        with running("hold", path) as holder:
            with pytest.raises(LedgerBusy, match=r"ledger\.db"):
                await say(ledger, "s_a", {})
            # Readers are not in the way of a writer, nor it in theirs.
            assert (await ledger.session("s_a")).last_seq == 1
            finish(holder)
        await say(ledger, "s_a", {})

        assert (await ledger.session("s_a")).last_seq == 2


@proves("ledger.busy")
async def test_a_writer_waits_for_a_neighbour_that_is_only_slow(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with await open_sqlite(path) as ledger:
        await start(ledger, "s_a")
        with running("hold", path) as holder:
            waiting = asyncio.create_task(say(ledger, "s_a", {}))
            await ledger.wait(after=1, timeout=0.1)
            assert not waiting.done()
            finish(holder)
            assert (await waiting).seq == 2


@proves("ledger.follow-others")
async def test_a_follower_sees_what_another_process_appends(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await started(path)
    async with await open_sqlite(path) as ledger:
        with running("append", path, "s_a", 20) as process:
            follower = asyncio.create_task(take(ledger.follow("s_a"), 21))
            await asyncio.to_thread(finish, process)
            assert [event.seq for event in await follower] == list(range(1, 22))

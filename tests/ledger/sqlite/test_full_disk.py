"""A disk that is full at every possible write."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from fidelio.errors import LedgerFull
from fidelio.ledger.model import Change, NewEvent, NewSession, PutDocument
from fidelio.ledger.sqlite import SqliteLedger, open_sqlite
from fidelio.ledger.sqlite.errors import translate_error
from tests.ledger.sqlite.disks import FullDisk, registered
from tests.support import proves
from tests.support.chains import verify_chain
from tests.support.ledgers import say, start

BODY = {"text": "x" * 3000}


async def state(ledger: SqliteLedger) -> tuple[object, ...]:
    sessions = (await ledger.sessions()).items
    return sessions, await ledger.events(), (await ledger.documents("n")).items


@proves("ledger.full-disk")
async def test_a_full_disk_is_named_at_every_write_and_the_ledger_recovers(tmp_path: Path) -> None:
    disk = FullDisk()
    with registered(disk):
        async with await open_sqlite(tmp_path / "ledger.db", vfs=disk.name) as ledger:
            await start(ledger, "s_a")
            await say(ledger, "s_a", BODY)
            refusals = 0
            for room in range(100):
                if await _commit_with_room_for(disk, ledger, room):
                    break
                refusals += 1
            verify_chain("s_a", await ledger.events("s_a"))
            await ledger.check()

    assert refusals > 3
    assert room < 99, "the commit never got through"


async def _commit_with_room_for(disk: FullDisk, ledger: SqliteLedger, room: int) -> bool:
    before = await state(ledger)
    document = PutDocument(space="n", path="p", text="y" * 9000)
    change = Change(session="s_a", events=(NewEvent(type="note", body=BODY),), documents=(document,))
    disk.room = room
    (result,) = await asyncio.gather(ledger.commit(change), return_exceptions=True)
    disk.room = None
    if not isinstance(result, LedgerFull):
        return not isinstance(result, BaseException)
    assert await state(ledger) == before
    # Space was freed: the same ledger goes on working.
    await say(ledger, "s_a", {"room": room})
    return False


@proves("ledger.full-disk")
async def test_everybody_in_a_group_learns_that_the_disk_is_full(tmp_path: Path) -> None:
    disk = FullDisk()
    with registered(disk):
        async with await open_sqlite(tmp_path / "ledger.db", vfs=disk.name) as ledger:
            await start(ledger, "s_a")
            disk.room = 0
            for _ in range(3):
                with pytest.raises(LedgerFull):
                    await say(ledger, "s_a", BODY)
            disk.room = None
            await say(ledger, "s_a", BODY)
            assert (await ledger.session("s_a")).last_seq == 2


@proves("ledger.full-disk")
async def test_a_ledger_cannot_be_created_on_a_full_disk_but_later_it_can(tmp_path: Path) -> None:
    disk = FullDisk()
    with registered(disk):
        for room in (0, 1, 2, 5, 10, 20):
            disk.room = room
            with pytest.raises(LedgerFull):
                await open_sqlite(tmp_path / "ledger.db", vfs=disk.name)
        disk.room = None
        async with await open_sqlite(tmp_path / "ledger.db", vfs=disk.name) as ledger:
            await ledger.commit(Change(session="s_a", create=NewSession(kind="agent")))
            await ledger.check()


@proves("ledger.full-disk")
def test_a_full_disk_is_named_to_those_who_only_read() -> None:
    # What SQLite says when there is no room for the index that every reader needs.
    no_room = apsw.exception_for(apsw.SQLITE_IOERR_SHMSIZE)
    assert isinstance(no_room, apsw.Error)

    assert isinstance(translate_error(no_room, "ledger.db"), LedgerFull)

"""Files of other programs, truncated files and files without permissions."""

from __future__ import annotations

import os
import random
import stat
from pathlib import Path

import apsw
import pytest

from fidelio.errors import LedgerDamaged, LedgerError, LedgerUnavailable, SchemaMismatch
from fidelio.ledger.model import NewEvent
from fidelio.ledger.sqlite import open_sqlite
from fidelio.ledger.sqlite.schema import APPLICATION_ID, VERSION
from tests.support import proves
from tests.support.chains import verify_chain
from tests.support.ledgers import say, start


def damage(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def content_of(path: Path) -> bytes:
    return path.read_bytes()


def modes_in(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A closed ledger with enough in it to be damaged anywhere."""
    path = tmp_path / "ledger.db"
    async with await open_sqlite(path) as ledger:
        await start(ledger, "s_a")
        await ledger.append("s_a", *(NewEvent(type="note", body={"n": n, "text": f"{n} " * 300}) for n in range(50)))
    assert list(modes_in(tmp_path)) == ["ledger.db"]
    return path


@proves("ledger.private")
async def test_the_files_are_the_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o000)
    try:
        async with await open_sqlite(tmp_path / "ledger.db") as ledger:
            await start(ledger, "s_a")
            modes = modes_in(tmp_path)
    finally:
        os.umask(before)

    assert modes == {"ledger.db": 0o600, "ledger.db-wal": 0o600, "ledger.db-shm": 0o600}


@proves("ledger.durable")
async def test_a_write_is_synced_in_full(path: Path) -> None:
    async with await open_sqlite(path) as ledger:
        await say(ledger, "s_a", {})
        connection = ledger._writer._committer.connection
        assert connection.execute("PRAGMA journal_mode").get == "wal"
        assert connection.execute("PRAGMA synchronous").get == 2


@proves("ledger.damaged")
@pytest.mark.parametrize("kept", [1, 50, 99, 100, 1000, 4096, 5000])
async def test_a_truncated_file_is_damaged(path: Path, kept: int) -> None:
    damage(path, content_of(path)[:kept])

    with pytest.raises(LedgerDamaged):
        await _use_everything(path)


@proves("ledger.damaged")
async def test_a_file_that_lost_its_end_is_damaged(path: Path) -> None:
    content = content_of(path)
    damage(path, content[: len(content) // 2])

    with pytest.raises(LedgerDamaged):
        await _use_everything(path)


@proves("ledger.damaged")
async def test_a_file_full_of_noise_is_damaged(path: Path) -> None:
    noise = random.Random(1).randbytes(50_000)
    damage(path, noise)

    with pytest.raises(LedgerDamaged, match=r"ledger\.db"):
        await open_sqlite(path)
    assert content_of(path) == noise


@proves("ledger.damaged", "chain.tamper")
@pytest.mark.parametrize("seed", range(12))
async def test_an_overwritten_page_never_passes_for_the_truth(path: Path, seed: int) -> None:
    content = bytearray(content_of(path))
    chance = random.Random(seed)
    offset = chance.randrange(1, len(content) // 4096) * 4096
    content[offset : offset + 4096] = chance.randbytes(4096)
    damage(path, bytes(content))

    try:
        await _use_everything(path)
    except LedgerDamaged:
        return
    # A page that nothing refers to may hold anything; then every event must still be there.
    async with await open_sqlite(path) as ledger:
        assert verify_chain("s_a", await ledger.events("s_a")).events == 51


@proves("ledger.schema")
async def test_a_newer_schema_is_refused_and_left_as_it_is(path: Path) -> None:
    with apsw.Connection(str(path)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    before = content_of(path)

    with pytest.raises(SchemaMismatch, match=f"version {VERSION + 1}.*Update Fidelio"):
        await open_sqlite(path)
    assert content_of(path) == before


@proves("ledger.schema")
@pytest.mark.parametrize("script", ["CREATE TABLE theirs (x)", "PRAGMA user_version = 1", "PRAGMA application_id = 7"])
async def test_the_database_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path, script: str) -> None:
    path = tmp_path / "theirs.db"
    connection = apsw.Connection(str(path))
    connection.execute(script)
    connection.close()
    before = content_of(path)

    with pytest.raises(SchemaMismatch, match="another program"):
        await open_sqlite(path)
    assert content_of(path) == before


@proves("ledger.schema")
async def test_our_files_say_that_they_are_ours(path: Path) -> None:
    connection = apsw.Connection(str(path))

    assert connection.execute("PRAGMA application_id").get == APPLICATION_ID
    assert connection.execute("PRAGMA user_version").get == VERSION
    connection.close()


@proves("ledger.unavailable")
async def test_a_place_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    for place in (tmp_path / "none" / "ledger.db", tmp_path / "file" / "ledger.db", tmp_path):
        with pytest.raises(LedgerUnavailable, match=str(place)):
            await open_sqlite(place)


@proves("ledger.damaged")
async def test_an_empty_file_is_one_that_was_cut_off_and_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").touch()

    with pytest.raises(LedgerDamaged, match=r"has only 0 bytes left\. Restore the file from a backup, or remove it"):
        await open_sqlite(tmp_path / "ledger.db")
    assert (tmp_path / "ledger.db").stat().st_size == 0  # nothing else runs in this loop


async def _use_everything(path: Path) -> None:
    async with await open_sqlite(path) as ledger:
        await ledger.check()
        try:
            await ledger.events()
            await say(ledger, "s_a", {})
        except LedgerError:
            pytest.fail("the check passed, and then the ledger did not work")

"""Migration of files of older versions."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from fidelio.ledger.sqlite import open_sqlite, schema
from fidelio.ledger.sqlite.schema import APPLICATION_ID, MIGRATIONS, run_script
from tests.support import proves
from tests.support.chains import verify_chain
from tests.support.ledgers import say, start

SECOND = "CREATE TABLE later (x INTEGER) STRICT; INSERT INTO later SELECT last_seq FROM sessions;"


@proves("ledger.schema")
async def test_a_file_of_the_oldest_schema_is_opened_with_everything_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.db"
    _only(monkeypatch, MIGRATIONS[:1])
    async with await open_sqlite(path) as ledger:
        await start(ledger, "s_a")
        await say(ledger, "s_a", {"a": "old"})
    _only(monkeypatch, (*MIGRATIONS, SECOND))

    async with await open_sqlite(path) as ledger:
        await say(ledger, "s_a", {"a": "new"})
        events = await ledger.events("s_a")
        verify_chain("s_a", events)
        await ledger.check()

    assert [event.body.get("a") for event in events] == [None, "old", "new"]
    assert _read(path, "SELECT x FROM later") == [(2,)]
    assert _read(path, "PRAGMA user_version") == [(len(MIGRATIONS) + 1,)]


@proves("ledger.schema")
async def test_what_was_deleted_in_an_older_file_stays_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.db"
    _only(monkeypatch, MIGRATIONS[:2])
    async with await open_sqlite(path) as ledger:
        await start(ledger, "s_a")
        await start(ledger, "s_b")
        await start(ledger, "s_c")
    _read(path, "UPDATE sessions SET status = 'deleted' WHERE id = 's_a'")
    monkeypatch.undo()

    async with await open_sqlite(path) as ledger:
        # An older process that still has the file open knows no column for it.
        _read(path, "UPDATE sessions SET status = 'deleted' WHERE id = 's_c'")
        there, gone = await ledger.sessions(), await ledger.sessions(status="deleted")

    assert ([session.id for session in there.items], [session.id for session in gone.items]) == (["s_b"], ["s_c", "s_a"])


@proves("ledger.schema")
async def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.db"
    async with await open_sqlite(path) as ledger:
        await start(ledger, "s_a")
    monkeypatch.setattr(schema, "VERSION", len(MIGRATIONS) + 1)
    monkeypatch.setattr(schema, "MIGRATIONS", (*MIGRATIONS, SECOND + "INSERT INTO nowhere VALUES (1)"))
    with pytest.raises(Exception, match="nowhere"):
        await open_sqlite(path)
    monkeypatch.undo()

    async with await open_sqlite(path) as ledger:
        assert (await ledger.session("s_a")).last_seq == 1
    assert _read(path, "SELECT count(*) FROM sqlite_schema WHERE name = 'later'") == [(0,)]


@proves("ledger.schema")
async def test_a_file_whose_creation_was_interrupted_is_created_anew(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    connection = apsw.Connection(str(path))
    run_script(connection, f"PRAGMA journal_mode = WAL; PRAGMA application_id = {APPLICATION_ID}")
    connection.close()

    async with await open_sqlite(path) as ledger:
        await start(ledger, "s_a")


def _only(monkeypatch: pytest.MonkeyPatch, migrations: tuple[str, ...]) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", migrations)
    monkeypatch.setattr(schema, "VERSION", len(migrations))


def _read(path: Path, statement: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(10_000)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()

"""Commands that only read work where nothing can be written, as on a mounted backup."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from fidelio.errors import LedgerUnavailable, SchemaMismatch
from fidelio.ledger import open_ledger
from fidelio.ledger.audit import verify_session
from fidelio.ledger.model import NewEvent, Query
from tests.compatibility.write_fixtures import FIXTURES
from tests.support import proves
from tests.support.ledgers import say, start
from tests.support.parts import require_part
from tests.surfaces.conftest import Fidelio

MOUNT = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
COMMANDS = (
    ("verify", "--all"),
    ("report", "{session}"),
    ("report", "{session}", "--json"),
    ("sessions",),
    ("events", "{session}"),
    ("trace", "{session}"),
    ("inbox", "--all"),
    ("search", "Aria"),
)


def run_read_only(home: Path, environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command with a home that is mounted read-only, or, without the rights of root, is not writable."""
    command = [sys.executable, "-m", "fidelio", *arguments]
    if os.geteuid() == 0:
        if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
            require_part("A mount namespace", "Allow `unshare -m`, or run the tests without the rights of root.")
        command = ["unshare", "-m", "sh", "-c", MOUNT, str(home), *command]
    else:
        for place in (*home.rglob("*"), home):
            place.chmod(0o500 if place.is_dir() else 0o400)
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)


@proves("cli.read-only")
def test_reading_commands_work_on_a_read_only_file_system(fidelio: Fidelio, home: Path, environ: dict[str, str]) -> None:
    assert fidelio("tour").returncode == 0
    session = json.loads(fidelio("sessions", "--json").stdout)["items"][0]["id"]
    before = sorted(place.name for place in home.iterdir())

    found = {}
    for command in COMMANDS:
        words = [word.format(session=session) for word in command]
        found[" ".join(command)] = run_read_only(home, environ, *words).returncode
    refused = run_read_only(home, environ, "answer", "r_000000000001", "yes")

    assert set(found.values()) == {0}, found
    assert refused.returncode in (4, 5)
    assert sorted(place.name for place in home.iterdir()) == before


@pytest.fixture
def unwritable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)


@proves("cli.read-only")
async def test_a_read_only_ledger_is_read_and_refuses_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.db"
    async with await open_ledger(path) as ledger:
        await start(ledger, "s_a")
        await say(ledger, "s_a", {"text": "overture"})
        await ledger.update_index()
    before = _read_files(tmp_path)
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)

    async with await open_ledger(path) as ledger:
        assert (await verify_session(ledger, "s_a")).events == 2
        assert await ledger.update_index() == 2
        assert len(await ledger.search(Query(text="overture"))) == 1
        assert await ledger.wait(after=2, timeout=0.01) == 2
        with pytest.raises(LedgerUnavailable, match="can only be read"):
            await ledger.append("s_a", NewEvent(type="note"))

    assert _read_files(tmp_path) == before


@proves("cli.read-only")
async def test_a_writer_beside_a_read_only_reader_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.db"
    async with await open_ledger(path) as writer:
        await start(writer, "s_a")
        monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
        # The commits are only in the WAL, which an immutable file would not have.
        async with await open_ledger(path) as reader:
            assert (await reader.session("s_a")).last_seq == 1
            await say(writer, "s_a", {})
            assert (await reader.session("s_a")).last_seq == 2


@proves("cli.read-only")
async def test_a_copy_that_lacks_the_shared_memory_of_its_wal_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    async with await open_ledger(tmp_path / "ledger.db") as writer:
        await start(writer, "s_a")
        for name in ("ledger.db", "ledger.db-wal"):
            shutil.copy(tmp_path / name, copy / name)
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)

    with pytest.raises(LedgerUnavailable, match=r"ledger\.db-shm is missing") as raised:
        await _open(copy / "ledger.db")

    assert "Copy the home to a directory that you can write" in str(raised.value.remedy)


@proves("cli.read-only")
@pytest.mark.usefixtures("unwritable")
def test_an_older_schema_that_cannot_be_updated_is_named(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "0.1.0" / "home" / "ledger.db", tmp_path / "ledger.db")
    database = apsw.Connection(str(tmp_path / "ledger.db"))
    database.execute("PRAGMA user_version = 1")
    database.close()

    with pytest.raises(SchemaMismatch, match="cannot be updated here"):
        asyncio.run(_open(tmp_path / "ledger.db"))


def _read_files(folder: Path) -> dict[str, bytes]:
    return {place.name: place.read_bytes() for place in folder.iterdir()}


async def _open(path: Path) -> None:
    async with await open_ledger(path):
        pass

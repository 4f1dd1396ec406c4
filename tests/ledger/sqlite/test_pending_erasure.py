"""Erased bytes that a reader still holds: the ledger says so, and erases them once the reader has ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from fidelio.ledger import Ledger
from fidelio.ledger.audit import verify_session
from fidelio.ledger.model import Query
from fidelio.ledger.sqlite import group_commit, open_sqlite
from tests.support import proves
from tests.support.ledgers import TIMEOUT_SECONDS, say, start
from tests.support.tampering import record_everything

SECRET = b"xylophonist"


def bytes_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir())).lower()


def hold(path: Path) -> apsw.Connection:
    """A reader in the middle of its transaction."""
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM events").fetchall()
    return reader


async def wait_until_erased(ledger: Ledger) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while await ledger.erasure_pending():  # noqa: ASYNC110  # the end of a reader raises no event
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def brief_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "FIRST_ERASURE_WAIT_MS", 1)


@proves("ledger.erasure-pending")
async def test_what_a_reader_holds_is_erased_after_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with await open_sqlite(path) as ledger:
        await start(ledger, "s_a")
        await say(ledger, "s_a", {"text": SECRET.decode()})
        reader = hold(path)
        await ledger.erase(["s_a"], actor="ada", reason="x")
        assert await ledger.erasure_pending()
        assert SECRET in bytes_in(tmp_path)

        reader.close()
        await wait_until_erased(ledger)
        assert SECRET not in bytes_in(tmp_path)


@proves("ledger.erasure-pending")
async def test_another_process_finishes_what_one_could_not(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with await open_sqlite(path) as ledger:
        await start(ledger, "s_a")
        await say(ledger, "s_a", {"text": SECRET.decode()})
        reader = hold(path)
        await ledger.redact("s_a", [2], actor="ada", reason="x")
        assert await ledger.erasure_pending()
    assert SECRET in bytes_in(tmp_path)

    async with await open_sqlite(path) as ledger:
        assert await ledger.erasure_pending()
        reader.close()
        await wait_until_erased(ledger)
        assert SECRET not in bytes_in(tmp_path)


@proves("ledger.erasure-pending", "chain.redacted-projections")
async def test_an_erased_text_is_nowhere_in_the_files(tmp_path: Path) -> None:
    async with await open_sqlite(tmp_path / "ledger.db") as ledger:
        await record_everything(ledger)
        await ledger.update_index()
        assert all(text in bytes_in(tmp_path) for text in (b"go on?", b"quoted", b"the definition", b"cost"))

        await ledger.redact("s_a", [1, 2, 3, 4], actor="ada", reason="x")

        assert not await ledger.erasure_pending()
        left = bytes_in(tmp_path)
        # The definition is no text of an agent or a person, and the session needs it.
        assert [text for text in (b"go on?", b"quoted") if text in left] == []
        assert (await verify_session(ledger, "s_a")).problems == ()
        assert await ledger.search(Query(text="quoted")) == ()

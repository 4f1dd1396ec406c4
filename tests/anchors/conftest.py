"""Fixtures of the anchor tests: a ledger in a home, the service, and an attacker who owns the database."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from fidelio.anchors.service import AnchorService, AnchorVerdicts
from fidelio.engine.record import Record, fold
from fidelio.home import Home
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.chain import hash_body, hash_event, hash_session_id
from fidelio.ledger.model import decode_body
from fidelio.ledger.redaction import EventView
from tests.support.ledgers import MovingClock


@pytest.fixture
def clock() -> MovingClock:
    return MovingClock()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").ensure()


@pytest.fixture
async def ledger(home: Home, clock: MovingClock) -> AsyncIterator[Ledger]:
    async with await open_ledger(str(home.ledger), clock=clock) as opened:
        yield opened


@pytest.fixture
def service(ledger: Ledger, home: Home, clock: MovingClock) -> AnchorService:
    return AnchorService(ledger, home, clock=clock)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "anchors"
    path.mkdir()
    return path


async def verify(service: AnchorService, *sources: Path | str, session: str | None = None) -> AnchorVerdicts:
    return await service.verify([str(source) for source in sources], service.trust(), session=session)


def problems(verdicts: AnchorVerdicts) -> list[tuple[str, str, int]]:
    """Problem, session and sequence number of every finding."""
    return [(each.problem, each.session, each.seq) for verdict in verdicts.anchors for each in verdict.findings]


def read(path: Path | str) -> bytes:
    return Path(path).read_bytes()


def list_names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def open_file(path: Path) -> closing[apsw.Connection]:
    """Open a ledger as a database. The standard `sqlite3` is another copy of SQLite, which would drop locks of this process."""
    return closing(apsw.Connection(str(path)))


def rewrite(path: Path, session: str, seq: int, body: str) -> None:
    """Change the body of an event and compute the chain again, so that it is valid: what the owner of the file can do."""
    with open_file(path) as database, database:
        rows: list[Any] = database.execute("SELECT * FROM events WHERE session = ? ORDER BY seq", (session,)).fetchall()
        head = hash_session_id(session)
        for position, _, number, id_, type_, actor, time, old, salt, before, _ in rows:
            # The forger keeps what the ledger has put into the body: without it `verify` alone finds the change.
            forged = json.dumps({**json.loads(body), "ledger": json.loads(old or "{}").get("ledger")})
            text, digest = (forged, hash_body(salt, forged)) if number == seq else (old, before)
            head = hash_event(head, session, number, id_, type_, actor, time, digest)
            change = "UPDATE events SET body = ?, digest = ?, hash = ? WHERE position = ?"
            database.execute(change, (text, digest, head, position))
        database.execute("UPDATE sessions SET head = ? WHERE id = ?", (head, session))


def cut(path: Path, session: str, seq: int, *, carefully: bool = True) -> None:
    """Remove the events from a sequence number on; `carefully`: and make everything that follows from them fit."""
    with open_file(path) as database, database:
        database.execute("DELETE FROM events WHERE session = ? AND seq >= ?", (session, seq))
        query = "SELECT hash FROM events WHERE session = ? AND seq = ?"
        head = database.execute(query, (session, seq - 1)).get
        database.execute("UPDATE sessions SET last_seq = ?, head = ? WHERE id = ?", (seq - 1, head, session))
        if carefully:
            database.execute("DELETE FROM requests WHERE session = ?", (session,))
            _fold_again(database, session)


def _fold_again(database: apsw.Connection, session: str) -> None:
    """Compute the record of a workflow session from the events that are left, as the verification does."""
    query = "SELECT seq, type, time, body FROM events WHERE session = ? ORDER BY seq"
    rows: list[Any] = database.execute(query, (session,)).fetchall()
    has_record = database.execute("SELECT record <> '{}' FROM sessions WHERE id = ?", (session,)).get
    if has_record:
        record = fold(Record(), [EventView(number, type_, time, decode_body(body)) for number, type_, time, body in rows])
        values = (msgspec.json.encode(record).decode(), record.status, session)
        database.execute("UPDATE sessions SET record = ?, status = ? WHERE id = ?", values)


def remove(path: Path, session: str) -> None:
    with open_file(path) as database, database:
        database.execute("DELETE FROM events WHERE session = ?", (session,))
        database.execute("DELETE FROM sessions WHERE id = ?", (session,))


def remove_row(path: Path, session: str) -> None:
    """Remove only the row of a session, so that no list shows it."""
    with open_file(path) as database, database:
        database.execute("DELETE FROM sessions WHERE id = ?", (session,))

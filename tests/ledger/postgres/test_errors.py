"""Translation of PostgreSQL errors, and error messages without passwords."""

from __future__ import annotations

import asyncpg
import pytest

from fidelio.errors import (
    BadRecord,
    LedgerBusy,
    LedgerDamaged,
    LedgerError,
    LedgerFull,
    LedgerUnavailable,
    SchemaMismatch,
    SessionNotFound,
)
from fidelio.ledger import open_ledger
from fidelio.ledger.model import Change, NewEvent, NewSession
from fidelio.ledger.postgres import database, hide_password
from fidelio.ledger.postgres.errors import translate_error
from tests.ledger.postgres.server import PrivateServer
from tests.support import proves

FAULTS = [
    (asyncpg.DiskFullError("no space left on device"), LedgerFull),
    (asyncpg.LockNotAvailableError("canceling statement due to lock timeout"), LedgerBusy),
    (asyncpg.DeadlockDetectedError("deadlock detected"), LedgerBusy),
    (asyncpg.SerializationError("could not serialize access"), LedgerBusy),
    (asyncpg.TooManyConnectionsError("too many clients already"), LedgerBusy),
    (asyncpg.DataCorruptedError("invalid page in block 7"), LedgerDamaged),
    (asyncpg.IndexCorruptedError("index is not a btree"), LedgerDamaged),
    (asyncpg.UndefinedTableError("relation events does not exist"), SchemaMismatch),
    (asyncpg.InvalidPasswordError("password authentication failed"), LedgerUnavailable),
    (asyncpg.ReadOnlySQLTransactionError("cannot execute INSERT"), LedgerUnavailable),
    (asyncpg.CannotConnectNowError("the database system is starting up"), LedgerUnavailable),
    (asyncpg.AdminShutdownError("terminating connection"), LedgerUnavailable),
    (asyncpg.ConnectionDoesNotExistError("connection was closed"), LedgerUnavailable),
    (ConnectionRefusedError(111, "Connection refused"), LedgerUnavailable),
    (TimeoutError(), LedgerUnavailable),
    (asyncpg.CharacterNotInRepertoireError("invalid byte sequence"), BadRecord),
    (asyncpg.PostgresSyntaxError("syntax error"), LedgerError),
]


@proves("postgres.faults")
@pytest.mark.parametrize(("fault", "named"), FAULTS, ids=lambda value: getattr(value, "__name__", type(value).__name__))
def test_a_fault_has_its_named_error_with_a_way_out(fault: Exception, named: type[LedgerError]) -> None:
    error = translate_error(fault, "postgresql://db/ledger")

    assert type(error) is named
    assert error.remedy
    assert error.sentence.startswith("postgresql://db/ledger")


@proves("postgres.faults")
def test_an_address_is_shown_without_its_password() -> None:
    url = "postgresql://florestan:rescue%20me@db.example:5433/ledger?sslmode=require"

    assert hide_password(url) == "postgresql://db.example:5433/ledger"


@proves("postgres.faults")
async def test_a_database_that_is_not_there_is_named_without_the_password(postgres_server: PrivateServer) -> None:
    url = postgres_server.url("nowhere").replace("postgres@", "postgres:secret@")

    with pytest.raises(LedgerUnavailable, match="postgresql:///nowhere does not exist") as missing:
        await open_ledger(url)
    assert "secret" not in str(missing.value)


@proves("postgres.faults")
@pytest.mark.parametrize("url", ["postgresql://host:port/ledger", "postgresql://[::1/ledger"])
async def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(LedgerError, match="not an address"):
        await open_ledger(url)


@proves("postgres.faults")
@pytest.mark.parametrize("text", ["a\0b", "half a pair: \ud800"])
async def test_a_text_the_server_cannot_take_is_refused_and_harms_nothing(postgres_database: str, text: str) -> None:
    async with await open_ledger(postgres_database) as ledger:
        with pytest.raises(BadRecord):
            await ledger.session_by_name(text)
        with pytest.raises(SessionNotFound):
            await ledger.session_by_name("another")


@proves("postgres.faults", "postgres.bounded")
async def test_a_session_that_somebody_locks_for_too_long_is_busy(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(database._SETTINGS, "lock_timeout", "100ms")
    async with await open_ledger(postgres_database) as ledger:
        await ledger.commit(Change(session="s_a", create=NewSession(kind="agent")))
        other = await asyncpg.connect(postgres_database)
        async with other.transaction():
            await other.execute("SELECT 1 FROM fidelio.sessions FOR UPDATE")
            with pytest.raises(LedgerBusy, match="Nothing was written; retry"):
                await ledger.append("s_a", NewEvent(type="step"))
        await other.close()

        assert (await ledger.append("s_a", NewEvent(type="step"))).session.last_seq == 1


@proves("postgres.faults")
async def test_a_record_that_was_changed_behind_our_back_is_found(
    postgres_server: PrivateServer, postgres_database: str
) -> None:
    async with await open_ledger(postgres_database) as ledger:
        await ledger.commit(Change(session="s_a", create=NewSession(kind="agent"), events=(NewEvent(type="step"),) * 3))
        await ledger.check()
        name = postgres_database.split("?", maxsplit=1)[0].rsplit("/", maxsplit=1)[1]
        postgres_server.sql(name, "DELETE FROM fidelio.events WHERE seq = 3")

        with pytest.raises(LedgerDamaged, match="Session s_a does not end with the event its row names"):
            await ledger.check()

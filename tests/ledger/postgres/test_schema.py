"""Creation and migration of the schema, and databases that are refused."""

from __future__ import annotations

import asyncio
import importlib.util
from importlib.machinery import ModuleSpec
from urllib.parse import urlsplit

import pytest

from fidelio.errors import LedgerUnavailable, SchemaMismatch
from fidelio.ledger import open_ledger
from fidelio.ledger.model import Change, NewEvent, NewSession
from fidelio.ledger.postgres.database import check_server
from fidelio.ledger.postgres.schema import VERSION
from tests.ledger.postgres.server import PrivateServer
from tests.support import proves


@proves("postgres.schema")
async def test_many_processes_may_open_a_new_database_at_once(postgres_database: str) -> None:
    ledgers = await asyncio.gather(*(open_ledger(postgres_database) for _ in range(6)))
    await ledgers[0].commit(Change(session="s_a", create=NewSession(kind="agent"), events=(NewEvent(type="born"),)))
    for ledger in ledgers:
        assert [event.type for event in await ledger.events("s_a")] == ["born"]
        await ledger.close()


@proves("postgres.schema")
async def test_a_ledger_keeps_to_its_own_schema(postgres_server: PrivateServer, postgres_database: str) -> None:
    async with await open_ledger(postgres_database):
        pass
    schemas = "SELECT DISTINCT schemaname FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"

    assert postgres_server.sql(_name(postgres_database), schemas) == "fidelio"
    assert postgres_server.sql(_name(postgres_database), "SELECT version FROM fidelio.schema_version") == str(VERSION)


@proves("postgres.schema-refused")
async def test_a_newer_schema_is_refused(postgres_server: PrivateServer, postgres_database: str) -> None:
    async with await open_ledger(postgres_database):
        pass
    postgres_server.sql(_name(postgres_database), "UPDATE fidelio.schema_version SET version = 999")

    with pytest.raises(SchemaMismatch, match=r"schema version 999; this Fidelio knows up to \d+\. Update Fidelio"):
        await open_ledger(postgres_database)
    assert postgres_server.sql(_name(postgres_database), "SELECT version FROM fidelio.schema_version") == "999"


@proves("postgres.schema-refused")
async def test_a_schema_of_another_program_is_refused(postgres_server: PrivateServer, postgres_database: str) -> None:
    postgres_server.sql(_name(postgres_database), "CREATE SCHEMA fidelio; CREATE TABLE fidelio.opera (act text)")

    with pytest.raises(SchemaMismatch, match="belongs to another program"):
        await open_ledger(postgres_database)
    tables = "SELECT string_agg(tablename, ',') FROM pg_tables WHERE schemaname = 'fidelio'"
    assert postgres_server.sql(_name(postgres_database), tables) == "opera"


@proves("postgres.schema-refused")
async def test_a_ledger_whose_tables_vanish_says_so(postgres_server: PrivateServer, postgres_database: str) -> None:
    async with await open_ledger(postgres_database) as ledger:
        postgres_server.sql(_name(postgres_database), "SET client_min_messages = error; DROP SCHEMA fidelio CASCADE")

        with pytest.raises(SchemaMismatch, match="has other tables"):
            await ledger.session("s_a")


@proves("postgres.server-range")
@pytest.mark.parametrize("version", [9, 13, 14])
def test_an_older_server_is_refused(version: int) -> None:
    with pytest.raises(LedgerUnavailable, match=rf"PostgreSQL {version}; Fidelio needs 15 or newer"):
        check_server(version, "UTF8")


@proves("postgres.server-range")
@pytest.mark.parametrize("version", [15, 16, 17, 18, 19])
def test_servers_from_15_on_are_taken(version: int) -> None:
    check_server(version, "UTF8")


@proves("postgres.server-range")
async def test_a_database_that_is_not_in_utf_8_is_refused(postgres_server: PrivateServer) -> None:
    create = "CREATE DATABASE narrow ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    postgres_server.sql("postgres", create)
    try:
        with pytest.raises(LedgerUnavailable, match="encoding SQL_ASCII"):
            await open_ledger(postgres_server.url("narrow"))
    finally:
        postgres_server.sql("postgres", "DROP DATABASE narrow WITH (FORCE)")


@proves("postgres.driver")
async def test_without_the_driver_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def find_all_but_the_driver(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "asyncpg" else find(name, package)

    monkeypatch.setattr("fidelio.ledger.postgres.find_spec", find_all_but_the_driver)

    with pytest.raises(LedgerUnavailable) as refused:
        await open_ledger("postgresql://localhost/ledger")
    assert refused.value.remedy == 'Install it with `pip install "fidelio-agents[postgres]"`.'


def _name(url: str) -> str:
    return urlsplit(url).path[1:]

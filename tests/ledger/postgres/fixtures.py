"""Fixtures: a PostgreSQL server for the test session and an empty database for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ledger.postgres.server import HOW_TO_INSTALL, PrivateServer, find_programs, start_server
from tests.support.parts import require_part

HANG_UP = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
_EMPTY = "SET client_min_messages = error; DROP SCHEMA IF EXISTS fidelio CASCADE"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PrivateServer]:
    programs = find_programs()
    if programs is None:
        require_part("A PostgreSQL server", HOW_TO_INSTALL)
    server = start_server(programs)
    yield server
    server.stop()


@pytest.fixture
def postgres_database(postgres_server: PrivateServer) -> Iterator[str]:
    """The URL of a database that only this test uses, empty at its start."""
    # Emptying a used database costs a third of creating one.
    name = postgres_server.spare.pop() if postgres_server.spare else _create(postgres_server)
    yield postgres_server.url(name)
    postgres_server.sql(name, HANG_UP, _EMPTY)
    postgres_server.spare.append(name)


def _create(server: PrivateServer) -> str:
    number = int(server.sql("postgres", "SELECT count(*) FROM pg_database"))
    server.sql("postgres", f"CREATE DATABASE ledger_{number}")
    return f"ledger_{number}"


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty ledger: a new SQLite file or a PostgreSQL database."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    database: str = request.getfixturevalue("postgres_database")
    return database

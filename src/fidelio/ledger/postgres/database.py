"""Connection pool and transactions for PostgreSQL.

Connecting, waiting for a free connection, waiting for a lock and every statement have a timeout. A write is never retried here,
because only the caller can find out whether the first attempt was committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TypeAlias, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy
from asyncpg.transaction import Transaction

from fidelio.errors import LedgerClosed, LedgerUnavailable
from fidelio.ledger.postgres import hide_password
from fidelio.ledger.postgres.errors import DRIVER_ERRORS, is_disconnect, translate_errors, unknown_outcome

T = TypeVar("T")
Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"

SCHEMA = "fidelio"
MIN_SERVER_VERSION = 15
CONNECT_SECONDS = 10
ANSWER_SECONDS = 30
_MAX_CONNECTIONS = 10
_SETTINGS = {
    "application_name": "fidelio",
    "search_path": SCHEMA,
    "synchronous_commit": "on",
    "lock_timeout": "10s",
    "statement_timeout": f"{ANSWER_SECONDS}s",
    "idle_in_transaction_session_timeout": "60s",
    "jit": "off",
}


class Database:
    """A connection pool, with errors translated into `LedgerError`."""

    def __init__(self, url: str, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self.address = hide_password(url)
        self._url, self._pool = url, pool
        self._is_closed = False
        self._user_count = 0
        self._user_left = asyncio.Event()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Acquire a connection from the pool; every statement on it is a transaction of its own."""
        with self._count_user(), translate_errors(self.address):
            async with self._pool.acquire(timeout=ANSWER_SECONDS) as connection:
                try:
                    yield connection
                except DRIVER_ERRORS as error:
                    if is_disconnect(error):
                        await self._discard(connection)
                    raise

    async def write(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work` in a transaction and return its result once it is durable."""
        async with self.connection() as connection:
            transaction = connection.transaction(isolation="read_committed")
            try:
                await transaction.start()
                result = await work(connection)
            except BaseException:
                # Also on cancellation: a pooled connection must not keep an open transaction.
                await _roll_back(connection, transaction)
                raise
            await self._commit(connection, transaction)
            return result

    async def _commit(self, connection: Connection, transaction: Transaction) -> None:
        try:
            await transaction.commit()
        except DRIVER_ERRORS as error:
            if is_disconnect(error):
                await self._discard(connection)
                raise unknown_outcome(self.address) from error
            raise

    async def _discard(self, connection: Connection) -> None:
        """Discard all pooled connections: what ended this connection has probably ended the others too."""
        _terminate(connection)
        await self._pool.expire_connections()

    async def connect(self) -> asyncpg.Connection[asyncpg.Record]:
        """Open a connection outside the pool, for long use."""
        with self._count_user(), translate_errors(self.address):
            return await asyncpg.connect(
                self._url, timeout=CONNECT_SECONDS, command_timeout=ANSWER_SECONDS, server_settings=_SETTINGS
            )

    def refuse_new_work(self) -> None:
        """Refuse new calls with `LedgerClosed`; running calls finish."""
        self._is_closed = True

    async def close(self) -> None:
        self.refuse_new_work()
        while self._user_count:
            self._user_left.clear()
            await self._user_left.wait()
        with translate_errors(self.address):
            await self._pool.close()

    @contextmanager
    def _count_user(self) -> Iterator[None]:
        if self._is_closed:
            raise LedgerClosed("The ledger was closed.", remedy="Open it again.")
        self._user_count += 1
        try:
            yield
        finally:
            self._user_count -= 1
            self._user_left.set()


async def open_database(url: str) -> Database:
    with translate_errors(hide_password(url)):
        pool = asyncpg.create_pool(
            url,
            min_size=1,
            max_size=_MAX_CONNECTIONS,
            timeout=CONNECT_SECONDS,
            command_timeout=ANSWER_SECONDS,
            server_settings=_SETTINGS,
            init=_check_connection,
            reset=_skip_reset,
        )
        return Database(url, await pool)


def check_server(version: int, encoding: str) -> None:
    """Raise `LedgerUnavailable` for a server whose version or encoding is not supported."""
    if version < MIN_SERVER_VERSION:
        raise LedgerUnavailable(
            f"The server is PostgreSQL {version}; Fidelio needs {MIN_SERVER_VERSION} or newer.", remedy="Use a newer server."
        )
    if encoding.upper() not in ("UTF8", "UTF-8"):
        raise LedgerUnavailable(
            f"The database has the encoding {encoding}.", remedy="Create it with `CREATE DATABASE ... ENCODING 'UTF8'`."
        )


async def _check_connection(connection: Connection | asyncpg.Connection[asyncpg.Record]) -> None:
    check_server(connection.get_server_version().major, connection.get_settings().server_encoding)


async def _skip_reset(_: Connection | asyncpg.Connection[asyncpg.Record]) -> None:
    """Skip the reset of a connection, which costs a query: no statement here changes the state of a connection."""


async def _roll_back(connection: Connection, transaction: Transaction) -> None:
    try:
        await transaction.rollback()
    except DRIVER_ERRORS:
        # The server rolls back when the connection ends. The error that led here is raised, not this error.
        _terminate(connection)


def _terminate(connection: Connection) -> None:
    # The pool may already have released the connection.
    with suppress(asyncpg.InterfaceError):
        connection.terminate()

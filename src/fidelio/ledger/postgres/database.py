"""The way to the server: a pool for short reads and transactions, bounded in every direction.

No call hangs: connecting, waiting for a free connection, waiting for a lock and every statement have their limit. No write
is ever repeated behind the caller's back, because only the caller can find out whether the first try was kept.
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
from fidelio.ledger.postgres.errors import DRIVER_ERRORS, is_goodbye, named, shown, unknown_outcome

T = TypeVar("T")
Link: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"

SCHEMA = "fidelio"
OLDEST_SERVER = 15
CONNECT_SECONDS = 10
ANSWER_SECONDS = 30
_CONNECTIONS = 10
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
    """One pool of connections to one database."""

    def __init__(self, url: str, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self.where = shown(url)
        self._url, self._pool = url, pool
        self._closed = False
        self._users = 0
        self._left = asyncio.Event()

    @asynccontextmanager
    async def link(self) -> AsyncIterator[Link]:
        """A connection for a moment; every statement on it is a transaction of its own."""
        with self._using(), named(self.where):
            async with self._pool.acquire(timeout=ANSWER_SECONDS) as link:
                try:
                    yield link
                except DRIVER_ERRORS as error:
                    if is_goodbye(error):
                        await self._give_up(link)
                    raise

    async def write(self, work: Callable[[Link], Awaitable[T]]) -> T:
        """Carries out `work` in one transaction; returns when that is durable."""
        async with self.link() as link:
            transaction = link.transaction(isolation="read_committed")
            try:
                await transaction.start()
                result = await work(link)
            except BaseException:
                await _undo(link, transaction)
                raise
            await self._commit(link, transaction)
            return result

    async def _commit(self, link: Link, transaction: Transaction) -> None:
        try:
            await transaction.commit()
        except DRIVER_ERRORS as error:
            if is_goodbye(error):
                await self._give_up(link)
                raise unknown_outcome(self.where) from error
            raise

    async def _give_up(self, link: Link) -> None:
        """What ended one connection has probably ended all; one failed call is enough for the caller to learn it."""
        _hang_up(link)
        await self._pool.expire_connections()

    async def connect(self) -> asyncpg.Connection[asyncpg.Record]:
        """A connection outside the pool, for whoever keeps it."""
        with self._using(), named(self.where):
            return await asyncpg.connect(
                self._url, timeout=CONNECT_SECONDS, command_timeout=ANSWER_SECONDS, server_settings=_SETTINGS
            )

    def refuse(self) -> None:
        """From here on nothing more is begun; what has begun is finished."""
        self._closed = True

    async def close(self) -> None:
        self.refuse()
        while self._users:
            self._left.clear()
            await self._left.wait()
        with named(self.where):
            await self._pool.close()

    @contextmanager
    def _using(self) -> Iterator[None]:
        if self._closed:
            raise LedgerClosed("The ledger was closed.", remedy="Open it again.")
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._left.set()


async def open_database(url: str) -> Database:
    with named(shown(url)):
        pool = asyncpg.create_pool(
            url,
            min_size=1,
            max_size=_CONNECTIONS,
            timeout=CONNECT_SECONDS,
            command_timeout=ANSWER_SECONDS,
            server_settings=_SETTINGS,
            init=_refuse_unfit_server,
            reset=_leave_as_it_is,
        )
        return Database(url, await pool)


def check_server(version: int, encoding: str) -> None:
    """Refuses a server that cannot keep a ledger."""
    if version < OLDEST_SERVER:
        raise LedgerUnavailable(
            f"The server is PostgreSQL {version}; Fidelio needs {OLDEST_SERVER} or newer.", remedy="Use a newer server."
        )
    if encoding.upper() not in ("UTF8", "UTF-8"):
        raise LedgerUnavailable(
            f"The database has the encoding {encoding}.", remedy="Create it with `CREATE DATABASE ... ENCODING 'UTF8'`."
        )


async def _refuse_unfit_server(link: Link | asyncpg.Connection[asyncpg.Record]) -> None:
    check_server(link.get_server_version().major, link.get_settings().server_encoding)


async def _leave_as_it_is(_: Link | asyncpg.Connection[asyncpg.Record]) -> None:
    """No statement of ours changes a connection, so the round trip that would reset it is saved."""


async def _undo(link: Link, transaction: Transaction) -> None:
    try:
        await transaction.rollback()
    except DRIVER_ERRORS:
        # The server rolls back what it has lost the sight of; the first error is the one worth telling.
        _hang_up(link)


def _hang_up(link: Link) -> None:
    # The pool may have noticed first and taken the connection back.
    with suppress(asyncpg.InterfaceError):
        link.terminate()

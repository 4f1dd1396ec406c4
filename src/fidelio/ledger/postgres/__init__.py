"""PostgreSQL implementation of the ledger, for processes on several machines."""

from __future__ import annotations

from importlib.util import find_spec
from urllib.parse import urlsplit

from fidelio.clock import Clock, now_ms
from fidelio.errors import LedgerUnavailable
from fidelio.ledger.contract import Ledger

__all__ = ["hide_password", "open_postgres"]


async def open_postgres(url: str, *, clock: Clock = now_ms) -> Ledger:
    """Open the ledger in the database of `url`; create its tables if they are missing."""
    if find_spec("asyncpg") is None:
        raise LedgerUnavailable(
            "asyncpg, the driver for PostgreSQL, is not installed.",
            remedy='Install it with `pip install "fidelio-agents[postgres]"`.',
        )
    from fidelio.ledger.postgres.ledger import PostgresLedger  # noqa: PLC0415  # needs the driver that may be absent

    return await PostgresLedger.open(url, clock=clock)


def hide_password(url: str) -> str:
    """Return the URL without user and password, for messages and logs."""
    try:
        split_url = urlsplit(url)
        port = f":{split_url.port}" if split_url.port else ""
    except ValueError as error:
        remedy = "Write it as postgresql://user:password@host:port/database."
        raise LedgerUnavailable(f"The URL is not an address of a database: {error}.", remedy=remedy) from error
    return f"postgresql://{split_url.hostname or ''}{port}{split_url.path}"

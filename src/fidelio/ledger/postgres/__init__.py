"""PostgreSQL implementation of the ledger, for processes on several machines."""

from __future__ import annotations

from importlib.util import find_spec

from fidelio.clock import Clock, now_ms
from fidelio.errors import LedgerUnavailable
from fidelio.ledger.contract import Ledger

__all__ = ["open_postgres"]


async def open_postgres(url: str, *, clock: Clock = now_ms) -> Ledger:
    """Open the ledger in the database of `url`; create its tables if they are missing."""
    if find_spec("asyncpg") is None:
        raise LedgerUnavailable(
            "asyncpg, the driver for PostgreSQL, is not installed.",
            remedy='Install it with `pip install "fidelio-agents[postgres]"`.',
        )
    from fidelio.ledger.postgres.ledger import PostgresLedger  # noqa: PLC0415  # needs the driver that may be absent

    return await PostgresLedger.open(url, clock=clock)

"""The ledger for many machines: one PostgreSQL database, with as many processes on it as the server takes."""

from __future__ import annotations

from importlib.util import find_spec

from fidelio.clock import Clock, now_ms
from fidelio.errors import LedgerUnavailable
from fidelio.ledger.contract import Ledger

__all__ = ["open_postgres"]


async def open_postgres(url: str, *, clock: Clock = now_ms) -> Ledger:
    """Opens the ledger in the database `url` names, and creates its tables there the first time."""
    if find_spec("asyncpg") is None:
        raise LedgerUnavailable(
            "The driver for PostgreSQL is not installed.", remedy='Install it with `pip install "fidelio-agents[postgres]"`.'
        )
    from fidelio.ledger.postgres.ledger import PostgresLedger  # noqa: PLC0415  # needs the driver that may be absent

    return await PostgresLedger.open(url, clock=clock)

"""Ledger: durable store of sessions, hash-chained events, requests, documents and jobs, with full-text search.

    async with await open_ledger(home.ledger) as ledger:
        await ledger.commit(Change(session=id, create=NewSession(kind="workflow"), events=(NewEvent(type="session.started"),)))

A file path opens SQLite and a `postgresql://` URL opens PostgreSQL. Callers use the `Ledger` contract and see no difference.
"""

from __future__ import annotations

import os

from fidelio.clock import Clock, now_ms
from fidelio.ledger.contract import Ledger
from fidelio.ledger.postgres import open_postgres
from fidelio.settings import POSTGRES

__all__ = ["Ledger", "open_ledger"]


async def open_ledger(where: str | os.PathLike[str], *, clock: Clock = now_ms) -> Ledger:
    """Open the ledger at a file path or a PostgreSQL URL; create it if it does not exist."""
    if isinstance(where, str) and where.startswith(POSTGRES):
        return await open_postgres(where, clock=clock)
    from fidelio.ledger.sqlite import open_sqlite  # noqa: PLC0415  # the driver is imported only if it is used

    return await open_sqlite(where, clock=clock)

"""The only truth: sessions, hash-chained events, requests, documents, jobs and search over one database.

    async with await open_ledger(home.ledger) as ledger:
        await ledger.commit(Change(session=id, create=NewSession(kind="workflow"), events=(NewEvent(type="session.started"),)))

A path opens SQLite, a `postgresql://` address PostgreSQL; everything above this package works with both.
"""

from __future__ import annotations

import os

from fidelio.clock import Clock, now_ms
from fidelio.ledger.contract import Ledger
from fidelio.settings import POSTGRES

__all__ = ["Ledger", "open_ledger"]


async def open_ledger(where: str | os.PathLike[str], *, clock: Clock = now_ms) -> Ledger:
    if isinstance(where, str) and where.startswith(POSTGRES):
        from fidelio.ledger.postgres import open_postgres  # noqa: PLC0415  # only who uses it pays for its driver

        return await open_postgres(where, clock=clock)
    from fidelio.ledger.sqlite import open_sqlite  # noqa: PLC0415  # only who uses it pays for its driver

    return await open_sqlite(where, clock=clock)

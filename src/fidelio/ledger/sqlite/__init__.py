"""The default ledger: one SQLite file, as many processes on it as you like."""

from __future__ import annotations

import asyncio
import os

from fidelio.clock import Clock, now_ms
from fidelio.ledger.sqlite.connection import PATIENCE_MS, Place
from fidelio.ledger.sqlite.ledger import SqliteLedger
from fidelio.ledger.sqlite.writer import Writer

__all__ = ["SqliteLedger", "open_sqlite"]


async def open_sqlite(
    path: str | os.PathLike[str], *, clock: Clock = now_ms, patience_ms: int = PATIENCE_MS, vfs: str | None = None
) -> SqliteLedger:
    """Opens or creates the file. `vfs` names a virtual file system, through which tests take power and space away."""
    place = Place(os.fspath(path), vfs, patience_ms)
    return SqliteLedger(place, await asyncio.to_thread(Writer, place), clock)

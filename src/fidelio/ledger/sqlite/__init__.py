"""SQLite implementation of the ledger, the default: a file that several processes may use at the same time."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from fidelio.clock import Clock, now_ms
from fidelio.ledger.sqlite.connection import BUSY_TIMEOUT_MS, ConnectionOptions, is_read_only, require_readable
from fidelio.ledger.sqlite.ledger import SqliteLedger
from fidelio.ledger.sqlite.writer import ReadOnlyWriter, Writer

__all__ = ["SqliteLedger", "open_sqlite"]


async def open_sqlite(
    path: str | os.PathLike[str], *, clock: Clock = now_ms, busy_timeout_ms: int = BUSY_TIMEOUT_MS, vfs: str | None = None
) -> SqliteLedger:
    """Open or create the file; a read-only file can only be read.

    `vfs` names a virtual file system, with which tests simulate power loss and full disks.
    """
    options = ConnectionOptions(os.fspath(path), vfs, busy_timeout_ms, vfs is None and is_read_only(Path(path)))
    if options.read_only:
        require_readable(options)
        return SqliteLedger(options, ReadOnlyWriter(options.path), clock)
    return SqliteLedger(options, await asyncio.to_thread(Writer, options), clock)

"""What SQLite complains about, said in the ledger's own words.

A caller must be able to tell a full disk from a damaged file without knowing which library is underneath, and must read what to
do about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from fidelio.errors import (
    LedgerBusy,
    LedgerClosed,
    LedgerDamaged,
    LedgerError,
    LedgerFull,
    LedgerUnavailable,
    SchemaMismatch,
)


@contextmanager
def named(path: str) -> Iterator[None]:
    """Turns whatever SQLite raises inside into the error with a name."""
    try:
        yield
    except apsw.Error as error:
        raise translate(error, path) from error


def translate(error: apsw.Error, path: str) -> LedgerError:
    match error:
        case apsw.FullError():
            return LedgerFull(
                f"The disk of {path} is full.", remedy="Free some space and repeat; what was acknowledged is safe."
            )
        case apsw.BusyError() | apsw.LockedError():
            return LedgerBusy(f"Another process held {path} for too long.", remedy="Repeat, or end the process that holds it.")
        case apsw.CorruptError():
            return LedgerDamaged(f"{path} is damaged: {error}.", remedy="Keep a copy, and restore the file from a backup.")
        case apsw.NotADBError():
            return LedgerDamaged(f"{path} is not a database, or was overwritten.", remedy="Restore the file from a backup.")
        case apsw.SchemaChangeError():
            return SchemaMismatch(f"The schema of {path} was changed while it was used.", remedy="Open the ledger again.")
        case apsw.ConnectionClosedError():
            return LedgerClosed("The ledger was closed.", remedy="Open it again.")
        case apsw.IOError() if getattr(error, "extendedresult", 0) in _DAMAGE:
            return LedgerDamaged(f"{path} is shorter than it was: {error}.", remedy="Restore the file from a backup.")
    return LedgerUnavailable(f"{path} cannot be used: {error}.", remedy="See that the file and its directory can be written.")


_DAMAGE = (apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS, apsw.SQLITE_IOERR_DATA)

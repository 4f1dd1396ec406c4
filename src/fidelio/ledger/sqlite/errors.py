"""What SQLite complains about, said in the ledger's own words.

A caller must be able to tell a full disk from a damaged file without knowing which library is underneath, and must read what to
do about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from fidelio.errors import LedgerBusy, LedgerClosed, LedgerDamaged, LedgerError, LedgerFull, LedgerUnavailable, SchemaMismatch

_RESTORE = "Keep a copy of it, and restore the file from a backup."
_NAMES: tuple[tuple[tuple[type[apsw.Error], ...], type[LedgerError], str, str], ...] = (
    (
        (apsw.FullError,),
        LedgerFull,
        "The disk of {path} is full.",
        "Free some space and repeat; what was acknowledged is safe.",
    ),
    (
        (apsw.BusyError, apsw.LockedError),
        LedgerBusy,
        "Another process held {path} for too long.",
        "Repeat, or end the process that holds it.",
    ),
    ((apsw.NotADBError,), LedgerDamaged, "{path} is not a database, or was overwritten.", _RESTORE),
    ((apsw.CorruptError,), LedgerDamaged, "{path} is damaged: {error}.", _RESTORE),
    ((apsw.SchemaChangeError,), SchemaMismatch, "The schema of {path} was changed meanwhile.", "Open the ledger again."),
    ((apsw.ConnectionClosedError,), LedgerClosed, "The ledger was closed.", "Open it again."),
)
# The index of the write-ahead file finds no place to grow, which even a reader needs.
_NO_ROOM = apsw.SQLITE_IOERR_SHMSIZE
_DAMAGE = (apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS, apsw.SQLITE_IOERR_DATA)


@contextmanager
def named(path: str) -> Iterator[None]:
    """Turns whatever SQLite raises inside into the error with a name."""
    try:
        yield
    except apsw.Error as error:
        raise translate(error, path) from error


def translate(error: apsw.Error, path: str) -> LedgerError:
    if getattr(error, "extendedresult", 0) == _NO_ROOM:
        error = apsw.FullError(str(error))
    for causes, name, sentence, remedy in _NAMES:
        if isinstance(error, causes):
            return name(sentence.format(path=path, error=error), remedy=remedy)
    if getattr(error, "extendedresult", 0) in _DAMAGE:
        return LedgerDamaged(f"{path} is shorter than it was: {error}.", remedy=_RESTORE)
    return LedgerUnavailable(f"{path} cannot be used: {error}.", remedy="See that the file and its directory can be written.")

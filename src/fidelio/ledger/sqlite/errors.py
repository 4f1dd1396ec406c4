"""Translation of SQLite errors into `LedgerError`, so that callers need not know which database raised them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from fidelio.errors import LedgerBusy, LedgerClosed, LedgerDamaged, LedgerError, LedgerFull, LedgerUnavailable, SchemaMismatch

_RESTORE = "Keep a copy of it, and restore the file from a backup."
_TRANSLATIONS: tuple[tuple[tuple[type[apsw.Error], ...], type[LedgerError], str, str], ...] = (
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
# The shared-memory file of the WAL cannot grow because the disk is full; readers need it too.
_NO_SHARED_MEMORY = apsw.SQLITE_IOERR_SHMSIZE
_DAMAGE_CODES = (apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS, apsw.SQLITE_IOERR_DATA)


@contextmanager
def translate_errors(path: str) -> Iterator[None]:
    """Raise SQLite errors of the block as `LedgerError`."""
    try:
        yield
    except apsw.Error as error:
        raise translate_error(error, path) from error


def translate_error(error: apsw.Error, path: str) -> LedgerError:
    if getattr(error, "extendedresult", 0) == _NO_SHARED_MEMORY:
        error = apsw.FullError(str(error))
    for causes, error_type, sentence, remedy in _TRANSLATIONS:
        if isinstance(error, causes):
            return error_type(sentence.format(path=path, error=error), remedy=remedy)
    if getattr(error, "extendedresult", 0) in _DAMAGE_CODES:
        return LedgerDamaged(f"{path} is shorter than it was: {error}.", remedy=_RESTORE)
    return LedgerUnavailable(f"{path} cannot be used: {error}.", remedy="Make the file and its directory writable.")

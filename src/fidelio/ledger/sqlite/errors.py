"""Translation of SQLite errors into `LedgerError`, so that callers need not know which database raised them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw
import msgspec

from fidelio.errors import (
    LedgerBusy,
    LedgerClosed,
    LedgerDamaged,
    LedgerError,
    LedgerFull,
    LedgerUnavailable,
    SchemaMismatch,
    Text,
)
from fidelio.errors.ledger import RESTORE

_TRANSLATIONS: tuple[tuple[tuple[type[apsw.Error], ...], type[LedgerError], str, Text], ...] = (
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
    ((apsw.NotADBError,), LedgerDamaged, "{path} is not a database, or was overwritten.", RESTORE),
    ((apsw.CorruptError,), LedgerDamaged, "{path} is damaged: {error}.", RESTORE),
    # All statements are constants: one that fails meets a damaged schema, index or value.
    (
        (apsw.SQLError, apsw.MismatchError, apsw.ConstraintError, apsw.TooBigError, apsw.NoMemError, apsw.RangeError),
        LedgerDamaged,
        "{path} is damaged: {error}.",
        RESTORE,
    ),
    ((apsw.SchemaChangeError,), SchemaMismatch, "The schema of {path} was changed meanwhile.", "Open the ledger again."),
    ((apsw.ConnectionClosedError,), LedgerClosed, "The ledger was closed.", "Open it again."),
)
# The shared-memory file of the WAL cannot grow because the disk is full; readers need it too.
_NO_SHARED_MEMORY = apsw.SQLITE_IOERR_SHMSIZE
_DAMAGE_CODES = (apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS, apsw.SQLITE_IOERR_DATA)
# What a read raises, also for a text that is not UTF-8 or JSON because the file is damaged.
DRIVER_ERRORS = (apsw.Error, UnicodeDecodeError, msgspec.MsgspecError)


@contextmanager
def translate_errors(path: str) -> Iterator[None]:
    """Raise SQLite errors of the block as `LedgerError`."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise translate_error(error, path) from error


def translate_error(error: Exception, path: str) -> LedgerError:
    if not isinstance(error, apsw.Error):
        return LedgerDamaged(f"{path} is damaged: a value cannot be decoded ({error}).", remedy=RESTORE)
    if getattr(error, "extendedresult", 0) == _NO_SHARED_MEMORY:
        error = apsw.FullError(str(error))
    for causes, error_type, sentence, remedy in _TRANSLATIONS:
        if isinstance(error, causes):
            return error_type(sentence.format(path=path, error=error), remedy=remedy)
    if getattr(error, "extendedresult", 0) in _DAMAGE_CODES:
        return LedgerDamaged(f"{path} is shorter than it was: {error}.", remedy=RESTORE)
    return LedgerUnavailable(f"{path} cannot be used: {error}.", remedy="Make the file and its directory writable.")

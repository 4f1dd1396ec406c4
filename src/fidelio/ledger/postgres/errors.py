"""Translation of PostgreSQL and network errors into `LedgerError`.

An error before COMMIT means that nothing was written. A connection that is lost during COMMIT leaves the outcome unknown, and
`unknown_outcome` says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from fidelio.errors import BadRecord, LedgerBusy, LedgerDamaged, LedgerError, LedgerFull, LedgerUnavailable, SchemaMismatch

# asyncpg raises InternalClientError if the server ends the connection while a statement is being sent.
DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)

_REPEAT = "Nothing was written; retry."
_RESTORE = "Restore the database from a backup."
_RIGHTS = "Check the database, the user and its rights."
_TRANSLATIONS: tuple[tuple[tuple[type[Exception], ...], type[LedgerError], str, str], ...] = (
    ((asyncpg.DiskFullError,), LedgerFull, "has a full disk", "Free some space and repeat; what was acknowledged is safe."),
    ((asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError), LedgerBusy, "was busy for too long", _REPEAT),
    ((asyncpg.DeadlockDetectedError, asyncpg.SerializationError), LedgerBusy, "was busy with the same rows", _REPEAT),
    ((asyncpg.TooManyConnectionsError, asyncpg.OutOfMemoryError), LedgerBusy, "has no free connection or memory", _REPEAT),
    ((asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError), LedgerDamaged, "is damaged", _RESTORE),
    ((asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError), SchemaMismatch, "has other tables", "Open the ledger again."),
    ((asyncpg.InvalidAuthorizationSpecificationError,), LedgerUnavailable, "refuses the login", _RIGHTS),
    ((asyncpg.InvalidCatalogNameError,), LedgerUnavailable, "does not exist", "Create it with `createdb`."),
    (
        (asyncpg.InsufficientPrivilegeError, asyncpg.ReadOnlySQLTransactionError),
        LedgerUnavailable,
        "refuses a statement",
        _RIGHTS,
    ),
    (
        (asyncpg.DataError,),
        BadRecord,
        "cannot store a value",
        "Use text without NUL and unpaired surrogates, and integers of up to 63 bits.",
    ),
    ((TimeoutError,), LedgerUnavailable, "did not answer in time", "Check the server and the network."),
)
# SQLSTATE classes of a connection that ends because the server shuts down, crashes or starts.
_DISCONNECT_STATES = ("57P", "08")


@contextmanager
def translate_errors(address: str) -> Iterator[None]:
    """Raise driver and network errors of the block as `LedgerError`."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise translate_error(error, address) from error


def translate_error(error: Exception, address: str) -> LedgerError:
    for kinds, name, what, remedy in _TRANSLATIONS:
        if isinstance(error, kinds):
            return name(f"{address} {what}{f': {error}' if str(error) else ''}.", remedy=remedy)
    if is_disconnect(error):
        return LedgerUnavailable(f"{address} cannot be reached: {error}.", remedy="Check that the server runs, and repeat.")
    return LedgerError(f"{address} refused a statement: {error}.", remedy="Look into the server's log.")


def is_disconnect(error: Exception) -> bool:
    """Whether the connection ended before the server answered."""
    return not isinstance(error, asyncpg.PostgresError) or str(error.sqlstate).startswith(_DISCONNECT_STATES)


def unknown_outcome(address: str) -> LedgerUnavailable:
    return LedgerUnavailable(
        f"{address} went away while it was committing: the outcome is unknown.",
        remedy="Read the session again: the change was applied as a whole or not at all. Repeat it only if it was not.",
    )

"""What PostgreSQL and the way to it complain about, said in the ledger's own words.

The most important distinction is made here too: an error before the commit means that nothing was written, an error in place of
the answer to a commit means that nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import asyncpg

from fidelio.errors import BadRecord, LedgerBusy, LedgerDamaged, LedgerError, LedgerFull, LedgerUnavailable, SchemaMismatch

# The internal error is what the driver says when the server ends a connection at the very moment a statement is sent.
DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)

_REPEAT = "Nothing was written; repeat."
_RESTORE = "Restore the database from a backup."
_RIGHTS = "Check the database, the user and its rights."
_NAMES: tuple[tuple[tuple[type[Exception], ...], type[LedgerError], str, str], ...] = (
    ((asyncpg.DiskFullError,), LedgerFull, "has a full disk", "Free some space and repeat; what was acknowledged is safe."),
    ((asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError), LedgerBusy, "was busy for too long", _REPEAT),
    ((asyncpg.DeadlockDetectedError, asyncpg.SerializationError), LedgerBusy, "was busy with the same rows", _REPEAT),
    ((asyncpg.TooManyConnectionsError, asyncpg.OutOfMemoryError), LedgerBusy, "has no room for us", _REPEAT),
    ((asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError), LedgerDamaged, "is damaged", _RESTORE),
    ((asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError), SchemaMismatch, "has other tables", "Open the ledger again."),
    ((asyncpg.InvalidAuthorizationSpecificationError,), LedgerUnavailable, "does not let us in", _RIGHTS),
    ((asyncpg.InvalidCatalogNameError,), LedgerUnavailable, "is not there", "Create it with `createdb`."),
    ((asyncpg.InsufficientPrivilegeError, asyncpg.ReadOnlySQLTransactionError), LedgerUnavailable, "refuses us", _RIGHTS),
    (
        (asyncpg.DataError,),
        BadRecord,
        "cannot take a value",
        "Use text without NUL and half pairs, and numbers of up to 63 bits.",
    ),
    ((TimeoutError,), LedgerUnavailable, "did not answer in time", "Check the server and the way to it."),
)
# The server says goodbye instead of answering: shutting down, crashing, or starting up.
_GOODBYE = ("57P", "08")


def shown(url: str) -> str:
    """The address without the password, for people and logs."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError as error:
        remedy = "Write it as postgresql://user:password@host:port/database."
        raise LedgerUnavailable(f"This is not an address of a database: {error}.", remedy=remedy) from error
    return f"postgresql://{parts.hostname or ''}{port}{parts.path}"


@contextmanager
def named(where: str) -> Iterator[None]:
    """Turns whatever the driver raises inside into the error with a name."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise translate(error, where) from error


def translate(error: Exception, where: str) -> LedgerError:
    for kinds, name, what, remedy in _NAMES:
        if isinstance(error, kinds):
            return name(f"{where} {what}{f': {error}' if str(error) else ''}.", remedy=remedy)
    if is_goodbye(error):
        return LedgerUnavailable(f"{where} cannot be reached: {error}.", remedy="Check that the server runs, and repeat.")
    return LedgerError(f"{where} refused a statement: {error}.", remedy="Look into the server's log.")


def is_goodbye(error: Exception) -> bool:
    """Whether the connection ended instead of an answer being given."""
    return not isinstance(error, asyncpg.PostgresError) or str(error.sqlstate).startswith(_GOODBYE)


def unknown_outcome(where: str) -> LedgerUnavailable:
    return LedgerUnavailable(
        f"{where} went away while it was committing: the outcome is unknown.",
        remedy="Read the session again: the change is there as a whole or not at all. Repeat it only if it is not.",
    )

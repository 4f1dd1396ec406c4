"""Opening the file: the settings that every connection must agree on, and the patience with other processes.

SQLite's own busy timeout sleeps in growing steps of up to 100 ms, so under load the one that waited longest is the least likely
to get in. Short random pauses keep it fair; an overall bound turns a stuck neighbour into an error with a name.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import suppress
from pathlib import Path

import apsw
import msgspec

from fidelio.errors import LedgerDamaged, LedgerUnavailable
from fidelio.home import sync_directory
from fidelio.ids import new_id
from fidelio.ledger.sqlite.errors import named
from fidelio.ledger.sqlite.schema import migrate, run, version

PAUSES_S = (0.0005, 0.004)
PATIENCE_MS = 10_000
SMALLEST_PAGE = 512

_WRITING = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
_SETTINGS = """
PRAGMA synchronous = FULL;
PRAGMA secure_delete = ON;
PRAGMA foreign_keys = OFF;
PRAGMA trusted_schema = OFF;
PRAGMA temp_store = MEMORY;
PRAGMA mmap_size = 0;
PRAGMA cache_size = -16000;
PRAGMA journal_size_limit = 16777216;
"""


class Place(msgspec.Struct, frozen=True):
    """Which file, through which virtual file system, and how long to wait for others."""

    path: str
    vfs: str | None = None
    patience_ms: int = PATIENCE_MS


class Patience:
    """Waits for whoever holds the file, up to a bound; `hurried`, not at all."""

    def __init__(self, bound_ms: int) -> None:
        self.hurried = False
        self._bound_ms = bound_ms
        self._began = 0.0

    def __call__(self, attempt: int) -> bool:
        now = time.monotonic()
        self._began = now if attempt == 0 else self._began
        if self.hurried or (now - self._began) * 1000 >= self._bound_ms:
            return False
        time.sleep(random.uniform(*PAUSES_S))  # noqa: S311  # fairness, not secrecy
        return True


def open_writer(place: Place) -> apsw.Connection:
    """The connection that writes; creates the file for this user only and brings its schema up to date."""
    if place.vfs is None:
        _ensure(place)
    with named(place.path):
        return _ready(_connect(place, _WRITING), place.path)


def _ready(connection: apsw.Connection, path: str) -> apsw.Connection:
    try:
        # Looked at before anything is set: a file that is not ours must stay as it is.
        version(connection, path)
        _use_wal(connection)
        run(connection, _SETTINGS)
        migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(place: Place) -> apsw.Connection:
    """A connection that cannot write. It is not opened read-only: reading a WAL file may have to recover it."""
    with named(place.path):
        connection = _connect(place, apsw.SQLITE_OPEN_READWRITE)
        run(connection, _SETTINGS + "PRAGMA query_only = ON;")
    return connection


def _ensure(place: Place) -> None:
    """The file is there and may be a ledger. A new one appears whole, so an empty one is never ours: it has been cut off."""
    path = Path(place.path)
    try:
        if not path.exists():
            _create(place, path)
        with path.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise LedgerUnavailable(
            f"{path} cannot be opened: {error.strerror}.", remedy="See that the file and its directory can be written."
        ) from error
    if size < SMALLEST_PAGE:
        # SQLite would take such a stump for a new database and begin to fill it.
        remedy = "Restore the file from a backup, or remove it to begin with an empty ledger."
        raise LedgerDamaged(f"{path} has only {size} bytes left.", remedy=remedy)


def _create(place: Place, path: Path) -> None:
    """Made under another name and then linked: whoever links first wins, and the others use the winner's file."""
    draft = path.with_name(f".{path.name}.{new_id('')}")
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with named(place.path):
            _ready(_connect(Place(str(draft), patience_ms=place.patience_ms), _WRITING), str(draft)).close()
        with suppress(FileExistsError):
            os.link(draft, path)
        sync_directory(path.parent)
    finally:
        draft.unlink()


def _connect(place: Place, flags: int) -> apsw.Connection:
    connection = apsw.Connection(place.path, flags=flags, vfs=place.vfs)
    connection.set_busy_handler(Patience(place.patience_ms))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    return connection


def _use_wal(connection: apsw.Connection) -> None:
    # Switching a new file to WAL needs it alone for a moment, and SQLite does not ask the busy handler then.
    wait = Patience(PATIENCE_MS)
    for attempt in range(1_000_000):
        try:
            connection.execute("PRAGMA journal_mode = WAL").get  # noqa: B018  # reading the row is what runs the statement
        except apsw.BusyError:
            if not wait(attempt):
                raise
        else:
            return


# Before this, two writers on one file could damage it, rarely.
SAFE_VERSION = (3, 51, 3)


def sqlite_version() -> tuple[int, ...]:
    return tuple(map(int, apsw.sqlite_lib_version().split(".")))


def driver_version() -> str:
    return apsw.apsw_version()

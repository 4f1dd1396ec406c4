"""SQLite connections: creation of the file, pragmas and busy handler.

The built-in busy timeout of SQLite sleeps in growing steps of up to 100 ms, so under load the process that waited longest is
the least likely to get the lock. `BusyHandler` sleeps for short random intervals instead and gives up after a timeout.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import apsw
import msgspec

from fidelio.errors import LedgerDamaged, LedgerUnavailable, SchemaMismatch
from fidelio.home import sync_directory
from fidelio.ids import new_id
from fidelio.ledger.sqlite.errors import translate_errors
from fidelio.ledger.sqlite.schema import VERSION, migrate, read_version, run_script

RETRY_INTERVAL_S = (0.0005, 0.004)
BUSY_TIMEOUT_MS = 10_000
SMALLEST_PAGE = 512
_COPY = "Copy the home to a directory that you can write, and name the copy with --home DIR."

_WRITE_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
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


class ConnectionOptions(msgspec.Struct, frozen=True):
    """Options of a connection: file, virtual file system and the time to wait for locks of other processes.

    `read_only`: this process cannot write the file or its directory, so nothing is created there either.
    """

    path: str
    vfs: str | None = None
    busy_timeout_ms: int = BUSY_TIMEOUT_MS
    read_only: bool = False


class BusyHandler:
    """Busy handler of a connection: waits for the lock up to a timeout, or not at all while `no_wait` is set."""

    def __init__(self, timeout_ms: int) -> None:
        self.no_wait = False
        self._timeout_ms = timeout_ms
        self._started_at = 0.0

    def __call__(self, attempt: int) -> bool:
        now = time.monotonic()
        self._started_at = now if attempt == 0 else self._started_at
        if self.no_wait or (now - self._started_at) * 1000 >= self._timeout_ms:
            return False
        time.sleep(random.uniform(*RETRY_INTERVAL_S))  # noqa: S311  # fairness, not secrecy
        return True


def open_writer(options: ConnectionOptions) -> apsw.Connection:
    """Open the connection that writes; create the file with mode 0600 and migrate its schema."""
    if options.vfs is None:
        _ensure_file(options)
    with translate_errors(options.path):
        return _configure(_connect(options, _WRITE_FLAGS), options.path)


def _configure(connection: apsw.Connection, path: str) -> apsw.Connection:
    try:
        # Checked before anything is written: the database of another program must not be changed.
        read_version(connection, path)
        _enable_wal(connection)
        run_script(connection, _SETTINGS)
        migrate(connection, path)
    except BaseException:
        # Also on an interrupt: an unclosed connection would keep its lock on the file.
        connection.close()
        raise
    return connection


def open_reader(options: ConnectionOptions) -> apsw.Connection:
    """Create a connection that cannot write. It does not use read-only mode, because reading may require WAL recovery."""
    with translate_errors(options.path):
        connection = _connect_read_only(options) if options.read_only else _connect(options, apsw.SQLITE_OPEN_READWRITE)
        run_script(connection, _SETTINGS + "PRAGMA query_only = ON;")
    return connection


def is_read_only(path: Path) -> bool:
    """Whether the file exists and this process cannot write it or its directory, as on a read-only file system."""
    return path.exists() and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


def require_readable(options: ConnectionOptions) -> None:
    """Check a read-only file once, as `open_writer` does; its schema cannot be migrated."""
    _require_size(Path(options.path), os.path.getsize(options.path))  # noqa: PTH202  # a text, as everywhere here
    with translate_errors(options.path):
        connection = _connect_read_only(options)
        try:
            found = read_version(connection, options.path)
        finally:
            connection.close()
    if found < VERSION:
        raise SchemaMismatch(f"{options.path} has schema version {found} and cannot be updated here.", remedy=_COPY)


def _connect_read_only(options: ConnectionOptions) -> apsw.Connection:
    """Open without creating files. A WAL with content needs its shared-memory file; without content nobody writes."""
    wal, shared = Path(f"{options.path}-wal"), Path(f"{options.path}-shm")
    has_content = wal.exists() and wal.stat().st_size > 0
    if has_content and not shared.exists() and not os.access(wal.parent, os.W_OK):
        raise LedgerUnavailable(
            f"{options.path} has changes in {wal.name} that cannot be read here: {shared.name} is missing and cannot be made.",
            remedy=_COPY,
        )
    mode = "mode=ro" if has_content else "immutable=1"
    address = f"file:{quote(str(Path(options.path).absolute()))}?{mode}"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return _connect(ConnectionOptions(address, options.vfs, options.busy_timeout_ms), flags)


def _ensure_file(options: ConnectionOptions) -> None:
    """Create the file if it is missing, and refuse a truncated file. A new file is never visible before it is complete."""
    path = Path(options.path)
    try:
        if not path.exists():
            _create(options, path)
        with path.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise LedgerUnavailable(
            f"{path} cannot be opened: {error.strerror}.", remedy="Make the file and its directory writable."
        ) from error
    _require_size(path, size)


def _require_size(path: Path, size: int) -> None:
    if size < SMALLEST_PAGE:
        # SQLite would treat such a file as a new database and hide that the data is lost.
        remedy = "Restore the file from a backup, or remove it to begin with an empty ledger."
        raise LedgerDamaged(f"{path} has only {size} bytes left.", remedy=remedy)


def _create(options: ConnectionOptions, path: Path) -> None:
    """Create the database under a temporary name and link it: if several processes do this, the first link wins."""
    temporary = path.with_name(f".{path.name}.{new_id('')}")
    os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with translate_errors(options.path):
            _configure(
                _connect(ConnectionOptions(str(temporary), busy_timeout_ms=options.busy_timeout_ms), _WRITE_FLAGS),
                str(temporary),
            ).close()
        with suppress(FileExistsError):
            os.link(temporary, path)
        sync_directory(path.parent)
    finally:
        temporary.unlink()


def _connect(options: ConnectionOptions, flags: int) -> apsw.Connection:
    connection = apsw.Connection(options.path, flags=flags, vfs=options.vfs)
    connection.set_busy_handler(BusyHandler(options.busy_timeout_ms))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    return connection


def _enable_wal(connection: apsw.Connection) -> None:
    # Switching to WAL needs an exclusive lock, and SQLite does not call the busy handler for it.
    busy_handler = BusyHandler(BUSY_TIMEOUT_MS)
    for attempt in range(1_000_000):
        try:
            connection.execute("PRAGMA journal_mode = WAL").get  # noqa: B018  # reading the row is what runs the statement
        except apsw.BusyError:
            if not busy_handler(attempt):
                raise
        else:
            return


# Stored with the erasure itself, so that another process finishes it if this one is killed.
_NOTE_PENDING = "INSERT OR REPLACE INTO search_progress VALUES ('erasure', 1)"


def note_pending(connection: apsw.Connection) -> None:
    """Note, in the transaction that erases, that the WAL file still contains the erased pages."""
    connection.execute(_NOTE_PENDING)


def is_pending(connection: apsw.Connection) -> bool:
    return connection.execute("SELECT 1 FROM search_progress WHERE source = 'erasure'").get is not None


def truncate_wal(connection: apsw.Connection) -> bool:
    """Truncate the WAL file, which still contains the erased pages; return False if a reader still needs them."""
    is_busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").get
    if is_busy:
        return False
    connection.execute("DELETE FROM search_progress WHERE source = 'erasure'")
    return True


# Earlier versions could, rarely, corrupt a database with several concurrent writers.
SAFE_VERSION = (3, 51, 3)


def sqlite_version() -> tuple[int, ...]:
    return tuple(map(int, apsw.sqlite_lib_version().split(".")))


def driver_version() -> str:
    return apsw.apsw_version()

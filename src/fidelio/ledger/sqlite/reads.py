"""Pool of reading connections, and SQL for reading sessions and events.

Reads run in the thread of the caller, and a connection serves a single thread at a time. The pool holds as many connections as
there are concurrent reads, usually only one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from fidelio.errors import LedgerClosed
from fidelio.ledger.checks import name_not_found, session_not_found
from fidelio.ledger.model import Event, Page, Session, SessionHead, SessionKind
from fidelio.ledger.paging import clamp_page_size, decode_number_cursor
from fidelio.ledger.rows import LAST_CHARACTER, SESSION, STRAY_SESSIONS, to_event, to_head, to_page, to_session
from fidelio.ledger.sqlite.apply import require_session
from fidelio.ledger.sqlite.connection import ConnectionOptions, open_reader
from fidelio.ledger.sqlite.errors import DRIVER_ERRORS, translate_error
from fidelio.ledger.sqlite.schema import EVENT, fetch, join_sql


class ReadPool:
    """Connection pool: `with pool.connection() as connection:`. SQLite errors of the block are raised as `LedgerError`."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options
        self._free: list[apsw.Connection] = []
        self._lock = threading.Lock()
        self._is_closed = False

    @contextmanager
    def connection(self) -> Iterator[apsw.Connection]:
        connection = self._acquire()
        try:
            yield connection
        except DRIVER_ERRORS as error:
            raise translate_error(error, self._options.path) from error
        finally:
            self._release(connection)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
        for connection in free:
            connection.close()

    def _acquire(self) -> apsw.Connection:
        with self._lock:
            if self._is_closed:
                raise LedgerClosed("The ledger was closed.", remedy="Open it again.")
            if self._free:
                return self._free.pop()
        return open_reader(self._options)

    def _release(self, connection: apsw.Connection) -> None:
        with self._lock:
            if not self._is_closed:
                self._free.append(connection)
                return
        connection.close()


_BY_ID = join_sql("SELECT", SESSION, "FROM sessions WHERE id = ?")
# Must be textually equal to the WHERE clause of the partial indexes, or SQLite does not use them.
NOT_DELETED = "deleted = 0"
_BY_NAME = join_sql("SELECT", SESSION, "FROM sessions WHERE namespace = ? AND name = ?")


def read_session(connection: apsw.Connection, session: str) -> Session:
    row = connection.execute(_BY_ID, (session,)).get
    if row is None:
        raise session_not_found(session)
    return to_session(row)


def read_session_by_name(connection: apsw.Connection, name: str, *, namespace: str = "") -> Session:
    row = connection.execute(_BY_NAME, (namespace, name)).get
    if row is None:
        raise name_not_found(name)
    return to_session(row)


def list_sessions(  # noqa: PLR0913  # the filters of the contract
    connection: apsw.Connection,
    *,
    kind: SessionKind | None = None,
    status: str | None = None,
    namespace: str | None = None,
    parent: str | None = None,
    name: str | None = None,
    without: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
    oldest_first: bool = False,
) -> Page[Session]:
    filters = {"kind": kind, "status": status, "namespace": namespace, "parent": parent, "name": name}
    others = None if without is None else f"{without}*"
    beyond, order = ("key > ?", "ORDER BY key LIMIT ?") if oldest_first else ("key < ?", "ORDER BY key DESC LIMIT ?")
    values, where = _where(filters, {"namespace NOT GLOB ?": others, beyond: decode_number_cursor(cursor, "sessions")})
    size = clamp_page_size(limit)
    text = join_sql("SELECT key,", SESSION, "FROM sessions WHERE", where, order)
    rows = fetch(connection, text, (*values, size + 1))
    return to_page("sessions", rows, size, to_session)


_ALL = join_sql("SELECT key,", SESSION, "FROM sessions WHERE key < ? ORDER BY key DESC LIMIT ?")
_AFTER_ALL = (1 << 63) - 1


def list_all_sessions(connection: apsw.Connection, *, cursor: str | None = None, limit: int = 50) -> Page[Session]:
    before, size = decode_number_cursor(cursor, "sessions"), clamp_page_size(limit)
    rows = fetch(connection, _ALL, (_AFTER_ALL if before is None else before, size + 1))
    return to_page("sessions", rows, size, to_session)


_BY_BEGINNING = join_sql("SELECT", SESSION, "FROM sessions WHERE id >= ? AND id < ? ORDER BY id LIMIT ?")


def list_sessions_by_id(connection: apsw.Connection, beginning: str, *, limit: int = 50) -> tuple[Session, ...]:
    rows = fetch(connection, _BY_BEGINNING, (beginning, beginning + LAST_CHARACTER, clamp_page_size(limit)))
    return tuple([to_session(row) for row in rows])


# Ordered by name, so that the index with the names is used, and the row of a name that does not match is not read.
_BY_ENDING = join_sql(
    "SELECT",
    SESSION,
    "FROM sessions WHERE namespace = ? AND name > ? AND substr(name, -length(?)) = ? AND deleted = 0 ORDER BY name LIMIT ?",
)


def list_sessions_by_name(
    connection: apsw.Connection, namespace: str, ending: str, *, after: str = "", limit: int = 50
) -> tuple[Session, ...]:
    rows = fetch(connection, _BY_ENDING, (namespace, after, ending, ending, clamp_page_size(limit)))
    return tuple([to_session(row) for row in rows])


_HEADS = """
SELECT s.key, s.id, e.seq, e.hash FROM sessions AS s
LEFT JOIN events AS e ON e.session = s.id AND e.seq = (SELECT max(seq) FROM events WHERE session = s.id)
WHERE s.key < ? ORDER BY s.key DESC LIMIT ?
"""


def list_heads(connection: apsw.Connection, *, cursor: str | None = None, limit: int = 50) -> Page[SessionHead]:
    before, size = decode_number_cursor(cursor, "sessions"), clamp_page_size(limit)
    rows = fetch(connection, _HEADS, (_AFTER_ALL if before is None else before, size + 1))
    return to_page("sessions", rows, size, to_head)


def list_stray_sessions(connection: apsw.Connection) -> tuple[str, ...]:
    return tuple([session for (session,) in fetch(connection, STRAY_SESSIONS)])


def is_listed(connection: apsw.Connection, session: str) -> bool:
    deleted = connection.execute("SELECT deleted FROM sessions WHERE id = ?", (session,)).get
    if deleted is None:
        raise session_not_found(session)
    return bool(deleted == 0)


def count_sessions(
    connection: apsw.Connection, *, kind: SessionKind | None = None, status: str | None = None, namespace: str | None = None
) -> int:
    values, where = _where({"kind": kind, "status": status, "namespace": namespace}, {})
    return int(connection.execute(join_sql("SELECT count(*) FROM sessions WHERE", where), values).get)


def _where(filters: dict[str, str | None], more: dict[str, Any]) -> tuple[tuple[Any, ...], str]:
    """Build the WHERE clause of filters that are not None, and its values. Their columns are never input of a caller."""
    conditions = {f"{column} = ?": value for column, value in filters.items()} | more
    values = {test: value for test, value in conditions.items() if value is not None}
    return tuple(values.values()), " AND ".join(values if filters.get("status") else [*values, NOT_DELETED])


_NAMING = join_sql("SELECT", EVENT, "FROM events WHERE session = ? AND instr(body, ?) ORDER BY seq LIMIT 1000")


def list_events_naming(connection: apsw.Connection, session: str, text: str) -> tuple[Event, ...]:
    return tuple([to_event(row) for row in fetch(connection, _NAMING, (session, text))])


def list_events(
    connection: apsw.Connection,
    session: str | None = None,
    *,
    after: int = 0,
    types: Sequence[str] = (),
    limit: int = 1000,
) -> tuple[Event, ...]:
    type_condition = f"AND type IN ({', '.join('?' * len(types))})" if types else ""
    where, order = ("position > ?", "position") if session is None else ("session = ? AND seq > ?", "seq")
    values = (after,) if session is None else (session, after)
    text = join_sql("SELECT", EVENT, "FROM events WHERE", where, type_condition, "ORDER BY", order, "LIMIT ?")
    rows = fetch(connection, text, (*values, *types, clamp_page_size(limit)))
    if not rows and session is not None:
        require_session(connection, session)
    return tuple([to_event(row) for row in rows])

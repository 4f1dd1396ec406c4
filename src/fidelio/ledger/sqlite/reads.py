"""Connections for reading, lent out one at a time.

Reads run in whichever thread calls, and a connection can serve only one of them at a moment. Lending keeps as many connections
as there are reads at once, usually one, and lets `close` close them all.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from fidelio.errors import LedgerClosed, SessionNotFound
from fidelio.ledger.model import Event, Page, Session
from fidelio.ledger.paging import from_number, page_size, to_cursor
from fidelio.ledger.sqlite.apply import require_session, session_not_found
from fidelio.ledger.sqlite.connection import Place, open_reader
from fidelio.ledger.sqlite.errors import translate
from fidelio.ledger.sqlite.rows import EVENT, SESSION, fetch, statement, to_event, to_session


class Readers:
    """`with readers.lend() as connection:` reads a consistent state; SQLite's complaints leave it with the ledger's names."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._free: list[apsw.Connection] = []
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[apsw.Connection]:
        connection = self._take()
        try:
            yield connection
        except apsw.Error as error:
            raise translate(error, self._place.path) from error
        finally:
            self._give_back(connection)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for connection in free:
            connection.close()

    def _take(self) -> apsw.Connection:
        with self._lock:
            if self._closed:
                raise LedgerClosed("The ledger was closed.", remedy="Open it again.")
            if self._free:
                return self._free.pop()
        return open_reader(self._place)

    def _give_back(self, connection: apsw.Connection) -> None:
        with self._lock:
            if not self._closed:
                self._free.append(connection)
                return
        connection.close()


_BY_ID = statement("SELECT", SESSION, "FROM sessions WHERE id = ?")
# Word for word the condition of the indexes that leave deleted sessions out.
NOT_DELETED = "deleted = 0"
_BY_NAME = statement("SELECT", SESSION, "FROM sessions WHERE namespace = ? AND name = ?")


def session(connection: apsw.Connection, id_: str) -> Session:
    row = connection.execute(_BY_ID, (id_,)).get
    if row is None:
        raise session_not_found(id_)
    return to_session(row)


def named_session(connection: apsw.Connection, name: str, namespace: str) -> Session:
    row = connection.execute(_BY_NAME, (namespace, name)).get
    if row is None:
        raise SessionNotFound(f"No session is called {name!r:.80}.", remedy="List them with `fidelio sessions`.")
    return to_session(row)


def sessions(connection: apsw.Connection, filters: dict[str, str | None], *, cursor: str | None, limit: int) -> Page[Session]:
    """`filters` maps column names, which are ours and never a caller's, to wanted values."""
    given, where = _where(filters, {"key < ?": from_number(cursor, "sessions")})
    size = page_size(limit)
    text = statement("SELECT key,", SESSION, "FROM sessions WHERE", where, "ORDER BY key DESC LIMIT ?")
    rows = fetch(connection, text, (*given, size + 1))
    following = to_cursor("sessions", rows[size - 1][0]) if len(rows) > size else None
    return Page(tuple(to_session(row[1:]) for row in rows[:size]), following)


def count_sessions(connection: apsw.Connection, filters: dict[str, str | None]) -> int:
    given, where = _where(filters, {})
    return int(connection.execute(statement("SELECT count(*) FROM sessions WHERE", where), given).get)


def _where(filters: dict[str, str | None], more: dict[str, Any]) -> tuple[tuple[Any, ...], str]:
    """The values that are asked for, and the condition they stand in."""
    wanted = {f"{column} = ?": value for column, value in filters.items()} | more
    given = {test: value for test, value in wanted.items() if value is not None}
    return tuple(given.values()), " AND ".join(given if filters.get("status") else [*given, NOT_DELETED])


def events(
    connection: apsw.Connection, session_id: str | None, *, after: int, types: Sequence[str], limit: int
) -> tuple[Event, ...]:
    of_types = f"AND type IN ({', '.join('?' * len(types))})" if types else ""
    where, order = ("position > ?", "position") if session_id is None else ("session = ? AND seq > ?", "seq")
    given = (after,) if session_id is None else (session_id, after)
    text = statement("SELECT", EVENT, "FROM events WHERE", where, of_types, "ORDER BY", order, "LIMIT ?")
    rows = fetch(connection, text, (*given, *types, page_size(limit)))
    if not rows and session_id is not None:
        require_session(connection, session_id)
    return tuple([to_event(row) for row in rows])


def newest_position(connection: apsw.Connection) -> int:
    return int(connection.execute("SELECT max(position) FROM events").get or 0)

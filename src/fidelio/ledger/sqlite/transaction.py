"""One transaction of the writer, shared by everybody whose work it carries.

Appended events and the new ends of their sessions are kept here and written together: every statement lets other threads take
the interpreter away from the writer, and while it waits to get it back, it holds the only write lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from itertools import chain

import apsw
from msgspec.structs import astuple

from fidelio.ledger.encoding import Draft, seal
from fidelio.ledger.model import Event, Session
from fidelio.ledger.sqlite.rows import EVENT, SESSION, statement

_CHUNKS = (32, 8, 2, 1)
# The largest chunk that so many rows fill; more rows than that fill the largest.
_CHUNK_OF = [next((size for size in _CHUNKS if size <= rows), 0) for rows in range(_CHUNKS[0] + 1)]
_SELECT_SESSION = statement("SELECT", SESSION, "FROM sessions WHERE id = ?")
_EVENT_ROW = f"({', '.join('?' * 11)})"
_INSERT_EVENTS = {n: statement("INSERT INTO events (", EVENT, ") VALUES", ", ".join([_EVENT_ROW] * n)) for n in _CHUNKS}
# Only the columns that every append moves: naming a column in SET rewrites its indexes even when the value stays.
_MOVE_ENDS = {
    n: statement(
        "UPDATE sessions SET last_seq = v.column2, head = v.column3, updated_at = v.column4 FROM (VALUES",
        ", ".join(["(?, ?, ?, ?)"] * n),
        ") AS v WHERE sessions.id = v.column1",
    )
    for n in _CHUNKS
}


class Moved(IntEnum):
    """How much of a session's row is new, each with all that comes before it. What is not new is not written."""

    END = 0
    RECORD = 1
    STATUS = 2


_MOVE = {
    Moved.RECORD: "UPDATE sessions SET last_seq = ?2, head = ?3, updated_at = ?4, record = ?5 WHERE id = ?1",
    Moved.STATUS: (
        "UPDATE sessions SET last_seq = ?2, head = ?3, updated_at = ?4, record = ?5, status = ?6, reason = ?7 WHERE id = ?1"
    ),
}

MOST_KNOWN = 1024
LARGEST_KNOWN = 16_384


class KnownSessions:
    """Rows of sessions as this process left them, good for as long as nobody else has written to the file.

    The database counts the commits of others, and the count is asked for inside the transaction, under the write lock. So a row
    that is known is the row that is there, and an append need not read it again.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._rows: dict[str, Session] = {}
        self._version = 0
        self._position: int | None = None

    def begin(self) -> None:
        version = self._connection.execute("PRAGMA data_version").get
        if version != self._version:
            self.forget()
            self._version = version

    def get(self, id_: str) -> Session | None:
        known = self._rows.get(id_)
        if known is None and (row := self._connection.execute(_SELECT_SESSION, (id_,)).get) is not None:
            known = Session(*row)
            self.put(known)
        return known

    def put(self, row: Session) -> None:
        if len(self._rows) >= MOST_KNOWN:
            # Only the rows: events that are not written yet have taken their positions.
            self._rows.clear()
        if len(row.raw) <= LARGEST_KNOWN:
            self._rows[row.id] = row
        else:
            self._rows.pop(row.id, None)

    def next_position(self) -> int:
        """The place of one more event, behind all that there are."""
        if self._position is None:
            self._position = self._connection.execute("SELECT max(position) FROM events").get or 0
        self._position += 1
        return self._position

    def forget(self) -> None:
        self._rows.clear()
        self._position = None


class Transaction:
    """What the transaction has read and not yet written. `connection` writes that first, so statements see everything."""

    def __init__(self, connection: apsw.Connection, known: KnownSessions) -> None:
        self._connection = connection
        self._known = known
        self._events: list[Event] = []
        self._moved: dict[str, tuple[Session, Moved]] = {}
        self.writes = 0
        known.begin()

    @property
    def connection(self) -> apsw.Connection:
        """For statements of other modules; counted in `writes`, because most of them write."""
        self.writes += 1
        self.flush()
        return self._connection

    def session(self, id_: str) -> Session | None:
        moved = self._moved.get(id_)
        return moved[0] if moved else self._known.get(id_)

    def append(self, session: Session, drafts: Sequence[Draft]) -> tuple[Event, ...]:
        head, events = session.head, []
        for seq, draft in enumerate(drafts, session.last_seq + 1):
            event = seal(draft, session=session.id, seq=seq, previous=head, position=self._known.next_position())
            events.append(event)
            head = event.hash
        self._events += events
        self.writes += len(events)
        return tuple(events)

    def move(self, row: Session, how: Moved = Moved.END) -> None:
        """The session's row as it is from now on."""
        before = self._moved.get(row.id)
        self._moved[row.id] = row, max(before[1], how) if before else how
        self.writes += 1

    def flush(self) -> None:
        if self._events:
            events, self._events = self._events, []
            self._write(_INSERT_EVENTS, [astuple(event) for event in events])
        if self._moved:
            moved, self._moved = self._moved, {}
            ends = []
            for row, how in moved.values():
                if how is Moved.END:
                    ends.append(_end_of(row))
                elif how is Moved.RECORD:
                    self._connection.execute(_MOVE[how], (*_end_of(row), row.raw))
                else:
                    self._connection.execute(_MOVE[how], (*_end_of(row), row.raw, row.status, row.reason))
                self._known.put(row)
            self._write(_MOVE_ENDS, ends)

    def forget(self) -> None:
        """After a rollback nothing that was read or kept here holds any more."""
        self._events, self._moved = [], {}
        self._known.forget()

    def _write(self, statements: dict[int, str], rows: Sequence[tuple[object, ...]]) -> None:
        done = 0
        while done < len(rows):
            size = _CHUNK_OF[min(len(rows) - done, _CHUNKS[0])]
            self._connection.execute(statements[size], tuple(chain.from_iterable(rows[done : done + size])))
            done += size


def _end_of(row: Session) -> tuple[object, ...]:
    return (row.id, row.last_seq, row.head, row.updated_at)

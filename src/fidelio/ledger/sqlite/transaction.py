"""One transaction of the writer, shared by everybody whose work it carries.

Appended events and the new ends of their sessions are kept here and written together: every statement lets other threads take
the interpreter away from the writer, and while it waits to get it back, it holds the only write lock.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from fidelio.ledger.model import Event
from fidelio.ledger.sealing import Draft, seal
from fidelio.ledger.sqlite.rows import EVENT, SESSION, SessionRow, statement

_CHUNKS = (32, 8, 1)
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


MOST_KNOWN = 1024
LARGEST_KNOWN = 16_384


class KnownSessions:
    """Rows of sessions as this process left them, good for as long as nobody else has written to the file.

    The database counts the commits of others, and the count is asked for inside the transaction, under the write lock. So a row
    that is known is the row that is there, and an append need not read it again.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._rows: dict[str, SessionRow] = {}
        self._version = 0

    def begin(self) -> None:
        version = self._connection.execute("PRAGMA data_version").get
        if version != self._version:
            self.forget()
            self._version = version

    def get(self, id_: str) -> SessionRow | None:
        known = self._rows.get(id_)
        if known is None and (row := self._connection.execute(_SELECT_SESSION, (id_,)).get) is not None:
            known = SessionRow._make(row)
            self.put(known)
        return known

    def put(self, row: SessionRow) -> None:
        if len(self._rows) >= MOST_KNOWN:
            self.forget()
        if len(row.record) <= LARGEST_KNOWN:
            self._rows[row.id] = row
        else:
            self._rows.pop(row.id, None)

    def forget(self) -> None:
        self._rows.clear()


class Transaction:
    """What the transaction has read and not yet written. `connection` writes that first, so statements see everything."""

    def __init__(self, connection: apsw.Connection, known: KnownSessions) -> None:
        self._connection = connection
        self._known = known
        self._position: int | None = None
        self._events: list[Event] = []
        self._moved: dict[str, SessionRow] = {}
        self.writes = 0
        known.begin()

    @property
    def connection(self) -> apsw.Connection:
        """For statements of other modules; counted in `writes`, because most of them write."""
        self.writes += 1
        self.flush()
        return self._connection

    def session(self, id_: str) -> SessionRow | None:
        return self._moved.get(id_) or self._known.get(id_)

    def append(self, session: SessionRow, drafts: Sequence[Draft]) -> tuple[Event, ...]:
        head, events = session.head, []
        for seq, draft in enumerate(drafts, session.last_seq + 1):
            event = seal(draft, session=session.id, seq=seq, previous=head, position=self._next_position())
            events.append(event)
            head = event.hash
        self._events += events
        self.writes += len(events)
        return tuple(events)

    def move(self, row: SessionRow) -> None:
        """The session's row as it is from now on; its status, reason and record are written by the caller."""
        self._moved[row.id] = row

    def flush(self) -> None:
        if self._events:
            events, self._events = self._events, []
            self._write(_INSERT_EVENTS, [_event_row(event) for event in events])
        if self._moved:
            moved, self._moved = self._moved, {}
            self._write(_MOVE_ENDS, [(row.id, row.last_seq, row.head, row.updated_at) for row in moved.values()])
            for row in moved.values():
                self._known.put(row)

    def forget(self) -> None:
        """After a rollback nothing that was read or kept here holds any more."""
        self._position = None
        self._events, self._moved = [], {}
        self._known.forget()

    def _next_position(self) -> int:
        if self._position is None:
            self._position = self._connection.execute("SELECT max(position) FROM events").get or 0
        self._position += 1
        return self._position

    def _write(self, statements: dict[int, str], rows: Sequence[tuple[object, ...]]) -> None:
        done = 0
        for size, text in statements.items():
            while len(rows) - done >= size:
                self._connection.execute(text, [value for row in rows[done : done + size] for value in row])
                done += size


def _event_row(event: Event) -> tuple[object, ...]:
    return (
        event.position,
        event.session,
        event.seq,
        event.id,
        event.type,
        event.actor,
        event.time,
        event.raw,
        event.salt,
        event.digest,
        event.hash,
    )

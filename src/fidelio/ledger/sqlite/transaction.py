"""One transaction of the writer, shared by everybody whose work it carries."""

from __future__ import annotations

import apsw


class Transaction:
    """The connection, and the next global position. Positions of work that is rolled back leave a gap and are not used again."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self._position: int | None = None

    def next_position(self) -> int:
        if self._position is None:
            self._position = self.connection.execute("SELECT max(position) FROM events").get or 0
        self._position += 1
        return self._position

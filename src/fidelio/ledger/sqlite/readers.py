"""Connections for reading, lent out one at a time.

Reads run in whichever thread calls, and a connection can serve only one of them at a moment. Lending keeps as many connections
as there are reads at once, usually one, and lets `close` close them all.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from fidelio.errors import LedgerClosed
from fidelio.ledger.sqlite.connection import Place, open_reader
from fidelio.ledger.sqlite.faults import translate


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

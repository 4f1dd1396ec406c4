"""One transaction for a group of callers, on the only connection that writes.

A conflict rolls back the caller that has it and nobody else. Which thread commits, and when, is the writer's business: whoever
uses anything in here holds `turn`, and so the connection, what is known of its rows and the index have one user at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import apsw
import msgspec

from fidelio.errors import LedgerError
from fidelio.ledger.sqlite.connection import Patience, Place, open_writer
from fidelio.ledger.sqlite.errors import translate
from fidelio.ledger.sqlite.search_index import Indexer
from fidelio.ledger.sqlite.transaction import KnownSessions, Transaction

T = TypeVar("T")
Work = Callable[[Transaction], T]

# One slow commit is chance, a few are a slow disk: how much the newest counts for the pace.
NEWEST_SHARE = 0.2
# How many pages of the write-ahead file are carried over into the database in a pause, and how many at any time. Then the file
# is written from its beginning again, and a commit that does not make it longer is far cheaper to sync.
PAGES_IN_A_PAUSE = 500
PAGES_AT_ANY_TIME = 1000


class Ticket(msgspec.Struct, eq=False):
    """One caller's place in the queue.

    `touched` are the sessions its work appends to, `brief` work is done in a moment, `afterwards` follows the commit.
    """

    work: Work[Any]
    touched: tuple[str, ...]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    brief: bool = False
    afterwards: Callable[[apsw.Connection], None] | None = None
    result: Any = None
    error: LedgerError | None = None


class Committer:
    """Owns the writing connection. Everything but `turn` and `pace` is for whoever holds the turn."""

    def __init__(self, place: Place) -> None:
        self.turn = threading.Lock()
        self._place = place
        self._patience = Patience(place.patience_ms)
        self._pages = 0
        # How many seconds a COMMIT takes, as things are; a disk counts as quick until it has shown otherwise.
        self.pace = 0.0
        self.connection = open_writer(place)
        self.connection.set_busy_handler(self._patience)
        # In place of SQLite's own, which would make one commit in a few hundred wait until all of that is done.
        self.connection.set_wal_hook(self._note_pages)
        self.indexer = Indexer(self.connection)
        self._known = KnownSessions(self.connection)

    def commit(self, group: Sequence[Ticket]) -> None:
        """Gives every ticket its result or its error. What has a result is durable."""
        try:
            self._carry_out(group)
        except apsw.Error as error:
            self._fail(group, translate(error, self._place.path))
        self._follow_up(group)

    def commit_unless_busy(self, ticket: Ticket) -> bool:
        """Commits one ticket, or says that another process writes just now. Never waits for one, and leaves nothing behind."""
        self._patience.hurried = True
        try:
            self._carry_out([ticket])
        except apsw.BusyError:
            self._roll_back()
            return False
        except apsw.Error as error:
            self._fail([ticket], translate(error, self._place.path))
        except BaseException:
            # Whatever it is goes on; the next user of the connection must not find a transaction open.
            self._roll_back()
            raise
        finally:
            self._patience.hurried = False
        return True

    @property
    def checkpoint_due(self) -> bool:
        return self._pages >= PAGES_AT_ANY_TIME

    def checkpoint(self) -> None:
        self._pages = 0
        with contextlib.suppress(apsw.Error):  # nothing depends on it, and the next commit asks for it again
            self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def data_version(self) -> int:
        """Changes when another process commits."""
        return int(self.connection.execute("PRAGMA data_version").get)

    def use_pause(self) -> None:
        """Keeps the index, and the write-ahead file short."""
        try:
            self.indexer.step()
        except apsw.Error:
            # The index is a projection: it catches up later, at the latest when the ledger is opened again.
            self.indexer.give_up()
        if self._pages >= PAGES_IN_A_PAUSE:
            self.checkpoint()

    def _note_pages(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._pages = pages
        return apsw.SQLITE_OK

    def _carry_out(self, group: Sequence[Ticket]) -> None:
        if not self._all_together(group):
            self._one_by_one(group)
        began = time.monotonic()
        self.connection.execute("COMMIT")
        self.pace += NEWEST_SHARE * (time.monotonic() - began - self.pace)
        if any(ticket.touched for ticket in group if ticket.error is None):
            self.indexer.wanted()

    def _all_together(self, group: Sequence[Ticket]) -> bool:
        """The usual case: nobody is refused, or only before having written anything, and no savepoint is needed."""
        transaction = self._begin()
        for ticket in group:
            before, ticket.error = transaction.writes, None
            try:
                ticket.result = ticket.work(transaction)
            except LedgerError as refusal:
                ticket.error = refusal
                if transaction.writes != before:
                    transaction.forget()
                    self.connection.execute("ROLLBACK")
                    return False
        transaction.flush()
        return True

    def _one_by_one(self, group: Sequence[Ticket]) -> None:
        """Somebody was refused halfway: everybody again, each in a savepoint that only its own refusal rolls back."""
        transaction = self._begin()
        for ticket in group:
            self.connection.execute("SAVEPOINT caller")
            ticket.error = None
            try:
                ticket.result = ticket.work(transaction)
                transaction.flush()
            except LedgerError as refusal:
                ticket.error = refusal
                transaction.forget()
                self.connection.execute("ROLLBACK TO caller")
            self.connection.execute("RELEASE caller")

    def _begin(self) -> Transaction:
        self.indexer.insist_on_sync()
        self.connection.execute("BEGIN IMMEDIATE")
        return Transaction(self.connection, self._known)

    def _fail(self, group: Sequence[Ticket], error: LedgerError) -> None:
        self._roll_back()
        for ticket in group:
            # Also those that were refused: what they were refused for may have been somebody else's part of this group.
            ticket.error = error

    def _roll_back(self) -> None:
        self._known.forget()
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def _follow_up(self, group: Sequence[Ticket]) -> None:
        for ticket in group:
            if ticket.afterwards and ticket.error is None:
                with contextlib.suppress(apsw.Error):  # the work itself is durable; tidying up is repeated by the next one
                    ticket.afterwards(self.connection)

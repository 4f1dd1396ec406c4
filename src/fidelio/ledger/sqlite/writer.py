"""The one thread that writes: it takes whatever has queued up, carries it out in one transaction, syncs once, tells everybody.

Many sessions that append at once share one sync of the disk. A conflict rolls back the caller that has it and nobody else.
Nothing is acknowledged before COMMIT has returned.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import apsw

from fidelio.errors import LedgerClosed, LedgerError
from fidelio.ledger.sqlite.connection import Place, open_writer
from fidelio.ledger.sqlite.faults import translate
from fidelio.ledger.sqlite.index import Indexer
from fidelio.ledger.sqlite.signals import Signals
from fidelio.ledger.sqlite.transaction import KnownSessions, Transaction

T = TypeVar("T")
Work = Callable[[Transaction], T]

LARGEST_GROUP = 512
POLL_S = 0.075


@dataclass(slots=True, eq=False)
class Ticket:
    """One caller's place in the queue. `touched` are the sessions its work appends to, `afterwards` follows the commit."""

    work: Work[Any]
    touched: tuple[str, ...]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    afterwards: Callable[[apsw.Connection], None] | None = None
    result: Any = None
    error: LedgerError | None = None


@dataclass(slots=True)
class Nudge:
    """Queued to make the writer look up: somebody waits, the index lags, or the ledger closes."""

    last: bool = False
    index: bool = False
    done: threading.Event = field(default_factory=threading.Event)


class Writer:
    """Owns the writing connection. Everything public may be called from any thread; the rest runs on its own."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._queue: queue.SimpleQueue[list[Ticket] | Nudge] = queue.SimpleQueue()
        self._batches: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}
        self._group: list[Ticket] = []
        self._crowded = False
        self._closed = False
        self._ending = False
        self._seen_version = 0
        self._polled_at = 0.0
        self._lock = threading.Lock()
        self.signals = Signals(lambda: self._queue.put(Nudge()))
        self._connection = open_writer(place)
        self._indexer = Indexer(self._connection)
        self._known = KnownSessions(self._connection)
        self._thread = threading.Thread(target=self._run, name="fidelio-ledger", daemon=True)
        self._thread.start()

    async def carry_out(
        self,
        work: Work[T],
        touched: tuple[str, ...] = (),
        *,
        afterwards: Callable[[apsw.Connection], None] | None = None,
    ) -> T:
        """Runs `work` in a transaction and returns its result once that is durable. It may be run again after a rollback."""
        loop = asyncio.get_running_loop()
        ticket = Ticket(work, touched, loop.create_future(), loop, afterwards)
        self._put(ticket)
        result: T = await ticket.future
        return result

    def index_soon(self) -> None:
        with self._lock:
            self._require_open()
            self._queue.put(Nudge(index=True))

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Finishes what is queued. Blocks, so it is called in a thread."""
        with self._lock:
            first, self._closed = not self._closed, True
            if first:
                for batch in self._batches.values():
                    self._queue.put(batch)
                self._batches.clear()
                # Queued under the lock, nothing can come behind it, where nobody would ever answer.
                self._queue.put(Nudge(last=True))
        self._thread.join()

    def _put(self, ticket: Ticket) -> None:
        with self._lock:
            self._require_open()
            if not self._crowded:
                self._queue.put([ticket])
                return
            batch = self._batches.get(ticket.loop)
            if batch is None:
                # Whoever else runs in this turn of the loop comes along: one wake-up of the writer, and no quarrel between the
                # two threads about the interpreter while the others still prepare their commits.
                batch = self._batches[ticket.loop] = []
                ticket.loop.call_soon(self._send, ticket.loop)
            batch.append(ticket)

    def _require_open(self) -> None:
        if self._closed:
            raise LedgerClosed("The ledger was closed.", remedy="Open it again.")

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            batch = self._batches.pop(loop, None)
            if batch:
                self._queue.put(batch)

    def _run(self) -> None:
        try:
            self._seen_version = self._data_version()
            while not self._ending:
                self._collect()
                if self._group:
                    self._commit_group()
                self._look_around()
        finally:
            self._end()

    def _collect(self) -> None:
        """Fills the group with what has queued up; waits for the first, but no longer than until something else is due."""
        try:
            self._admit(self._queue.get(timeout=self._pause()))
            while len(self._group) < LARGEST_GROUP:
                self._admit(self._queue.get_nowait())
        except queue.Empty:
            return

    def _admit(self, item: list[Ticket] | Nudge) -> None:
        if isinstance(item, list):
            self._group += [ticket for ticket in item if not ticket.future.cancelled()]
            return
        self._ending = self._ending or item.last
        if item.index:
            self._indexer.wanted()

    def _pause(self) -> float | None:
        pauses = [POLL_S] if self.signals else []
        due = self._indexer.due_in()
        if due is not None:
            pauses.append(due)
        return min(pauses, default=None)

    def _commit_group(self) -> None:
        try:
            if not self._all_together():
                self._one_by_one()
            self._connection.execute("COMMIT")
        except apsw.Error as error:
            self._fail_group(translate(error, self._place.path))
        self._follow_up()
        self._acknowledge()

    def _all_together(self) -> bool:
        """The usual case: nobody is refused, or only before having written anything, and no savepoint is needed."""
        transaction = self._begin()
        for ticket in self._group:
            before = transaction.writes
            try:
                ticket.result = ticket.work(transaction)
            except LedgerError as refusal:
                ticket.error = refusal
                if transaction.writes != before:
                    transaction.forget()
                    self._connection.execute("ROLLBACK")
                    return False
        transaction.flush()
        return True

    def _one_by_one(self) -> None:
        """Somebody was refused halfway: everybody again, each in a savepoint that only its own refusal rolls back."""
        transaction = self._begin()
        for ticket in self._group:
            self._connection.execute("SAVEPOINT caller")
            ticket.error = None
            try:
                ticket.result = ticket.work(transaction)
                transaction.flush()
            except LedgerError as refusal:
                ticket.error = refusal
                transaction.forget()
                self._connection.execute("ROLLBACK TO caller")
            self._connection.execute("RELEASE caller")

    def _begin(self) -> Transaction:
        self._indexer.insist_on_sync()
        self._connection.execute("BEGIN IMMEDIATE")
        return Transaction(self._connection, self._known)

    def _fail_group(self, error: LedgerError) -> None:
        self._known.forget()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        for ticket in self._group:
            # Also those that were refused: what they were refused for may have been somebody else's part of this group.
            ticket.error = error

    def _follow_up(self) -> None:
        for ticket in self._group:
            if ticket.afterwards and ticket.error is None:
                with contextlib.suppress(apsw.Error):  # the work itself is durable; tidying up is repeated by the next one
                    ticket.afterwards(self._connection)

    def _acknowledge(self) -> None:
        group, self._group = self._group, []
        self._crowded = len(group) > 1
        appended = {session for ticket in group if ticket.error is None for session in ticket.touched}
        deliver(group)
        if appended:
            self.signals.tell(appended)
            self._indexer.wanted()

    def _look_around(self) -> None:
        now = time.monotonic()
        if self.signals and now - self._polled_at >= POLL_S:
            self._polled_at = now
            self._look_for_others()
        if self._indexer.due_in() == 0 or self._ending:
            self._index_some()

    def _look_for_others(self) -> None:
        version = self._data_version()
        if version != self._seen_version:
            self._seen_version = version
            self.signals.tell(None)
            self._indexer.wanted()

    def _data_version(self) -> int:
        try:
            return int(self._connection.execute("PRAGMA data_version").get)
        except apsw.Error:
            # Whoever waits is bounded by a time limit of their own; the next look may succeed again.
            return self._seen_version

    def _index_some(self) -> None:
        try:
            self._indexer.step()
        except apsw.Error:
            # The index is a projection: it catches up later, at the latest when the ledger is opened again.
            self._indexer.give_up()

    def _end(self) -> None:
        with self._lock:
            self._closed = True
            waiting = [ticket for batch in self._batches.values() for ticket in batch]
            self._batches.clear()
        left = [*self._group, *_drained(self._queue), *waiting]
        for ticket in left:
            ticket.error = LedgerClosed("The ledger was closed before this was written.", remedy="Open it again and repeat.")
        deliver(left)
        self.signals.close()
        self._connection.close()


def _drained(items: queue.SimpleQueue[list[Ticket] | Nudge]) -> list[Ticket]:
    tickets: list[Ticket] = []
    while not items.empty():
        item = items.get_nowait()
        if isinstance(item, list):
            tickets += item
    return tickets


def deliver(group: Sequence[Ticket]) -> None:
    """Hands every caller its result, with one wake-up per event loop however many of them wait there."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Ticket]] = defaultdict(list)
    for ticket in group:
        by_loop[ticket.loop].append(ticket)
    for loop, tickets in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, tickets)
        except RuntimeError:
            # The loop was closed before its answer came: nobody is left to be told.
            continue


def _resolve(tickets: Sequence[Ticket]) -> None:
    for ticket in tickets:
        if ticket.future.done():
            continue
        if ticket.error is not None:
            ticket.future.set_exception(ticket.error)
        else:
            ticket.future.set_result(ticket.result)

"""Who commits, and when: the writer's thread for everybody at once, or a lone caller by itself.

The thread takes whatever has queued up, carries it out in one transaction, syncs once and tells everybody. So many sessions
that append at once share one sync of the disk, and nobody's event loop waits for it. Nothing is acknowledged before COMMIT has
returned.

A caller that is alone gains nothing from that. Waking a thread and being woken by it costs more than the commit itself, so the
commit is made where the caller is, on the thread of its event loop. That loop stands still for the length of one commit, a
fraction of a millisecond, which is why it is done only

- once in a turn of the loop: whoever comes second waits for the turn to end, and all who do so are a group for the thread. From
  then on nobody goes ahead until a turn has brought only one,
- while nobody waits for the thread, whom that would overtake, and the thread is not at work on the connection itself,
- for work that is brief, and for as long as no other process holds the file: the loop never waits for a lock,
- while the disk is quick: every commit, whoever makes it, shows at what pace. Carrying the write-ahead file over into the
  database and keeping the index are always left to the thread.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import apsw
import msgspec

from fidelio.errors import LedgerClosed
from fidelio.ledger.sqlite.connection import Place
from fidelio.ledger.sqlite.group_commit import Committer, Ticket, Work
from fidelio.ledger.sqlite.notifications import Signals

T = TypeVar("T")

LARGEST_GROUP = 512
POLL_S = 0.075
# Nobody notices a loop that stands still for this long, and whoever comes meanwhile finds company: a group for the thread.
QUICK_S = 0.02


class Nudge(msgspec.Struct):
    """Queued to make the writer look up: somebody waits, the index lags, or the ledger closes."""

    last: bool = False
    index: bool = False


class Writer:
    """The queue, its thread, and the short cut past both. Everything public may be called from any thread."""

    def __init__(self, place: Place) -> None:
        self._queue: queue.SimpleQueue[list[Ticket] | Nudge] = queue.SimpleQueue()
        self._batches: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}
        self._group: list[Ticket] = []
        # How many tickets the thread has been given and has not finished.
        self._handed_over = 0
        self._sleeps_until_woken = False
        self._went_ahead = False
        self._crowded = False
        self._closed = False
        self._ending = False
        self._seen_version = 0
        self._polled_at = 0.0
        self._lock = threading.Lock()
        self.signals = Signals(lambda: self._queue.put(Nudge()))
        self._committer = Committer(place)
        self._thread = threading.Thread(target=self._run, name="fidelio-ledger", daemon=True)
        self._thread.start()

    async def carry_out(
        self,
        work: Work[T],
        touched: tuple[str, ...] = (),
        *,
        brief: bool = False,
        afterwards: Callable[[apsw.Connection], None] | None = None,
    ) -> T:
        """Runs `work` in a transaction and returns its result once that is durable. It may be run again after a rollback."""
        loop = asyncio.get_running_loop()
        ticket = Ticket(work, touched, loop.create_future(), loop, brief, afterwards)
        at_once = self._goes_ahead(ticket) and self._commit_here(ticket)
        result: T = _outcome(ticket) if at_once else await ticket.future
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
                    self._hand_over(batch)
                self._batches.clear()
                # Queued under the lock, nothing new can come behind it, where nobody would ever answer.
                self._queue.put(Nudge(last=True))
        self._thread.join()

    # In the thread of the caller

    def _goes_ahead(self, ticket: Ticket) -> bool:
        """Whether it is the ticket's turn now; if not, it has been queued."""
        with self._lock:
            self._require_open()
            if self._went_ahead or self._crowded or self._batches or not self._may_commit_here([ticket]):
                self._put(ticket)
                return False
            self._went_ahead = True
        ticket.loop.call_soon(self._next_turn)
        return True

    def _next_turn(self) -> None:
        self._went_ahead = False

    def _put(self, ticket: Ticket) -> None:
        batch = self._batches.get(ticket.loop)
        if batch is None:
            # Whoever else runs in this turn of the loop comes along: one wake-up of the writer, and no quarrel between the two
            # threads about the interpreter while the others still prepare their commits.
            batch = self._batches[ticket.loop] = []
            ticket.loop.call_soon(self._send, ticket.loop)
        batch.append(ticket)

    def _require_open(self) -> None:
        if self._closed:
            raise LedgerClosed("The ledger was closed.", remedy="Open it again.")

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            batch = [ticket for ticket in self._batches.pop(loop, ()) if not ticket.future.cancelled()]
            if not batch:
                return
            self._crowded = len(batch) > 1
            if not self._may_commit_here(batch):
                self._hand_over(batch)
                return
        try:
            if self._commit_here(batch[0]):
                _resolve(batch)
        except BaseException as bug:
            # Nobody stands between this and the event loop; the caller must not wait for ever.
            batch[0].future.set_exception(bug)
            raise

    def _hand_over(self, tickets: list[Ticket]) -> None:
        self._handed_over += len(tickets)
        self._queue.put(tickets)

    def _may_commit_here(self, batch: Sequence[Ticket]) -> bool:
        """Whether a single brief piece of work has the connection to itself; if so, it is its turn now."""
        return (
            len(batch) == 1
            and batch[0].brief
            and not self._handed_over
            and self._committer.pace <= QUICK_S
            and self._committer.turn.acquire(blocking=False)
        )

    def _commit_here(self, ticket: Ticket) -> bool:
        """False when the thread has to do it."""
        try:
            committed = self._committer.commit_unless_busy(ticket)
            if not committed:
                # Before the turn ends, or the thread could end first and nobody would be left to answer.
                with self._lock:
                    self._hand_over([ticket])
        finally:
            self._committer.turn.release()
        if committed:
            self._tell([ticket])
            self._wake_thread()
        return committed

    def _wake_thread(self) -> None:
        """Only when it would sleep on although there is something to do: a wake-up for every commit is what we avoid."""
        if self._sleeps_until_woken or self._committer.checkpoint_due:
            self._sleeps_until_woken = False
            self._queue.put(Nudge())

    # In the writer's own thread

    def _run(self) -> None:
        try:
            self._seen_version = self._data_version()
            while not self._ending:
                self._collect()
                if self._group or self._ending:
                    self._commit_group()
                self._look_around()
        finally:
            self._end()

    def _collect(self) -> None:
        """Fills the group with what has queued up; waits for the first, but no longer than until something else is due."""
        # Said before it is known: what a caller leaves to be indexed between the two must not find everybody asleep.
        self._sleeps_until_woken = True
        pause = self._pause()
        self._sleeps_until_woken = pause is None
        try:
            self._admit(self._queue.get(timeout=pause))
            while len(self._group) < LARGEST_GROUP:
                self._admit(self._queue.get_nowait())
        except queue.Empty:
            return

    def _admit(self, item: list[Ticket] | Nudge) -> None:
        if isinstance(item, list):
            self._group += item
            return
        self._ending = self._ending or item.last
        if item.index:
            self._committer.indexer.wanted()

    def _pause(self) -> float | None:
        pauses = [POLL_S] if self.signals else []
        due = self._committer.indexer.due_in()
        if due is not None:
            pauses.append(due)
        return min(pauses, default=None)

    def _commit_group(self) -> None:
        with self._committer.turn:
            if self._ending:
                # What a caller has tried by itself meanwhile, and then left to us.
                self._group += _drained(self._queue)
            group = [ticket for ticket in self._group if not ticket.future.cancelled()]
            if group:
                self._committer.commit(group)
        with self._lock:
            self._handed_over -= len(self._group)
            self._group = []
        deliver(group)
        self._tell(group)

    def _tell(self, group: Sequence[Ticket]) -> None:
        if self.signals:
            self.signals.tell({session for ticket in group if ticket.error is None for session in ticket.touched})

    def _look_around(self) -> None:
        now = time.monotonic()
        if self.signals and now - self._polled_at >= POLL_S:
            self._polled_at = now
            self._look_for_others()
        if self._committer.checkpoint_due:
            with self._committer.turn:
                self._committer.checkpoint()
        if self._committer.indexer.due_in() == 0 or self._ending:
            with self._committer.turn:
                self._committer.use_pause()

    def _look_for_others(self) -> None:
        version = self._data_version()
        if version != self._seen_version:
            self._seen_version = version
            self.signals.tell(None)
            self._committer.indexer.wanted()

    def _data_version(self) -> int:
        try:
            with self._committer.turn:
                return self._committer.data_version()
        except apsw.Error:
            # Whoever waits is bounded by a time limit of their own; the next look may succeed again.
            return self._seen_version

    def _end(self) -> None:
        with self._lock:
            self._closed = True
            waiting = [ticket for batch in self._batches.values() for ticket in batch]
            self._batches.clear()
        with self._committer.turn:
            left = [*self._group, *_drained(self._queue), *waiting]
            self._committer.connection.close()
        for ticket in left:
            ticket.error = LedgerClosed("The ledger was closed before this was written.", remedy="Open it again and repeat.")
        deliver(left)
        self.signals.close()


def _outcome(ticket: Ticket) -> Any:
    if ticket.error is not None:
        raise ticket.error
    return ticket.result


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

"""Carries out due work: the one loop that claims jobs and runs their handlers.

Services know only the port, `register` and `enqueue`; claiming, heartbeats, fencing and retries stay in here, so that another
engine can take this place. A handler is an async function that takes an `Assignment`:

    async def wake(assignment: Assignment) -> None:
        await assignment.commit(Change(session=assignment.lease.session, events=(...)), settle=Done())

    jobs.register("wake", wake)

It returns when the work is done and raises when it should be tried again. It may run again after it has done half of its work:
only what it writes with `assignment.commit` is sure to be written by the one who holds the lease, and settling in that commit
makes the work and its end one fact.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine
from random import SystemRandom
from typing import Any

from msgspec import structs

from fidelio.clock import Clock, now_ms
from fidelio.errors import LedgerBusy, LedgerError, LedgerFull, LedgerUnavailable, StaleLease, UsageProblem
from fidelio.ids import new_id
from fidelio.ledger.contract import Ledger
from fidelio.ledger.model import Change, Committed, Dead, Done, Json, Lease, NewJob, Retry, Settlement

FIRST_PAUSE_MS = 1_000
LONGEST_PAUSE_MS = 300_000
ERROR_CHARACTERS = 2_000

# What moves no position (work enqueued by another process without an event, a lease given back) is noticed after this time.
_GLANCE_SECONDS = 1.0
# Somebody else was faster, or the database did not answer: long enough not to spin, short enough not to be noticed.
_BREATH_SECONDS = 0.05

# What a later try may find mended; everything else ends the loop loudly.
_PASSING = (LedgerBusy, LedgerFull, LedgerUnavailable)

_log = logging.getLogger(__name__)
_random = SystemRandom()


def backoff(attempt: int, *, random: Callable[[], float]) -> int:
    """Milliseconds to wait after failed attempt 1, 2, ...: doubling up to a cap, half of it at random so that many spread."""
    whole = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << min(attempt - 1, 30))
    return whole // 2 + int(random() * (whole - whole // 2))


class Assignment:
    """One job in the hands of its handler."""

    def __init__(self, ledger: Ledger, lease: Lease) -> None:
        self.ledger, self.lease = ledger, lease
        self.settled = False

    async def commit(self, change: Change, *others: Change, settle: Settlement | None = None) -> tuple[Committed, ...]:
        """Commits only while the lease is held, else raises `StaleLease`; `settle` ends the job in the same transaction."""
        done = await self.ledger.commit(structs.replace(change, lease=self.lease, settle=settle), *others)
        self.settled = self.settled or settle is not None
        return done


Handler = Callable[[Assignment], Awaitable[None]]


class Jobs:
    """The port `register` and `enqueue`, and the loop behind it.

    A job that fails is tried again after `backoff`, `max_attempts` times in all, and then kept as a dead letter with its last
    error. `grace` is how many seconds running handlers get when the loop is asked to stop.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        clock: Clock = now_ms,
        owner: str | None = None,
        lease_ms: int = 30_000,
        max_attempts: int = 8,
        concurrency: int = 8,
        grace: float = 10.0,
    ) -> None:
        self._ledger, self._clock = ledger, clock
        self._owner = owner or f"{socket.gethostname()}/{os.getpid()}/{new_id('w_')}"
        self._lease_ms, self._max_attempts = lease_ms, max_attempts
        self._concurrency, self._grace = concurrency, grace
        self._handlers: dict[str, Handler] = {}
        self._hands: set[asyncio.Task[None]] = set()
        self._nudge = asyncio.Event()
        self._stopping = False

    def register(self, kind: str, handler: Handler) -> None:
        if kind in self._handlers:
            raise UsageProblem(f"Jobs of kind {kind!r} have a handler already.", remedy="Register each kind once.")
        self._handlers[kind] = handler
        self._nudge.set()

    async def enqueue(self, kind: str, session: str, due: int = 0, payload: Json | None = None, key: str | None = None) -> None:
        """Makes work due at `due`. To make it due together with an event, put a `NewJob` into the change that appends it."""
        job = NewJob(kind=kind, session=session, due=due, payload=payload or {}, key=key)
        await self._ledger.commit(Change(session=session, jobs=(job,)))
        self._nudge.set()

    def stop(self) -> None:
        """Asks `run` to end: it claims nothing more, lets handlers finish within the grace, and gives the rest back."""
        self._stopping = True
        self._nudge.set()

    async def run(self) -> None:
        """Claims and carries out due jobs until `stop`. Cancelling it skips the grace."""
        try:
            while not self._stopping:
                await self._one_round()
            if self._hands:
                await asyncio.wait(self._hands, timeout=self._grace)
        finally:
            await _end(*self._hands)

    async def _one_round(self) -> None:
        self._nudge.clear()
        try:
            if len(self._hands) < self._concurrency:
                await self._claim_or_rest()
                return
        except _PASSING as error:
            _log.warning("Due work cannot be claimed, trying again: %s", error)
        await self._rest(asyncio.sleep(_GLANCE_SECONDS))

    async def _claim_or_rest(self) -> None:
        kinds = tuple(self._handlers)
        position = await self._ledger.wait(after=-1, timeout=0)
        # Asking is a read, claiming a write: a quiet queue must not cost the writers of other sessions anything.
        due = await self._ledger.next_due(kinds)
        seconds = _GLANCE_SECONDS if due is None else min((due - self._clock()) / 1000, _GLANCE_SECONDS)
        if seconds <= 0:
            lease = await self._ledger.claim(self._owner, kinds, lease_ms=self._lease_ms)
            if lease is not None:
                self._take_in_hand(lease)
                return
            seconds = _BREATH_SECONDS
        await self._rest(self._ledger.wait(after=position, timeout=seconds))

    async def _rest(self, until: Coroutine[None, None, object]) -> None:
        """Waits for `until` or for a nudge from this process, whichever comes first."""
        ends, nudged = asyncio.create_task(until), asyncio.create_task(self._nudge.wait())
        try:
            await asyncio.wait({ends, nudged}, return_when=asyncio.FIRST_COMPLETED)
            if ends.done():
                ends.result()
        finally:
            await _end(ends, nudged)

    def _take_in_hand(self, lease: Lease) -> None:
        hand = asyncio.create_task(self._carry_out(Assignment(self._ledger, lease)))
        self._hands.add(hand)
        hand.add_done_callback(self._hand_is_free)

    def _hand_is_free(self, hand: asyncio.Task[None]) -> None:
        self._hands.discard(hand)
        self._nudge.set()

    async def _carry_out(self, assignment: Assignment) -> None:
        """The outermost boundary of a handler: whatever it raises becomes a fact about its job."""
        lease = assignment.lease
        try:
            how = await self._under_heartbeat(assignment)
        except asyncio.CancelledError:
            await self._settle(assignment, Retry(due=self._clock(), error="The worker was stopped before the job was done."))
            raise
        except StaleLease:
            _log.warning("Job %s was taken over by somebody else; its handler was stopped.", lease.job)
            return
        except Exception as error:  # noqa: BLE001  # a handler may fail in any way; the loop must outlive it
            _log.warning("Job %s of kind %s failed (attempt %d).", lease.job, lease.kind, lease.attempt, exc_info=error)
            how = self._after_failure(lease, error)
        await self._settle(assignment, how)

    async def _under_heartbeat(self, assignment: Assignment) -> Settlement:
        lease = assignment.lease
        # Claimed once more than it may be tried: every earlier worker died with it, and so might this one.
        if lease.attempt > self._max_attempts:
            return Dead(error=f"Started {lease.attempt - 1} times, and no worker lived to say how it ended.")
        work = asyncio.ensure_future(self._handlers[lease.kind](assignment))
        beat = asyncio.create_task(self._keep(lease))
        try:
            await asyncio.wait({work, beat}, return_when=asyncio.FIRST_COMPLETED)
            (work if work.done() else beat).result()
        finally:
            await _end(work, beat)
        return Done()

    async def _keep(self, lease: Lease) -> None:
        """Prolongs the lease for as long as it can; raises `StaleLease` when it is lost or nearly so."""
        while True:
            await asyncio.sleep(self._lease_ms / 3_000)
            try:
                async with asyncio.timeout((lease.expires - self._clock()) / 1000):
                    lease = await self._ledger.heartbeat(lease, lease_ms=self._lease_ms)
            except TimeoutError as error:
                raise StaleLease(lease.job, lease.fence) from error
            except _PASSING as error:
                _log.warning("The lease of job %s was not prolonged, trying again: %s", lease.job, error)

    def _after_failure(self, lease: Lease, error: Exception) -> Settlement:
        words = _in_words(error)
        if lease.attempt >= self._max_attempts:
            return Dead(error=words)
        return Retry(due=self._clock() + backoff(lease.attempt, random=_random.random), error=words)

    async def _settle(self, assignment: Assignment, how: Settlement) -> None:
        if assignment.settled:
            return
        try:
            await self._ledger.settle(assignment.lease, how)
        except LedgerError as error:
            # Nothing more can be done from here, and nothing is lost: the lease runs out, and the job is claimed again.
            _log.warning("The end of job %s was not recorded: %s", assignment.lease.job, error)


def _in_words(error: Exception) -> str:
    """Whatever a handler says, in signs that every database can keep."""
    words = f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS]
    return words.replace("\0", "\ufffd").encode(errors="replace").decode()


async def _end(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

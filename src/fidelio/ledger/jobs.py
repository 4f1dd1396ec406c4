"""Job runner: claims due jobs and runs their handlers under a lease, with heartbeats, retries and dead letters.

Services use only `register` and `enqueue`, so that another job engine can replace this one. A handler is an async function that
takes an `Assignment`:

    async def wake(assignment: Assignment) -> None:
        await assignment.commit(Change(session=assignment.lease.session, events=(...)), settle=Done())

    jobs.register("wake", wake)

It returns if the job succeeded and raises if it should be retried. It may run again after a partial run. `assignment.commit`
succeeds only while the lease is held; passing `settle` stores the result and the end of the job in a single transaction.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from random import SystemRandom

from msgspec import structs

from fidelio.clock import Clock, now_ms
from fidelio.errors import FidelioError, LedgerError, StaleLease, UsageProblem
from fidelio.ids import new_id
from fidelio.ledger.contract import Ledger
from fidelio.ledger.encoding import DELETED
from fidelio.ledger.long_text import sanitize_text
from fidelio.ledger.model import Change, CommitResult, Completion, DeadLetter, Job, Json, Lease, NewJob, Retry, Settlement
from fidelio.ledger.paging import all_jobs
from fidelio.retry import TRANSIENT, cancel_tasks

FIRST_BACKOFF_MS = 1_000
MAX_BACKOFF_MS = 300_000
ERROR_CHARACTERS = 2_000

# Changes without an event (a job queued by another process, a released lease) send no notification and are found by polling.
_POLL_SECONDS = 1.0
# The error of a job whose worker was stopped, which says nothing about the job.
STOPPED = "The worker was stopped before the job ended."
# Pause after a claim that another worker won, so that the loop does not spin.
_RETRY_SECONDS = 0.05
# Commits that follow at once are looked at together: looking after every commit took a third of a busy server's CPU time.
_QUIET_SECONDS = 0.02

_log = logging.getLogger(__name__)
_random = SystemRandom()


def compute_backoff(attempt: int, *, random: Callable[[], float]) -> int:
    """Compute the milliseconds to wait after failed attempt 1, 2, ...: exponential with a cap, half of it jitter."""
    whole = min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS << min(attempt - 1, 30))
    return whole // 2 + int(random() * (whole - whole // 2))


class Assignment:
    """A claimed job, as its handler sees it."""

    def __init__(self, ledger: Ledger, lease: Lease) -> None:
        self.ledger, self.lease = ledger, lease
        self.is_settled = False

    async def commit(self, change: Change, *others: Change, settle: Settlement | None = None) -> tuple[CommitResult, ...]:
        """Commit while the lease is held, else raise `StaleLease`; `settle` ends the job in the same transaction."""
        result = await self.ledger.commit(structs.replace(change, lease=self.lease, settle=settle), *others)
        self.is_settled = self.is_settled or settle is not None
        return result


Handler = Callable[[Assignment], Awaitable[None]]
# Chooses the jobs to claim now, from the due jobs and the jobs that this worker has claimed.
Admit = Callable[[Sequence[Job], Sequence[Job]], Sequence[Job]]


class Jobs:
    """Registry of job handlers and the loop that runs them.

    A job that fails is retried after `compute_backoff`, up to `max_attempts` attempts, and then kept as a dead letter with its
    last error. `grace` is the number of seconds that running handlers get after `stop`. With `admit`, only the due jobs that it
    chooses are claimed; it is asked again when a handler ends, after `wake`, and every second.
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
        admit: Admit | None = None,
    ) -> None:
        self._ledger, self._clock = ledger, clock
        self._owner = owner or f"{socket.gethostname()}/{os.getpid()}/{new_id('w_')}"
        self._lease_ms, self._max_attempts = lease_ms, max_attempts
        self._concurrency, self._grace, self._admit = concurrency, grace, admit
        self._handlers: dict[str, Handler] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._wakeup = asyncio.Event()
        self._is_stopping = False

    def register(self, kind: str, handler: Handler) -> None:
        if kind in self._handlers:
            raise UsageProblem(f"Jobs of kind {kind!r} have a handler already.", remedy="Register each kind only once.")
        self._handlers[kind] = handler
        self._wakeup.set()

    async def enqueue(self, kind: str, session: str, due: int = 0, payload: Json | None = None, key: str | None = None) -> None:
        """Queue a job that is due at `due`. To queue it together with an event, put a `NewJob` into the change instead."""
        job = NewJob(kind=kind, session=session, due=due, payload=payload or {}, key=key)
        await self._ledger.commit(Change(session=session, jobs=(job,)))
        self._wakeup.set()

    def wake(self) -> None:
        """Look for due jobs now."""
        self._wakeup.set()

    def stop(self) -> None:
        """Ask `run` to end: it claims no more jobs, waits `grace` seconds for handlers and releases the remaining leases."""
        self._is_stopping = True
        self._wakeup.set()

    async def run(self) -> None:
        """Claim and run due jobs until `stop`. Cancelling it skips the grace period."""
        try:
            while not self._is_stopping:
                await self._run_once()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=self._grace)
        finally:
            await cancel_tasks(*self._tasks)

    async def _run_once(self) -> None:
        self._wakeup.clear()
        try:
            if len(self._tasks) < self._concurrency:
                await (self._claim_or_wait() if self._admit is None else self._claim_admitted_or_wait(self._admit))
                return
        except TRANSIENT as error:
            _log.warning("Due jobs cannot be claimed, retrying: %s", error)
        await self._wait(asyncio.sleep(_POLL_SECONDS))

    async def _claim_or_wait(self) -> None:
        kinds, looked_at = tuple(self._handlers), time.monotonic()
        position = await self._ledger.wait(after=-1, timeout=0)
        # `next_due` only reads. Claiming takes the write lock, which an idle queue must not hold.
        due = await self._ledger.next_due(kinds)
        seconds = _POLL_SECONDS if due is None else min((due - self._clock()) / 1000, _POLL_SECONDS)
        if seconds <= 0:
            if await self._claim(kinds):
                return
            seconds = _RETRY_SECONDS
        await self._wait(self._ledger.wait(after=position, timeout=seconds))
        pause = looked_at + _QUIET_SECONDS - time.monotonic()
        if pause > 0:
            await self._wait(asyncio.sleep(pause))

    async def _claim(self, kinds: Sequence[str], session: str | None = None) -> bool:
        """Claim a job and start its handler; return whether there was a job."""
        lease = await self._ledger.claim(self._owner, kinds, lease_ms=self._lease_ms, session=session)
        if lease is None:
            return False
        task = asyncio.create_task(self._run_handler(Assignment(self._ledger, lease)))
        self._tasks.add(task)
        task.add_done_callback(self._on_handler_done)
        return True

    async def _claim_admitted_or_wait(self, admit: Admit) -> None:
        kinds, now = tuple(self._handlers), self._clock()
        queued = [job for kind in kinds for job in await all_jobs(self._ledger, kind)]
        held = [job for job in queued if job.lease_expires > now]
        sessions = {job.session for job in held}
        due = [job for job in queued if job.due <= now and job.session not in sessions]
        admitted = admit(due, [job for job in held if job.lease_owner == self._owner])
        # Concurrent claims share a disk sync. All of them end before an error is raised: a claim that ended later would start a
        # handler that nobody stops.
        claims = (self._claim(kinds, session) for session in {job.session: job for job in admitted})
        claimed = await asyncio.gather(*claims, return_exceptions=True)
        for error in claimed:
            if isinstance(error, BaseException):
                raise error
        if not any(claimed):
            times = [(job.due - now) / 1000 for job in queued if job.due > now]
            await self._wait(asyncio.sleep(min([_RETRY_SECONDS if admitted else _POLL_SECONDS, *times])))

    async def _wait(self, until: Coroutine[None, None, object]) -> None:
        """Wait until `until` completes or this process sets the wake-up event."""
        task_done, woken = asyncio.create_task(until), asyncio.create_task(self._wakeup.wait())
        try:
            await asyncio.wait({task_done, woken}, return_when=asyncio.FIRST_COMPLETED)
            if task_done.done():
                task_done.result()
        finally:
            await cancel_tasks(task_done, woken)

    def _on_handler_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._wakeup.set()

    async def _run_handler(self, assignment: Assignment) -> None:
        """Run a handler and settle its job; this is the outermost error boundary of handlers."""
        lease = assignment.lease
        try:
            settlement = await self._run_with_heartbeat(assignment)
        except asyncio.CancelledError:
            await self._settle(assignment, Retry(due=self._clock(), error=STOPPED))
            raise
        except StaleLease:
            if await self._is_deleted(lease.session):
                _log.info("The session of job %s was deleted; its handler was stopped.", lease.job)
                return
            _log.warning("Job %s was claimed by another worker after its lease expired; its handler was stopped.", lease.job)
            return
        except Exception as error:  # noqa: BLE001  # a handler may raise anything; the loop must go on
            _report_failure(lease, error)
            settlement = self._after_failure(lease, error)
        await self._settle(assignment, settlement)

    async def _is_deleted(self, session: str) -> bool:
        try:
            return (await self._ledger.session(session)).status == DELETED
        except LedgerError:
            return False

    async def _run_with_heartbeat(self, assignment: Assignment) -> Settlement:
        lease = assignment.lease
        # Every earlier attempt ended without a settlement, so the workers probably crashed; another run may crash this one.
        if lease.attempt > self._max_attempts:
            return DeadLetter(error=f"Started {lease.attempt - 1} times, and every worker ended before it settled the job.")
        handler_task = asyncio.ensure_future(self._handlers[lease.kind](assignment))
        heartbeat = asyncio.create_task(self._renew_lease(lease))
        try:
            await asyncio.wait({handler_task, heartbeat}, return_when=asyncio.FIRST_COMPLETED)
            (handler_task if handler_task.done() else heartbeat).result()
        finally:
            await cancel_tasks(handler_task, heartbeat)
        return Completion()

    async def _renew_lease(self, lease: Lease) -> None:
        """Renew the lease periodically; raise `StaleLease` when it is lost or expires before a renewal succeeds."""
        while True:
            await asyncio.sleep(self._lease_ms / 3_000)
            try:
                async with asyncio.timeout((lease.expires - self._clock()) / 1000):
                    lease = await self._ledger.heartbeat(lease, lease_ms=self._lease_ms)
            except TimeoutError as error:
                raise StaleLease(lease.job, lease.fence) from error
            except TRANSIENT as error:
                _log.warning("The lease of job %s was not renewed, retrying: %s", lease.job, error)

    def _after_failure(self, lease: Lease, error: Exception) -> Settlement:
        text = _describe_error(error)
        if lease.attempt >= self._max_attempts:
            return DeadLetter(error=text)
        return Retry(due=self._clock() + compute_backoff(lease.attempt, random=_random.random), error=text)

    async def _settle(self, assignment: Assignment, settlement: Settlement) -> None:
        if assignment.is_settled:
            return
        try:
            await self._ledger.settle(assignment.lease, settlement)
        except LedgerError as error:
            # Nothing is lost: the lease expires and the job is claimed again.
            _log.warning("The settlement of job %s was not stored: %s", assignment.lease.job, error)


def _report_failure(lease: Lease, error: Exception) -> None:
    """Log an error of ours as a line, because each attempt may print it; any other error with its traceback."""
    expected = isinstance(error, FidelioError)
    words = " ".join((str(error) if expected else _describe_error(error)).split())
    about = (lease.job, lease.kind, lease.attempt, words)
    _log.warning("Job %s of kind %s failed (attempt %d): %s", *about, exc_info=None if expected else error)


def _describe_error(error: Exception) -> str:
    """Describe an error in characters that both databases can store."""
    return sanitize_text(f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS])

"""The agent host: runs the queued agents of a home in the process that holds its lock.

Every process may queue and stop runs; that is recorded in the ledger. The host follows the ledger: it admits queued runs,
carries them out, and stops those that are to be stopped. When its process dies, the next process acquires the lock, adopts the
processes that it left, and records the other runs as lost. A host that fails without dying releases the lock and restarts.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self

from fidelio.errors import SessionNotFound, StaleLease
from fidelio.ids import new_id, session_of_run
from fidelio.ledger.jobs import Assignment, Jobs
from fidelio.ledger.model import Event, Lease, Retry
from fidelio.locks import host_lock, host_name
from fidelio.orchestrator.record.record import (
    END_EVENTS,
    RUN_GOING_ON,
    RUN_QUEUED,
    RUN_STOP_REQUESTED,
    RUN_WAITING,
    SESSION_DELETED,
)
from fidelio.orchestrator.record.rules import is_active
from fidelio.orchestrator.record.unit_of_work import LoadedAgent, decode_session
from fidelio.orchestrator.runs.admission import Admission, Candidate
from fidelio.orchestrator.runs.callbacks import Callbacks
from fidelio.orchestrator.runs.cleanup import end_orphaned_processes, sweep_run_files
from fidelio.orchestrator.runs.context import OrchestratorContext
from fidelio.orchestrator.runs.preparation import sweep_worktrees
from fidelio.orchestrator.runs.queries import AgentQueries
from fidelio.orchestrator.runs.results import CALLBACK
from fidelio.orchestrator.runs.run import RunController
from fidelio.retry import TRANSIENT, cancel_tasks, restart_on_failure, retry_transient, sleep_until

RUN_JOB = "agent.run"
_FOLLOWED_EVENTS = (RUN_QUEUED, RUN_WAITING, RUN_GOING_ON, RUN_STOP_REQUESTED, SESSION_DELETED, *END_EVENTS)
_BEGUN_STATES = ("starting", "running", "waiting")
_RETRY_SECONDS = 1.0
_POLL_SECONDS = 5.0
_PAGE = 1_000
_MAX_JOBS = 10_000
# Admission decides how many run at once; the job loops must not limit it, nor the runs that are adopted.
_MAX_RUNS = 10_000
# A claim waits for a disk sync; concurrent claims share a sync.
_CLAIMERS = 4
# A job of a run is claimed again by each host that adopts it, which may be often; a callback must arrive in any case.
_MAX_ATTEMPTS = 1_000_000

_log = logging.getLogger(__name__)


class AgentHost:
    """`async with AgentHost(context):` runs agents in the background for as long as the block lasts.

    Where another process is the host already, it waits in the background until that process ends. `grace` is how many seconds
    agents inside this process get when the block ends; agents with a process of their own continue without a host.
    """

    def __init__(self, context: OrchestratorContext, *, grace: float = 5.0) -> None:
        self._context, self._grace = context, grace
        self._lock = host_lock(context.home)
        self._loop: HostLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._shutdown = asyncio.Event()

    @property
    def is_hosting(self) -> bool:
        """Whether this process is the agent host."""
        return self._lock.is_held

    @property
    def is_busy(self) -> bool:
        return self._loop is not None and self._loop.is_busy

    @property
    def runs(self) -> tuple[str, ...]:
        """The ids of the runs that this process hosts."""
        return self._loop.runs if self._loop is not None else ()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shutdown.set()
        assert self._task is not None
        await self._task

    async def _run(self) -> None:
        name = f"The host of the agents in {self._context.home.path}"
        await restart_on_failure(self._serve_or_wait, name=name, until=self._shutdown)

    async def _serve_or_wait(self) -> None:
        await (self._serve() if self._lock.acquire() else sleep_until(_RETRY_SECONDS, until=self._shutdown))

    async def _serve(self) -> None:
        self._loop = HostLoop(self._context, grace=self._grace)
        try:
            await self._loop.serve(self._shutdown)
        finally:
            self._loop = None
            self._lock.release()


class HostLoop:
    """The work of a host from acquiring the lock to its end or a failure; a restart creates a new object."""

    def __init__(self, context: OrchestratorContext, *, grace: float) -> None:
        self._context, self._queries = context, AgentQueries(context)
        self._name = host_name(self._context.home)
        owner = f"{self._name}/{os.getpid()}/{new_id('w_')}"
        limits = self._context.limits
        self._admission = Admission(per_project=limits.per_project, total=limits.total)
        self._admitted_count = 0
        self._controllers: dict[str, RunController] = {}
        self._admission_changed = asyncio.Event()
        jobs = partial(
            Jobs, self._context.ledger, clock=self._context.clock, owner=owner, max_attempts=_MAX_ATTEMPTS, grace=grace
        )
        self._run_jobs = tuple(jobs(concurrency=_MAX_RUNS) for _ in range(_CLAIMERS))
        self._callback_jobs = jobs()
        for runs in self._run_jobs:
            runs.register(RUN_JOB, self._run_job)
        self._callback_jobs.register(CALLBACK, Callbacks(self._context, self._queries).deliver)

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(self._controllers)

    @property
    def is_busy(self) -> bool:
        return bool(self._controllers) or self._admission.queued_count > 0

    async def serve(self, until: asyncio.Event) -> None:
        position = await self._context.ledger.wait(after=-1, timeout=0)
        await retry_transient(self._reconcile)
        jobs = [asyncio.create_task(loop.run()) for loop in (*self._run_jobs, self._callback_jobs)]
        others = [asyncio.create_task(self._follow(position)), asyncio.create_task(self._admit())]
        ending = asyncio.create_task(until.wait())
        try:
            # A task that ends before `until` is set has failed, and the host with it.
            await asyncio.wait({*jobs, *others, ending}, return_when=asyncio.FIRST_COMPLETED)
            await self._shut_down(jobs)
        finally:
            await cancel_tasks(*others, ending, *jobs)
        for task in (*others, *jobs):
            if not task.cancelled() and (error := task.exception()):
                raise error

    async def _shut_down(self, jobs: list[asyncio.Task[None]]) -> None:
        for loop in (*self._run_jobs, self._callback_jobs):
            loop.stop()
        for controller in self._controllers.values():
            if controller.has_process:
                controller.detach()
        await asyncio.wait(jobs)

    async def _reconcile(self) -> None:
        """Adopt the active runs of the previous host, queue the queued runs, and clean up after a crash."""
        await self._release_leases()
        begun: set[str] = set()
        for state in _BEGUN_STATES:
            async for session in self._queries.iterate_sessions(status=state):
                begun.add(session.id)
                await self._adopt_run(decode_session(session))
        queued = [decode_session(session) async for session in self._queries.iterate_sessions(status="queued")]
        for agent in sorted(queued, key=lambda agent: agent.record.run.queued_at):
            self._enqueue(agent)
        await sweep_run_files(self._context.home, self._context.ledger, begun)
        await sweep_worktrees(self._context)
        await end_orphaned_processes(self._context.ledger)

    async def _release_leases(self) -> None:
        """Release the leases of the previous host at once: this process holds the lock, so that host is dead."""
        for job in await self._context.ledger.jobs(limit=_MAX_JOBS):
            if job.kind in (RUN_JOB, CALLBACK) and job.lease_owner.startswith(f"{self._name}/"):
                lease = Lease(
                    job=job.id,
                    kind=job.kind,
                    session=job.session,
                    payload=job.payload,
                    attempt=job.attempts,
                    fence=job.lease_fence,
                    owner=job.lease_owner,
                    expires=job.lease_expires,
                )
                with suppress(StaleLease):
                    await self._context.ledger.settle(lease, Retry(due=self._context.clock(), error="Its host has died."))

    async def _adopt_run(self, agent: LoadedAgent) -> None:
        """Ensure that a run of this host has a job, so that it is adopted. Runs of other machines are left to them."""
        run = agent.record.run
        if run.host == self._name:
            await self._run_jobs[0].enqueue(RUN_JOB, agent.id, payload={"run": run.id}, key=run.id)

    async def _follow(self, position: int) -> None:
        while True:
            try:
                position = await self._follow_once(position)
            except TRANSIENT as error:
                _log.warning("The record cannot be followed, trying again: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _follow_once(self, position: int) -> int:
        newest = await self._context.ledger.wait(after=position, timeout=_POLL_SECONDS)
        if newest <= position:
            return position
        found = await self._context.ledger.events(after=position, types=_FOLLOWED_EVENTS, limit=_PAGE)
        for event in found:
            await self._handle_event(event)
        last = found[-1].position if found else 0
        return last if len(found) == _PAGE else max(newest, last)

    async def _handle_event(self, event: Event) -> None:
        run = str(event.body.get("run", ""))
        if event.type == RUN_STOP_REQUESTED:
            if controller := self._controllers.get(run):
                controller.stop()
        elif event.type == SESSION_DELETED:
            self._stop_runs_of(event.session)
        elif event.type in (RUN_QUEUED, RUN_WAITING, RUN_GOING_ON):
            with suppress(SessionNotFound):
                agent = await self._context.unit.load(event.session)
                (self._enqueue if event.type == RUN_QUEUED else self._update_slot)(agent)
        else:
            self._admission.withdraw(run)

    def _stop_runs_of(self, session: str) -> None:
        """Stop the runs of a deleted session: without a record they could not be stopped later."""
        for run, controller in self._controllers.items():
            if session_of_run(run) == session:
                controller.stop()

    def _enqueue(self, agent: LoadedAgent) -> None:
        if agent.record.run.state == "queued":
            self._admission.enqueue(_candidate(agent))
            self._admission_changed.set()

    def _update_slot(self, agent: LoadedAgent) -> None:
        """Assign a slot to a run of this host while it works, and release the slot while it waits for a person."""
        run = agent.record.run
        if run.id not in self._controllers:
            return
        if run.state == "waiting":
            self._admission.release(run.id)
            self._admission_changed.set()
        elif is_active(run.state):
            self._admission.occupy(_candidate(agent))

    async def _admit(self) -> None:
        while True:
            await self._admission_changed.wait()
            self._admission_changed.clear()
            await asyncio.gather(*(self._dispatch(candidate) for candidate in iter(self._admission.admit, None)))

    async def _dispatch(self, candidate: Candidate) -> None:
        """Enqueue the job of an admitted run."""
        try:
            # Jobs are claimed in the order of their due times, so a growing number in the past keeps the order of admission.
            self._admitted_count += 1
            payload = {"run": candidate.run}
            claimer = self._run_jobs[self._admitted_count % _CLAIMERS]
            await claimer.enqueue(RUN_JOB, candidate.session, self._admitted_count, payload=payload, key=candidate.run)
        except SessionNotFound:
            self._admission.release(candidate.run)
        except TRANSIENT as error:
            _log.warning("Run %s was not admitted, trying again: %s", candidate.run, error)
            self._admission.release(candidate.run)
            self._admission.enqueue(candidate)
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._admission_changed.set)

    async def _run_job(self, work: Assignment) -> None:
        controller = RunController(self._context, self._name, work)
        self._controllers[controller.run] = controller
        try:
            with suppress(SessionNotFound):
                self._update_slot(await self._context.unit.load(work.lease.session))
            await controller.carry_out()
        finally:
            # A second job of the same run, left by a host that died, may have replaced this controller meanwhile.
            if self._controllers.get(controller.run) is controller:
                del self._controllers[controller.run]
            self._admission.release(controller.run)
            self._admission_changed.set()


def _candidate(agent: LoadedAgent) -> Candidate:
    return Candidate(run=agent.record.run.id, session=agent.id, project=agent.session.namespace, depth=agent.record.depth)

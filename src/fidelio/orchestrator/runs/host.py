"""The agent host: runs the queued agents of a home in the process that holds its lock.

Every process may queue and stop runs; that is recorded in the ledger, a queued run together with its job. The host claims the
jobs of the runs that may begin, carries them out, and stops those that are to be stopped. When its process dies, the next
process acquires the lock, adopts the processes that it left, and records the other runs as lost. A host that fails without
dying releases the lock and restarts.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self

from fidelio.errors import SessionNotFound, StaleLease
from fidelio.ids import new_id, session_of_run
from fidelio.ledger.jobs import Assignment, Jobs
from fidelio.ledger.model import Change, Event, Job, Lease, Retry
from fidelio.ledger.paging import all_jobs
from fidelio.locks import host_lock, host_name
from fidelio.orchestrator.record.model import ACTIVE_STATES
from fidelio.orchestrator.record.record import RUN_QUEUED, RUN_STOP_REQUESTED, RUN_WAITING, SESSION_DELETED
from fidelio.orchestrator.record.unit_of_work import RUN_JOB, LoadedAgent, decode_session, run_job
from fidelio.orchestrator.runs.admission import Admission
from fidelio.orchestrator.runs.callbacks import Callbacks
from fidelio.orchestrator.runs.cleanup import end_orphaned_processes, sweep_run_files
from fidelio.orchestrator.runs.context import OrchestratorContext
from fidelio.orchestrator.runs.preparation import sweep_worktrees
from fidelio.orchestrator.runs.queries import AgentQueries
from fidelio.orchestrator.runs.results import CALLBACK
from fidelio.orchestrator.runs.run import RunController
from fidelio.retry import TRANSIENT, cancel_tasks, restart_on_failure, retry_transient, sleep_until

_FOLLOWED_EVENTS = (RUN_QUEUED, RUN_WAITING, RUN_STOP_REQUESTED, SESSION_DELETED)
_RETRY_SECONDS = 1.0
_POLL_SECONDS = 5.0
_PAGE = 1_000
# Admission decides how many run at once; the job loop must not limit it, nor the runs that are adopted.
_MAX_RUNS = 10_000
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
        self._controllers: dict[str, RunController] = {}
        jobs = partial(
            Jobs, self._context.ledger, clock=self._context.clock, owner=owner, max_attempts=_MAX_ATTEMPTS, grace=grace
        )
        self._run_jobs, self._callback_jobs = jobs(concurrency=_MAX_RUNS, admit=self._admit), jobs()
        self._run_jobs.register(RUN_JOB, self._run_job)
        self._callback_jobs.register(CALLBACK, Callbacks(self._context, self._queries).deliver)

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(self._controllers)

    async def serve(self, until: asyncio.Event) -> None:
        position = await self._context.ledger.wait(after=-1, timeout=0)
        await retry_transient(self._reconcile)
        jobs = [asyncio.create_task(loop.run()) for loop in (self._run_jobs, self._callback_jobs)]
        follower, ending = asyncio.create_task(self._follow(position)), asyncio.create_task(until.wait())
        try:
            # A task that ends before `until` is set has failed, and the host with it.
            await asyncio.wait({*jobs, follower, ending}, return_when=asyncio.FIRST_COMPLETED)
            await self._shut_down(jobs)
        finally:
            await cancel_tasks(follower, ending, *jobs)
        for task in (follower, *jobs):
            if not task.cancelled() and (error := task.exception()):
                raise error

    async def _shut_down(self, jobs: list[asyncio.Task[None]]) -> None:
        for loop in (self._run_jobs, self._callback_jobs):
            loop.stop()
        for controller in self._controllers.values():
            if controller.outlives_host:
                controller.supervisor.detach()
        await asyncio.wait(jobs)

    async def _reconcile(self) -> None:
        """Release the leases of the previous host, queue the runs that have no job, and clean up after a crash."""
        run_jobs = await all_jobs(self._context.ledger, RUN_JOB)
        for job in (*run_jobs, *await all_jobs(self._context.ledger, CALLBACK)):
            await self._release_lease(job)
        begun = await self._queue_runs_without_job({str(job.payload["run"]) for job in run_jobs})
        await sweep_run_files(self._context.home, self._context.ledger, begun)
        await sweep_worktrees(self._context)
        await end_orphaned_processes(self._context.ledger)

    async def _release_lease(self, job: Job) -> None:
        """Release a lease of the previous host at once: this process holds the lock, so that host is dead."""
        if job.lease_owner.startswith(f"{self._name}/"):
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
                await self._context.ledger.settle(lease, Retry(due=job.due, error="Its host has died."))

    async def _queue_runs_without_job(self, known: Collection[str]) -> set[str]:
        """Queue the active runs that have no job, as earlier versions left them; return the sessions whose runs have begun."""
        active = [
            decode_session(session)
            for state in sorted(ACTIVE_STATES)
            async for session in self._queries.iterate_sessions(status=state)
        ]
        # Sessions are listed newest first, and several may have been queued in the same millisecond.
        active.reverse()
        for agent in sorted(active, key=lambda agent: agent.record.run.queued_at):
            # A run that another machine has begun is left to it.
            if agent.record.run.id not in known and agent.record.run.host in ("", self._name):
                await self._queue_run(agent)
        return {agent.id for agent in active if agent.record.run.state != "queued"}

    async def _queue_run(self, agent: LoadedAgent) -> None:
        run, project = agent.record.run, agent.session.namespace
        # A run that has begun is adopted, whatever the limits say: its job names no project.
        job = run_job(agent.id, project if run.state == "queued" else "", agent.record.depth, run.id)
        with suppress(SessionNotFound):
            await self._context.ledger.commit(Change(session=agent.id, jobs=(job,)))

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
                controller.supervisor.stop()
        elif event.type == SESSION_DELETED:
            self._stop_runs_of(event.session)
        else:
            self._run_jobs.wake()

    def _stop_runs_of(self, session: str) -> None:
        """Stop the runs of a deleted session: without a record they could not be stopped later."""
        for run, controller in self._controllers.items():
            if session_of_run(run) == session:
                controller.supervisor.stop()

    def _admit(self, due: Sequence[Job], claimed: Sequence[Job]) -> list[Job]:
        """Choose the runs that begin now. A run that waits for a person occupies no slot until it continues."""
        waiting = {run for run, controller in self._controllers.items() if controller.is_waiting}
        return self._admission.admit(due, [job for job in claimed if job.payload["run"] not in waiting])

    async def _run_job(self, work: Assignment) -> None:
        controller = RunController(self._context, self._name, work)
        self._controllers[controller.run] = controller
        try:
            await controller.carry_out()
        finally:
            # A second job of the same run, left by a host that died, may have replaced this controller meanwhile.
            if self._controllers.get(controller.run) is controller:
                del self._controllers[controller.run]

"""The one process of a home that carries out its agents.

Every process may ask for anything; what is asked for is on record. The host follows the record: it admits what is queued,
carries it out, stops what is to be stopped. It is whoever holds the lock; when it dies, the next one takes over, adopts the
processes it left, and says of the rest that they were lost. One that fails without dying gives the lock back and begins anew.
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
from fidelio.orchestrator.record.record import DELETED, ENDS, GOING_ON, QUEUED, STOP_REQUESTED, WAITING
from fidelio.orchestrator.record.rules import is_active
from fidelio.orchestrator.record.unit_of_work import LoadedAgent, load_row
from fidelio.orchestrator.runs.admission import Admission, Candidate
from fidelio.orchestrator.runs.callbacks import Callbacks
from fidelio.orchestrator.runs.cleanup import end_processes_of_deleted, sweep
from fidelio.orchestrator.runs.context import OrchestratorContext
from fidelio.orchestrator.runs.preparation import sweep_worktrees
from fidelio.orchestrator.runs.queries import Queries
from fidelio.orchestrator.runs.results import CALLBACK
from fidelio.orchestrator.runs.run import RunController
from fidelio.retry import TRANSIENT, restart_on_failure, retry_transient, sleep_until

RUN = "agent.run"
_FOLLOWED = (QUEUED, WAITING, GOING_ON, STOP_REQUESTED, DELETED, *ENDS)
_BEGUN = ("starting", "running", "waiting")
_TAKE_SECONDS = 1.0
_GLANCE_SECONDS = 5.0
_PAGE = 1_000
_MOST_JOBS = 10_000
# Admission decides how many run at once; the job loops only have to be enough for it, and for everything that is adopted.
_MAX_RUNS = 10_000
# A claim waits for the disk; several at once share one wait.
_CLAIMERS = 4
# A job of a run is claimed again each time a host adopts it, which may be often in a long life; a callback must arrive.
_ATTEMPTS = 1_000_000

_log = logging.getLogger(__name__)


class Host:
    """`async with Host(context):` carries out agents in the background for as long as the block lasts.

    Where another process is the host already, it waits in the background until that one is gone. `grace` is how many seconds
    agents that live in this process get when the block ends; agents with a process of their own go on without a host.
    """

    def __init__(self, context: OrchestratorContext, *, grace: float = 5.0) -> None:
        self._context, self._grace = context, grace
        self._lock = host_lock(context.home)
        self._loop: HostLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()

    @property
    def hosting(self) -> bool:
        """Whether this process is the one."""
        return self._lock.held

    @property
    def busy(self) -> bool:
        return self._loop is not None and self._loop.busy

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs that this process carries out."""
        return self._loop.runs if self._loop is not None else ()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._live())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        assert self._task is not None
        await self._task

    async def _live(self) -> None:
        name = f"The host of the agents in {self._context.home.path}"
        await restart_on_failure(self._serve_or_wait, name=name, until=self._ending)

    async def _serve_or_wait(self) -> None:
        await (self._serve() if self._lock.acquire() else sleep_until(_TAKE_SECONDS, until=self._ending))

    async def _serve(self) -> None:
        self._loop = HostLoop(self._context, grace=self._grace)
        try:
            await self._loop.serve(self._ending)
        finally:
            self._loop = None
            self._lock.release()


class HostLoop:
    """One time of being the host, from taking the lock to the end or to a failure. Nothing of it is used again."""

    def __init__(self, context: OrchestratorContext, *, grace: float) -> None:
        self._context, self._queries = context, Queries(context)
        self._name = host_name(self._context.home)
        owner = f"{self._name}/{os.getpid()}/{new_id('w_')}"
        limits = self._context.limits
        self._admission = Admission(per_project=limits.per_project, total=limits.total)
        self._admitted = 0
        self._controllers: dict[str, RunController] = {}
        self._look = asyncio.Event()
        jobs = partial(Jobs, self._context.ledger, clock=self._context.clock, owner=owner, max_attempts=_ATTEMPTS, grace=grace)
        self._runs = tuple(jobs(concurrency=_MAX_RUNS) for _ in range(_CLAIMERS))
        self._callbacks = jobs()
        for runs in self._runs:
            runs.register(RUN, self._carry_out)
        self._callbacks.register(CALLBACK, Callbacks(self._context, self._queries).deliver)

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(self._controllers)

    @property
    def busy(self) -> bool:
        return bool(self._controllers) or self._admission.waiting > 0

    async def serve(self, until: asyncio.Event) -> None:
        position = await self._context.ledger.wait(after=-1, timeout=0)
        await retry_transient(self._reconcile)
        jobs = [asyncio.create_task(loop.run()) for loop in (*self._runs, self._callbacks)]
        others = [asyncio.create_task(self._follow(position)), asyncio.create_task(self._admit())]
        ending = asyncio.create_task(until.wait())
        try:
            # Whichever ends first by itself has failed, and the host with it.
            await asyncio.wait({*jobs, *others, ending}, return_when=asyncio.FIRST_COMPLETED)
            await self._wind_down(jobs)
        finally:
            await _cancel(*others, ending, *jobs)
        for task in (*others, *jobs):
            if not task.cancelled() and (error := task.exception()):
                raise error

    async def _wind_down(self, jobs: list[asyncio.Task[None]]) -> None:
        for loop in (*self._runs, self._callbacks):
            loop.stop()
        for controller in self._controllers.values():
            if controller.has_process:
                controller.leave()
        await asyncio.wait(jobs)

    async def _reconcile(self) -> None:
        """Takes over from the host before: what it carried out, and what was still queued."""
        await self._free_leases()
        begun: set[str] = set()
        for state in _BEGUN:
            async for session in self._queries.every(status=state):
                begun.add(session.id)
                await self._take_over(load_row(session))
        queued = [load_row(session) async for session in self._queries.every(status="queued")]
        for at in sorted(queued, key=lambda at: at.record.run.queued_at):
            self._join(at)
        await sweep(self._context.home, self._context.ledger, begun)
        await sweep_worktrees(self._context)
        await end_processes_of_deleted(self._context.ledger)

    async def _free_leases(self) -> None:
        """We hold the lock, so whoever had these leases under it is dead: nobody need wait for them to run out."""
        for job in await self._context.ledger.jobs(limit=_MOST_JOBS):
            if job.kind in (RUN, CALLBACK) and job.lease_owner.startswith(f"{self._name}/"):
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

    async def _take_over(self, at: LoadedAgent) -> None:
        """A run that was begun here has a job; should that be lost, it gets another. Runs of other machines stay theirs."""
        run = at.record.run
        if run.host == self._name:
            await self._runs[0].enqueue(RUN, at.id, payload={"run": run.id}, key=run.id)

    async def _follow(self, position: int) -> None:
        while True:
            try:
                position = await self._read_on(position)
            except TRANSIENT as error:
                _log.warning("The record cannot be followed, trying again: %s", error)
                await asyncio.sleep(_TAKE_SECONDS)

    async def _read_on(self, position: int) -> int:
        newest = await self._context.ledger.wait(after=position, timeout=_GLANCE_SECONDS)
        if newest <= position:
            return position
        found = await self._context.ledger.events(after=position, types=_FOLLOWED, limit=_PAGE)
        for event in found:
            await self._notice(event)
        last = found[-1].position if found else 0
        return last if len(found) == _PAGE else max(newest, last)

    async def _notice(self, event: Event) -> None:
        run = str(event.body.get("run", ""))
        if event.type == STOP_REQUESTED:
            if controller := self._controllers.get(run):
                controller.stop()
        elif event.type == DELETED:
            self._let_go(event.session)
        elif event.type in (QUEUED, WAITING, GOING_ON):
            with suppress(SessionNotFound):
                at = await self._context.unit.load(event.session)
                (self._join if event.type == QUEUED else self._give_place)(at)
        else:
            self._admission.leave(run)

    def _let_go(self, session: str) -> None:
        """Nobody could stop what works for a deleted session later: there is no record of it to ask for that."""
        for run, controller in self._controllers.items():
            if session_of_run(run) == session:
                controller.stop()

    def _join(self, at: LoadedAgent) -> None:
        if at.record.run.state == "queued":
            self._admission.join(_candidate(at))
            self._look.set()

    def _give_place(self, at: LoadedAgent) -> None:
        """A run that we carry out has a place while it works. While people think about its question, others have it."""
        run = at.record.run
        if run.id not in self._controllers:
            return
        if run.state == "waiting":
            self._admission.free(run.id)
            self._look.set()
        elif is_active(run.state):
            self._admission.take(_candidate(at))

    async def _admit(self) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            await asyncio.gather(*(self._release(one) for one in iter(self._admission.admit, None)))

    async def _release(self, candidate: Candidate) -> None:
        """Makes the job of an admitted run due."""
        try:
            # What is due is claimed in the order of its due time, and all of them are in the past.
            self._admitted += 1
            payload = {"run": candidate.run}
            claimer = self._runs[self._admitted % _CLAIMERS]
            await claimer.enqueue(RUN, candidate.session, self._admitted, payload=payload, key=candidate.run)
        except SessionNotFound:
            self._admission.free(candidate.run)
        except TRANSIENT as error:
            _log.warning("Run %s was not admitted, trying again: %s", candidate.run, error)
            self._admission.free(candidate.run)
            self._admission.join(candidate)
            asyncio.get_running_loop().call_later(_TAKE_SECONDS, self._look.set)

    async def _carry_out(self, work: Assignment) -> None:
        controller = RunController(self._context, self._name, work)
        self._controllers[controller.run] = controller
        try:
            with suppress(SessionNotFound):
                self._give_place(await self._context.unit.load(work.lease.session))
            await controller.carry_out()
        finally:
            # A second job of the same run, left over from a host that died, may have come while we tidied up.
            if self._controllers.get(controller.run) is controller:
                del self._controllers[controller.run]
            self._admission.free(controller.run)
            self._look.set()


def _candidate(at: LoadedAgent) -> Candidate:
    return Candidate(run=at.record.run.id, session=at.id, project=at.session.namespace, depth=at.record.depth)


async def _cancel(*tasks: asyncio.Task[None] | asyncio.Task[bool]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

"""What the application binds for the agent runtime: models, skills, workflows, and the workers that carry out wakes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from fidelio.app.agents import open_agents
from fidelio.app.blueprint_servers import BlueprintServers
from fidelio.clock import Clock, now_ms
from fidelio.conductor.plan import load_plan
from fidelio.errors import SessionNotFound
from fidelio.ledger import Ledger
from fidelio.ledger.model import Session
from fidelio.locks import is_hosted
from fidelio.orchestrator.runs.host_process import spawn_worker
from fidelio.providers.registry import Providers, open_providers
from fidelio.retry import cancel_tasks, restart_on_failure
from fidelio.runtime.agent_toolset.web import JsonSearch
from fidelio.runtime.deployments.deployments import DEPLOYMENT_JOB
from fidelio.runtime.ports import ActivityStatus, RuntimePorts
from fidelio.runtime.service import RuntimeContext, RuntimeService
from fidelio.runtime.skills.roots import list_default_roots
from fidelio.runtime.wakes.record import EXPIRY_JOB, WAKE_JOB
from fidelio.runtime.wakes.wake import OnSessionText, WakeRunner
from fidelio.runtime.wakes.worker import Worker, keep_working
from fidelio.sandbox.port import Sandboxes
from fidelio.settings import Settings
from fidelio.tokens.keyring import KeyRing

# The newest workflow sessions that are looked at for one of a workflow.
_MAX_SESSIONS = 200
# How far up the run is looked for that a workflow session belongs to.
_MAX_PARENTS = 20
# How long a worker that no run uses any more may finish wakes, and how long when the application is closed.
_FINISH_SECONDS = 3_600.0
_CLOSE_SECONDS = 5.0
# A worker waits for a request that expires so soon.
_SOON_MS = 60_000
Companion = Callable[[], AbstractAsyncContextManager[Callable[[], bool]]]


def open_runtime(
    ledger: Ledger, settings: Settings, sandboxes: Sandboxes, open_keys: Callable[[], KeyRing]
) -> tuple[RuntimeService, Providers]:
    """The service of runtime sessions with everything that `app` binds. The providers are closed by the caller."""
    providers = open_providers(models=settings.home.path / "models.yaml")
    workflows = WorkflowActivities(ledger)
    servers = BlueprintServers(ledger, lambda: open_agents(settings, ledger).context)
    ports = RuntimePorts(
        models=providers,
        skill_roots=partial(list_default_roots, settings.home),
        find_activity=workflows.find,
        fill_server=servers.fill,
        web_search=JsonSearch(settings.web_search) if settings.web_search else None,
    )
    return RuntimeService(RuntimeContext(ledger, now_ms, settings.home, sandboxes, open_keys, ports)), providers


@asynccontextmanager
async def host_runtime(service: RuntimeService, on_text: OnSessionText | None = None) -> AsyncIterator[Callable[[], bool]]:
    """Carry out wakes in this process during the block. Yields a function that says whether any is active."""
    async with keep_working(WakeRunner(service.context, on_text=on_text, previews=service.previews)) as worker:
        yield lambda: worker.is_busy


class SharedWorker:
    """The worker of all runs of an application. It carries out the wakes of any session while a run uses it.

    After the last use it claims no more wakes and finishes those that it has begun, in the background: they may be of sessions
    that no run follows. When `resources` are closed they get a moment, and are then released for another worker.
    """

    def __init__(self, resources: AsyncExitStack) -> None:
        self._resources, self._is_registered = resources, False
        self._users, self._unused = 0, asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def use(self, service: RuntimeService) -> AsyncIterator[None]:
        """Carry out wakes in this process at least until the end of the block, which does not wait for them."""
        if self._users == 0:
            self._begin(service)
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                self._unused.set()

    def _begin(self, service: RuntimeService) -> None:
        self._unused = asyncio.Event()
        task = asyncio.create_task(_work_while_used(service, self._unused))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if not self._is_registered:
            self._is_registered = True
            self._resources.push_async_callback(self._close)

    async def _close(self) -> None:
        # A run that is cut off later, while the application closes, registers again.
        self._is_registered = False
        self._unused.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)
        await cancel_tasks(*self._tasks)


async def _work_while_used(service: RuntimeService, unused: asyncio.Event) -> None:
    worker = Worker(WakeRunner(service.context, previews=service.previews), grace=_FINISH_SECONDS)
    work = restart_on_failure(worker.run, name="The worker of runs", until=unused)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(work)
        await unused.wait()
        worker.stop()


async def has_queued_wakes(ledger: Ledger, clock: Clock = now_ms) -> bool:
    """Whether a worker is needed: for a wake, however late it is due, or for a request that expires within a minute.

    A request that expires tomorrow keeps no process up. Whatever runs then carries it out, and an answer queues a wake.
    """
    if await ledger.next_due((WAKE_JOB, DEPLOYMENT_JOB)) is not None:
        return True
    expiry = await ledger.next_due((EXPIRY_JOB,))
    return expiry is not None and expiry <= clock() + _SOON_MS


async def start_worker_for_wakes(ledger: Ledger, settings: Settings) -> None:
    """Start the background worker if a wake is queued and no process hosts this home. It ends at once if another runs."""
    if await has_queued_wakes(ledger) and not is_hosted(settings.home):
        own = settings.ledger == str(settings.home.ledger)
        spawn_worker(settings.home, ledger=None if own else settings.ledger)


@asynccontextmanager
async def combine(*companions: Companion) -> AsyncIterator[Callable[[], bool]]:
    """Other work of a process, all at once. It is busy while any of them is."""
    async with AsyncExitStack() as stack:
        checks = [await stack.enter_async_context(companion()) for companion in companions]
        yield lambda: any(check() for check in checks)


class WorkflowActivities:
    """Answers from the ledger whether a workflow session, or an activity of it, was completed.

    A check names a session, or a workflow: then the newest session of it counts. A session that began before `since` does not
    count, nor does one that the conductor has run in another project. A session that a client runs itself belongs to none.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def find(self, check: Mapping[str, Any], project: str) -> ActivityStatus:
        workflow, activity = str(check.get("workflow") or ""), str(check.get("activity") or "")
        session = await self._find_session(check, workflow, project)
        if session is None:
            named = check.get("session") or f"of the workflow {workflow}"
            reason = f"There is no workflow session {named} of this project that began after the outcome was defined."
            return ActivityStatus(is_completed=False, reason=reason)
        if not activity:
            reason = f"The status of the workflow session {session.id} is {session.status}."
            return await self._cite(session, session.status == "completed", reason)
        is_done = activity in session.record.get("completed", ())
        words = "was" if is_done else "was not"
        return await self._cite(session, is_done, f"The activity {activity} {words} completed in session {session.id}.")

    async def _find_session(self, check: Mapping[str, Any], workflow: str, project: str) -> Session | None:
        since = int(check.get("since") or 0)
        for session in await self._list_sessions(str(check.get("session") or "")):
            is_named = session.kind == "workflow" and workflow in ("", session.record.get("workflow"))
            if is_named and session.created_at >= since and await self._may_count(session, project):
                return session
        return None

    async def _list_sessions(self, name: str) -> tuple[Session, ...]:
        """The named session, or the newest of all."""
        if not name:
            return (await self._ledger.sessions(kind="workflow", limit=_MAX_SESSIONS)).items
        try:
            return (await self._ledger.session(name),)
        except SessionNotFound:
            return ()

    async def _may_count(self, session: Session, project: str) -> bool:
        """Whether no run ties the session, or a session that started it, to another project."""
        for _ in range(_MAX_PARENTS):
            if (plan := await load_plan(self._ledger, session.id)) is not None:
                return not project or _is_same_directory(plan.project, project)
            if session.parent is None:
                break
            session = await self._ledger.session(session.parent)
        return True

    async def _cite(self, session: Session, is_completed: bool, reason: str) -> ActivityStatus:
        events = await self._ledger.events(session.id, after=session.last_seq - 1, limit=1)
        return ActivityStatus(is_completed=is_completed, reason=reason, citation=events[0].id if events else "")


def _is_same_directory(first: str, other: str) -> bool:
    return os.path.realpath(first) == os.path.realpath(other)

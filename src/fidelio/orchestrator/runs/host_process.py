"""The process of the agent host: hosting until idle, spawning a background worker, ending with its home.

Open files keep working after their directory was deleted, so without a check a worker would go on running agents for a ledger
that no other process can open.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec

from fidelio.errors import HomeProblem, LedgerError
from fidelio.home import Home
from fidelio.ids import session_of_run
from fidelio.locks import is_hosted, worker_lock
from fidelio.orchestrator.record.model import ACTIVE_STATES
from fidelio.orchestrator.record.record import RUN_QUEUED
from fidelio.orchestrator.record.rules import STOPPED_WITH_HOME
from fidelio.orchestrator.runs.context import OrchestratorContext
from fidelio.orchestrator.runs.host import AgentHost
from fidelio.orchestrator.runs.results import RunEnd, finish_run
from fidelio.processes.caller import identify_process
from fidelio.processes.ending import end_processes
from fidelio.processes.table import AGENT_MARKER, neutralize_mark
from fidelio.retry import restart_on_failure
from fidelio.settings import Settings


@contextmanager
def watch_home(home: Home) -> Iterator[Callable[[], bool]]:
    """Yield a function that checks whether the home is still the directory that it was at the beginning of the block."""
    # Held open, so that its inode number cannot be reused for a new directory.
    handle = os.open(home.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def is_there() -> bool:
        try:
            return os.path.samestat(os.fstat(handle), home.path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            # Another error does not mean that the directory was deleted, so the agents are not ended.
            return True

    try:
        yield is_there
    finally:
        os.close(handle)


IDLE_SECONDS = 10.0
_POLL_SECONDS = 0.5
_WORKERS: list[subprocess.Popen[bytes]] = []


# Other work of the same process, which says whether it has something to do.
Companion: TypeAlias = Callable[[], AbstractAsyncContextManager[Callable[[], bool]]]


@asynccontextmanager
async def _no_companion() -> AsyncIterator[Callable[[], bool]]:
    yield lambda: False


async def _no_work() -> bool:
    return False


async def work_until_idle(
    context: OrchestratorContext,
    idle_seconds: float = IDLE_SECONDS,
    companion: Companion = _no_companion,
    has_work: Callable[[], Awaitable[bool]] = _no_work,
) -> None:
    """Host agents until none was queued or active for `idle_seconds`. Returns at once if another worker runs.

    The companion runs meanwhile. The worker does not end while it is busy, or while `has_work` says that something is queued.
    Raises `HomeProblem` soon after the home was deleted, once all agents of this process have ended.
    """
    lock = worker_lock(context.home)
    while lock.acquire():
        try:
            await _host_until_idle(context, idle_seconds, companion, has_work)
        finally:
            lock.release()
        # A worker that was spawned for a new run may have found the lock held and exited, so check once more after the release.
        if not await has_active_runs(context) and not await has_work():
            return


async def _host_until_idle(
    context: OrchestratorContext, idle_seconds: float, companion: Companion, has_work: Callable[[], Awaitable[bool]]
) -> None:
    home, left = context.home, tuple[str, ...]()
    with watch_home(home) as is_there:
        async with AgentHost(context) as host, companion() as is_busy:
            async for _ in _poll_until_idle(context, host, idle_seconds, is_busy, has_work):
                if not is_there():
                    left = host.runs
                    break
            else:
                return
    # The host has detached from these processes for the next host to adopt, and there will be none.
    await asyncio.gather(*(_end_with_home(context, run) for run in left))
    raise HomeProblem(
        f"The home directory {home.path} was deleted, so the agents that worked for it were stopped.",
        remedy="Restore the directory, or start the agents again. A ledger outside of the home records that they ended.",
    )


async def _end_with_home(context: OrchestratorContext, run: str) -> None:
    await end_processes(run)
    ending = RunEnd(state="stopped", reason=STOPPED_WITH_HOME, detail="Its home directory was deleted.")
    # A ledger inside the deleted home may accept the event or not: no process can open it.
    with suppress(LedgerError):
        await finish_run(context, await context.unit.load(session_of_run(run)), ending, actor="worker")


async def _poll_until_idle(
    context: OrchestratorContext,
    host: AgentHost,
    idle_seconds: float,
    is_busy: Callable[[], bool],
    has_work: Callable[[], Awaitable[bool]],
) -> AsyncIterator[None]:
    """Yield repeatedly, until there was nothing to do for `idle_seconds`."""
    loop = asyncio.get_running_loop()
    busy_at = loop.time()
    while loop.time() - busy_at < idle_seconds:
        await asyncio.sleep(min(_POLL_SECONDS, idle_seconds))
        yield
        if host.runs or is_busy() or await has_active_runs(context) or await has_work():
            busy_at = loop.time()


async def has_active_runs(context: OrchestratorContext) -> bool:
    for state in sorted(ACTIVE_STATES):
        if (await context.ledger.sessions(kind="agent", status=state, limit=1)).items:
            return True
    return False


def spawn_worker(home: Home, *, ledger: str | None = None) -> int:
    """Start a worker that outlives this process, and return its process id. It exits at once if another worker runs."""
    environ = {name: value for name, value in os.environ.items() if name != AGENT_MARKER}
    environ["FIDELIO_HOME"] = str(home.path)
    if ledger is not None:
        environ["FIDELIO_LEDGER"] = ledger
    # Reap the workers of this process that have ended.
    _WORKERS[:] = [worker for worker in _WORKERS if worker.poll() is None]
    with Path(home.ensure().worker_log).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "fidelio", "work"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environ,
            cwd=home.path,
            start_new_session=True,
        )
    # This process may run below an agent; stopping that agent must not end the worker of all agents.
    neutralize_mark(process.pid)
    _WORKERS.append(process)
    return process.pid


@asynccontextmanager
async def host_agents(context: OrchestratorContext, settings: Settings, *, attended: bool = False) -> AsyncIterator[None]:
    """Host agents during the block; at its end a worker process is spawned for runs that are still active."""
    context = msgspec.structs.replace(context, is_attended=attended)
    try:
        async with _delegate_runs(context, settings) if identify_process().is_agent else AgentHost(context):
            yield
    finally:
        await spawn_worker_if_needed(context, settings)


@asynccontextmanager
async def _delegate_runs(context: OrchestratorContext, settings: Settings) -> AsyncIterator[None]:
    """Let a worker host the agents: a host below an agent would be stopped with that agent."""
    ending = asyncio.Event()
    work = partial(_follow_queued_runs, context, settings)
    follower = asyncio.create_task(restart_on_failure(work, name="Spawning workers for queued agents", until=ending))
    try:
        yield
    finally:
        ending.set()
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)


async def _follow_queued_runs(context: OrchestratorContext, settings: Settings) -> None:
    position = await context.ledger.wait(after=-1, timeout=0)
    await _spawn_worker_if_unhosted(context, settings)
    async for _ in context.ledger.follow(after=position, types=(RUN_QUEUED,)):
        await _spawn_worker_if_unhosted(context, settings)


async def _spawn_worker_if_unhosted(context: OrchestratorContext, settings: Settings) -> None:
    if not is_hosted(settings.home):
        await spawn_worker_if_needed(context, settings)


async def spawn_worker_if_needed(context: OrchestratorContext, settings: Settings) -> None:
    """Start a worker if a run is queued or active. It exits at once if another worker runs."""
    if await has_active_runs(context):
        own = settings.ledger == str(settings.home.ledger)
        spawn_worker(settings.home, ledger=None if own else settings.ledger)

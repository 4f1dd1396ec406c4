"""A process that carries out agents for as long as there is something to carry out.

Whoever starts a session may be gone a moment later: a command that returns, an editor that closes. So the work is given to a
process of its own, which ends by itself when nothing is left to do.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from fidelio.errors import HomeProblem, LedgerError
from fidelio.home import Home
from fidelio.inbox import AGENT_MARKER
from fidelio.orchestrator.ending import Ending, bring_to_end
from fidelio.orchestrator.host import Host
from fidelio.orchestrator.lock import worker_lock
from fidelio.orchestrator.model import ACTIVE
from fidelio.orchestrator.orphans import end_processes
from fidelio.orchestrator.presence import presence
from fidelio.orchestrator.processes_mark import remove_mark
from fidelio.orchestrator.rules import STOPPED_WITH_HOME, session_of
from fidelio.orchestrator.service import AgentService

IDLE_SECONDS = 10.0
_LOOK_SECONDS = 0.5
_STARTED: list[subprocess.Popen[bytes]] = []


async def work_until_idle(service: AgentService, idle_seconds: float = IDLE_SECONDS) -> None:
    """Hosts until nothing has been queued or at work for `idle_seconds`. Returns at once where another worker does.

    Raises `HomeProblem` soon after somebody has deleted the home, once no agent of this process works any more.
    """
    lock = worker_lock(service.parts.home)
    while lock.take():
        try:
            await _host_until_idle(service, idle_seconds)
        finally:
            lock.release()
        # A worker that was started for something new may just have found the lock taken and gone: so we look once more.
        if not await is_anything_active(service):
            return


async def _host_until_idle(service: AgentService, idle_seconds: float) -> None:
    home, left = service.parts.home, tuple[str, ...]()
    with presence(home) as is_there:
        async with Host(service) as host:
            async for _ in _looks(service, host, idle_seconds):
                if not is_there():
                    left = host.runs
                    break
            else:
                return
    # The host has left them to the next one, and there will be none.
    await asyncio.gather(*(_end_with_home(service, run) for run in left))
    raise HomeProblem(
        f"The home directory {home.path} is gone, so the agents that worked for it were stopped.",
        remedy="Put the directory back, or start them anew. A record of theirs that is kept elsewhere says that they ended.",
    )


async def _end_with_home(service: AgentService, run: str) -> None:
    await end_processes(run)
    ending = Ending(state="stopped", reason=STOPPED_WITH_HOME, detail="The home directory that it worked for is gone.")
    # A record that went with the home may take it or not: nobody reads it.
    with suppress(LedgerError):
        await bring_to_end(service.parts, await service.parts.desk.open(session_of(run)), ending, actor="worker")


async def _looks(service: AgentService, host: Host, idle_seconds: float) -> AsyncIterator[None]:
    """Again and again, until there has been nothing to do for so long."""
    loop = asyncio.get_running_loop()
    busy_at = loop.time()
    while loop.time() - busy_at < idle_seconds:
        await asyncio.sleep(min(_LOOK_SECONDS, idle_seconds))
        yield
        if host.busy or await is_anything_active(service):
            busy_at = loop.time()


async def is_anything_active(service: AgentService) -> bool:
    for state in sorted(ACTIVE):
        if (await service.parts.ledger.sessions(kind="agent", status=state, limit=1)).items:
            return True
    return False


def spawn_worker(home: Home, *, ledger: str | None = None) -> int:
    """Starts a worker that outlives this process, and returns its number. Where there is one already, it ends at once."""
    environ = {name: value for name, value in os.environ.items() if name != AGENT_MARKER}
    environ["FIDELIO_HOME"] = str(home.path)
    if ledger is not None:
        environ["FIDELIO_LEDGER"] = ledger
    # Whoever of ours has ended is collected here; nobody else would.
    _STARTED[:] = [worker for worker in _STARTED if worker.poll() is None]
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
    # An agent may have started us, and must not take the worker of all the others with it.
    remove_mark(process.pid)
    _STARTED.append(process)
    return process.pid

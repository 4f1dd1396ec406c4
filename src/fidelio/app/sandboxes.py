"""What the application needs of sandboxes: hosting them in this process, and the client of whichever process does.

`fidelio up` and the background worker host; every other process is a client. A client that finds no host starts the worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from fidelio.errors import SandboxUnavailable
from fidelio.home import Home
from fidelio.orchestrator.runs.host_process import spawn_worker
from fidelio.processes.table import ProcessIdentity, find_identity, is_alive
from fidelio.retry import restart_on_failure
from fidelio.sandbox.host.client import SandboxClient, open_link
from fidelio.sandbox.host.host import HostOptions, SandboxHost
from fidelio.sandbox.host.pool import LaunchedProcess
from fidelio.sandbox.levels import detect_level
from fidelio.sandbox.model import LevelReport, SandboxSpec
from fidelio.sandbox.process import SandboxProcess
from fidelio.settings import Settings

# A cold start of the worker on a busy machine, and how often the client looks whether it listens.
_START_SECONDS = 30.0
_POLL_SECONDS = 0.02


def open_sandboxes(settings: Settings) -> SandboxClient:
    """The sandboxes of the home. Nothing is started before the first call that needs a sandbox."""
    return SandboxClient(settings.home, partial(ensure_host, settings))


@asynccontextmanager
async def host_sandboxes(home: Home) -> AsyncIterator[Callable[[], bool]]:
    """Host the sandboxes during the block, or wait in the background while another process does.

    Yields a function that says whether a sandbox of this process is live.
    """
    host, until = SandboxHost(home, HostOptions(_launch, detect_level)), asyncio.Event()
    name = f"The host of the sandboxes in {home.path}"
    task = asyncio.create_task(restart_on_failure(partial(host.serve, until), name=name, until=until))
    try:
        # A client in this process must not start a worker before this host listens.
        await host.wait_until_settled()
        yield lambda: host.has_live_sandboxes
    finally:
        until.set()
        await task


async def _launch(spec: SandboxSpec, report: LevelReport) -> LaunchedProcess:
    process = await SandboxProcess.start(spec, report)
    return LaunchedProcess(process, report.level, process.pid)


async def ensure_host(settings: Settings) -> None:
    """Start the background worker if no process listens, and return when it does. Raises `SandboxUnavailable`."""
    worker: ProcessIdentity | None = None
    try:
        async with asyncio.timeout(_START_SECONDS):
            while not await _is_listening(settings.home):
                # A worker ends at once if another one runs, which may be about to end without having hosted.
                if worker is None or not is_alive(worker):
                    worker = _start_worker(settings)
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError as error:
        raise SandboxUnavailable(
            f"No process hosted the sandboxes of {settings.home.path} within {_START_SECONDS:g} seconds.",
            remedy=f"Why the worker did not start is possibly in {settings.home.worker_log}.",
        ) from error


def _start_worker(settings: Settings) -> ProcessIdentity | None:
    own = settings.ledger == str(settings.home.ledger)
    return find_identity(spawn_worker(settings.home, ledger=None if own else settings.ledger))


async def _is_listening(home: Home) -> bool:
    try:
        link = await open_link(home)
    except OSError:
        return False
    await link.close()
    return True

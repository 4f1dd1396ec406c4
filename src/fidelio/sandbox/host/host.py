"""The host of the sandboxes of a home: the process that owns them. When it dies, they die with it.

It holds a lock, so a home has one host. Sandboxes are started from the thread of the event loop, which must live as long as the
host: a sandbox ends with the thread that started it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import msgspec

from fidelio.clock import Clock, now_ms
from fidelio.errors import SandboxUnavailable
from fidelio.home import Home
from fidelio.locks import FileLock
from fidelio.processes.table import ProcessIdentity, find_identity, send_signal
from fidelio.retry import cancel_tasks, restart_on_failure, sleep_until
from fidelio.sandbox.host.client import SOCKET_NAME, LocalSandboxes
from fidelio.sandbox.host.listening import accept_connections, open_listener, remove_socket
from fidelio.sandbox.host.pool import LaunchedProcess, PoolLimits, SandboxPool
from fidelio.sandbox.host.proxy.server import ConnectionLogs, ProxyOptions, SandboxProxy
from fidelio.sandbox.host.server import HostConnection, HostServices
from fidelio.sandbox.model import LevelReport, SandboxSpec
from fidelio.sandbox.watch import (
    DiskLimits,
    DiskUsage,
    check_start,
    describe_reserve,
    find_excess,
    measure_directory,
    order_by_usage,
    read_free_bytes,
)

LOCK_NAME = "sandboxes.lock"
# The processes of live sandboxes, for the host that comes after one that was killed.
PROCESSES_NAME = "sandboxes.json"

_RETRY_SECONDS = 1.0
_IDLE_CHECK_SECONDS = 30.0
_DISK_CHECK_SECONDS = 2.0
# Measuring a large tree takes a while; it may use this share of the time.
_MEASURING_SHARE = 0.04

_log = logging.getLogger(__name__)

Launch = Callable[[SandboxSpec, LevelReport], Awaitable[LaunchedProcess]]


class HostOptions(msgspec.Struct, frozen=True):
    """What the host consists of; tests replace single fields. `launch` starts the process of a sandbox at a level."""

    launch: Launch
    detect_level: Callable[[], LevelReport]
    limits: PoolLimits = PoolLimits()
    disk: DiskLimits = DiskLimits()
    proxy: ProxyOptions = ProxyOptions()
    clock: Clock = now_ms


class SandboxHost:
    """`serve` hosts the sandboxes of a home until an event is set, in the process that gets the lock."""

    def __init__(self, home: Home, options: HostOptions) -> None:
        self._home, self._options = home, options
        self._lock = FileLock(home.ensure().path / LOCK_NAME)
        self._level: LevelReport | None = None
        self._logs = ConnectionLogs()
        # What the sessions used that were stopped for it.
        self._excess: dict[str, DiskUsage] = {}
        self._settled = asyncio.Event()
        self.pool = self._make_pool()

    @property
    def is_hosting(self) -> bool:
        return self._lock.is_held

    @property
    def has_live_sandboxes(self) -> bool:
        return not self.pool.is_empty

    def local(self) -> LocalSandboxes:
        """The sandboxes, for callers in this process."""
        return LocalSandboxes(self.pool, self.read_level, self._logs.read)

    async def serve(self, until: asyncio.Event) -> None:
        """Host until the event is set. Where another process is the host, wait a moment and return."""
        if not self._lock.acquire():
            self._settled.set()
            await sleep_until(_RETRY_SECONDS, until=until)
            return
        try:
            self._sweep()
            self.pool = self._make_pool()
            await self._serve(until)
        finally:
            self._settled.set()
            self._lock.release()

    async def wait_until_settled(self) -> None:
        """Return when this process listens, when another process is the host, or when hosting has failed for the first time."""
        await self._settled.wait()

    async def read_level(self) -> LevelReport:
        """The level of this machine. Detected again while it offers no commands, because a person may install what it lacks."""
        if self._level is None or not self._level.runs_commands:
            self._level = await asyncio.to_thread(self._options.detect_level)
        return self._level

    async def check_disk(self) -> None:
        """Measure every live sandbox once, and stop those that use too much."""
        usages: dict[str, DiskUsage] = {}
        for live in self.pool.live:
            usage = usages[live.spec.session] = await asyncio.to_thread(measure_directory, live.spec.directory)
            self._excess.pop(live.spec.session, None)
            if problem := find_excess(live.spec, usage):
                self._excess[live.spec.session] = usage
                await self.pool.end(live, "disk_bytes", problem)
        await self._keep_reserve(usages)

    def _make_pool(self) -> SandboxPool:
        options = self._options
        return SandboxPool(self._start, limits=options.limits, clock=options.clock, on_change=self._record_processes)

    async def _serve(self, until: asyncio.Event) -> None:
        services = HostServices(self.pool, self.read_level, self._logs.read)
        directory = self._home.path
        listener = open_listener(directory, SOCKET_NAME)
        identity = (directory / SOCKET_NAME).lstat()
        work = {
            "Accepting clients of the sandboxes": partial(accept_connections, listener, lambda: HostConnection(services)),
            "Closing idle sandboxes": partial(self._close_idle, until),
            "Watching the disk usage of sandboxes": partial(self._watch_disk, until),
        }
        tasks = [asyncio.create_task(restart_on_failure(call, name=name, until=until)) for name, call in work.items()]
        self._settled.set()
        try:
            await until.wait()
        finally:
            await cancel_tasks(*tasks)
            listener.close()
            remove_socket(directory, SOCKET_NAME, identity)
            await services.stop_operations()
            await self.pool.close()
            services.abort_connections()

    async def _start(self, spec: SandboxSpec, resources: AsyncExitStack) -> LaunchedProcess:
        self._check_directory(spec)
        check_start(spec, self._excess.get(spec.session), self._options.disk)
        level = await self.read_level()
        if level.level == "none":
            raise SandboxUnavailable(level.reason, remedy=level.remedy)
        if spec.network in ("limited", "unrestricted"):
            proxy = SandboxProxy(spec, self._logs.open(spec.session), self._options.proxy)
            await resources.enter_async_context(proxy)
        return await self._options.launch(spec, level)

    def _check_directory(self, spec: SandboxSpec) -> None:
        parent = self._home.path / "sandboxes"
        # Two processes may spell the path of the home differently.
        if Path(os.path.realpath(spec.directory)).parent != Path(os.path.realpath(parent)):
            raise SandboxUnavailable(
                f"{spec.directory} is not the directory of a sandbox of this home.", remedy=f"Use one below {parent}."
            )

    async def _close_idle(self, until: asyncio.Event) -> None:
        await sleep_until(_IDLE_CHECK_SECONDS, until=until)
        await self.pool.close_idle()

    async def _watch_disk(self, until: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self.check_disk()
        pause = max(_DISK_CHECK_SECONDS, (loop.time() - began) / _MEASURING_SHARE)
        await sleep_until(pause, until=until)

    async def _keep_reserve(self, usages: Mapping[str, DiskUsage]) -> None:
        """Stop sandboxes, the largest first, until the disk has its reserve again."""
        live = {each.spec.session: each for each in self.pool.live if each.ending is None}
        for session in order_by_usage([(name, usages.get(name, DiskUsage(0))) for name in live]):
            problem = describe_reserve(read_free_bytes(str(self._home.path)), self._options.disk)
            if not problem:
                return
            await self.pool.end(live[session], "disk_reserve", problem)

    def _sweep(self) -> None:
        """End what a killed host has left, and remove its files."""
        for identity in self._read_processes():
            if send_signal(identity, signal.SIGKILL):
                _log.warning("A sandbox of a host that was killed still ran: process %d was ended.", identity.pid)
        for path in self._home.path.glob(f".{SOCKET_NAME}-*"):
            path.unlink(missing_ok=True)

    def _read_processes(self) -> list[ProcessIdentity]:
        try:
            return msgspec.json.decode((self._home.path / PROCESSES_NAME).read_bytes(), type=list[ProcessIdentity])
        except (OSError, msgspec.MsgspecError):
            return []

    def _record_processes(self) -> None:
        found = [identity for live in self.pool.live if (identity := find_identity(live.launched.pid)) is not None]
        draft = self._home.path / f".{PROCESSES_NAME}"
        # If the home was deleted there will be no next host.
        with suppress(OSError):
            draft.write_bytes(msgspec.json.encode(found))
            draft.replace(self._home.path / PROCESSES_NAME)

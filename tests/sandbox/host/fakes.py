"""A sandbox process that is only an object, and a host that serves it on a real socket."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from fidelio.errors import SandboxLost
from fidelio.home import Home
from fidelio.sandbox.directory import create_directory
from fidelio.sandbox.host.client import SandboxClient, open_link
from fidelio.sandbox.host.frames import OnReply
from fidelio.sandbox.host.host import HostOptions, SandboxHost
from fidelio.sandbox.host.pool import LaunchedProcess
from fidelio.sandbox.model import LevelReport, SandboxSpec

LEVEL = LevelReport("bubblewrap", "Sandboxes are only objects here.")


class FakeProcess:
    """Echoes the arguments of a request. `hold`: requests wait until `release`. `shell`: what its shell says of itself."""

    def __init__(self, spec: SandboxSpec) -> None:
        self.spec = spec
        self.requests: list[dict[str, Any]] = []
        self.shell = {"alive": False, "busy": False}
        self.hold = False
        self.raw_reply: bytes | None = None
        self.is_closed = asyncio.Event()
        self._held: list[tuple[OnReply, bytes]] = []

    def request(self, payload: bytes | bytearray, on_reply: OnReply) -> None:
        answer = self._answer(bytes(payload))
        if self.hold and b"inspect_persistent_shell" not in payload:
            self._held.append((on_reply, answer))
        else:
            asyncio.get_running_loop().call_soon(on_reply, answer)

    def release(self) -> None:
        held, self._held = self._held, []
        for on_reply, answer in held:
            on_reply(answer)

    async def close(self) -> None:
        self.die()

    async def wait_closed(self) -> None:
        await self.is_closed.wait()

    def die(self) -> None:
        self.is_closed.set()
        held, self._held = self._held, []
        for on_reply, _ in held:
            on_reply(SandboxLost("It died."))

    def _answer(self, payload: bytes) -> bytes:
        if b"inspect_persistent_shell" in payload:
            return json.dumps({"ok": True, "output": self.shell}).encode()
        try:
            request = json.loads(payload)
        except ValueError:
            return b'{"ok": false, "error": {"code": "bad_request", "message": "not JSON"}}'
        self.requests.append(request)
        return self.raw_reply or json.dumps({"ok": True, "output": {"echo": request["arguments"]}}).encode()


class FakeLauncher:
    """Starts fake processes, and has all of them in the order of their start."""

    def __init__(self) -> None:
        self.started: list[FakeProcess] = []
        self.on_start: Callable[[FakeProcess], None] = lambda _: None
        self.gate: asyncio.Event | None = None

    async def __call__(self, spec: SandboxSpec, level: LevelReport) -> LaunchedProcess:
        if self.gate is not None:
            await self.gate.wait()
        process = FakeProcess(spec)
        self.on_start(process)
        self.started.append(process)
        return LaunchedProcess(process, level.level, os.getpid())

    @property
    def live(self) -> list[FakeProcess]:
        return [process for process in self.started if not process.is_closed.is_set()]

    def of(self, session: str) -> FakeProcess:
        return next(process for process in reversed(self.started) if process.spec.session == session)


class TestClock:
    """A clock that stands still until it is moved."""

    __test__ = False

    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now

    def forward(self, *, minutes: float = 0, ms: int = 0) -> None:
        self.now += int(minutes * 60_000) + ms


async def connect_socket(path: Path, *, limit: int = 1 << 16) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a unix socket. The directories of tests are longer than its address may be."""
    directory = os.open(path.parent, os.O_PATH)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{directory}/{path.name}", limit=limit)
    finally:
        os.close(directory)


class HostHarness:
    """A home with a host of fake sandboxes in this process."""

    def __init__(self, path: Path) -> None:
        self.home = Home(path).ensure()
        self.launcher, self.clock = FakeLauncher(), TestClock()
        self.options = HostOptions(self.launcher, lambda: LEVEL, clock=self.clock)
        self.host: SandboxHost | None = None

    def spec(self, session: str = "s_1", **changes: Any) -> SandboxSpec:
        return replace(SandboxSpec(session, str(create_directory(self.home.path)), ()), **changes)

    def client(self, ensure: Callable[[], Any] | None = None) -> SandboxClient:
        return SandboxClient(self.home, ensure)

    @asynccontextmanager
    async def serving(self, **changes: Any) -> AsyncIterator[SandboxHost]:
        """Serve during the block, and wait until clients can connect."""
        host, until = SandboxHost(self.home, replace(self.options, **changes)), asyncio.Event()
        task = asyncio.create_task(host.serve(until))
        try:
            async with asyncio.timeout(10):
                await self.client(self._wait_for_socket(task)).level()
            yield host
        finally:
            until.set()
            async with asyncio.timeout(10):
                await task

    def _wait_for_socket(self, task: asyncio.Task[None]) -> Callable[[], Any]:
        async def wait() -> None:
            while not task.done():
                try:
                    link = await open_link(self.home)
                except OSError:
                    await asyncio.sleep(0)
                else:
                    await link.close()
                    return

        return wait

"""Benchmark of the sandbox: file actions at the port against plain calls and a pipe, and one-shot commands against plain ones.

python -m benchmarks sandbox

Callers and host are this process, as in `fidelio up`. A file action may take twice what an event loop needs to exchange the
same payload with a process through pipes (caller to host, host to sandbox), one and a half times the plain calls, and 0.1 ms.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec

from benchmarks.figures import Figure
from benchmarks.measure import Measurement, interleaved, ratio, seconds_per_call
from fidelio.home import Home
from fidelio.sandbox.directory import create_directory
from fidelio.sandbox.host.client import SandboxClient
from fidelio.sandbox.host.host import HostOptions, SandboxHost
from fidelio.sandbox.host.pool import LaunchedProcess
from fidelio.sandbox.levels import detect_level
from fidelio.sandbox.model import WORKSPACE, LevelReport, Mount, SandboxSpec
from fidelio.sandbox.port import Sandboxes
from fidelio.sandbox.process import SandboxProcess

ROUNDS = 9
CALLS = 60
COMMANDS = 30
ALLOWANCE = 0.1 / 1000
TEXT = ("x" * 79 + "\n") * 50
SCRIPT = "true"
# A process that answers a message of one size with a message of another.
ECHO = """
import os, sys
request, reply = int(sys.argv[1]), b"x" * int(sys.argv[2])
while True:
    count = 0
    while count < request:
        data = os.read(0, request - count)
        if not data:
            sys.exit()
        count += len(data)
    os.write(1, reply)
"""
_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


class Case(NamedTuple):
    """A file action and the plain calls that do the same in a directory of this machine."""

    action: str
    arguments: Mapping[str, Any]
    plain: Callable[[Path], object]


class Bench(NamedTuple):
    """A live sandbox at the port."""

    sandboxes: Sandboxes
    spec: SandboxSpec

    async def call(self, action: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        result = await self.sandboxes.call(self.spec, action, arguments)
        assert result.error is None, result.error
        return result.output


def _write_plain(directory: Path) -> None:
    """Replace a file as the action does: keep its mode, and never show half of it."""
    mode = (directory / "file").stat().st_mode
    descriptor = os.open(directory / "draft", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(descriptor, TEXT.encode())
    os.fchmod(descriptor, mode & 0o7777)
    os.close(descriptor)
    (directory / "draft").replace(directory / "file")


CASES = (
    Case("stat", {"path": "file"}, lambda directory: (directory / "file").lstat()),
    Case("read_text", {"path": "file"}, lambda directory: (directory / "file").read_text()),
    Case("write_text", {"path": "file", "content": TEXT}, _write_plain),
    Case("list_dir", {"path": "."}, lambda directory: [(entry.name, entry.stat().st_size) for entry in os.scandir(directory)]),
)


@asynccontextmanager
async def open_bench(directory: Path) -> AsyncIterator[tuple[Bench, Bench]]:
    """The same sandbox for a caller in the process of the host, and for one that uses its socket."""
    home, until = Home(directory / "home").ensure(), asyncio.Event()
    host = SandboxHost(home, HostOptions(_launch, detect_level))
    serving = asyncio.create_task(host.serve(until))
    await host.wait_until_settled()
    client = SandboxClient(home, _expect_host)
    place = create_directory(home.path)
    mount = Mount(WORKSPACE, str(place / "workspace"), "read_write", "session_workspace")
    spec = SandboxSpec(session="s_bench", directory=str(place), mounts=(mount,))
    local, remote = Bench(host.local(), spec), Bench(client, spec)
    await local.call("write_text", {"path": "file", "content": TEXT})
    yield local, remote
    await client.close()
    until.set()
    await serving


async def _launch(spec: SandboxSpec, report: LevelReport) -> LaunchedProcess:
    process = await SandboxProcess.start(spec, report)
    return LaunchedProcess(process, report.level, process.pid)


async def _expect_host() -> None:
    raise AssertionError("the host does not listen")


async def measure_case(local: Bench, remote: Bench, directory: Path, case: Case) -> list[Figure]:
    sizes = len(msgspec.json.encode(case.arguments)), len(msgspec.json.encode(await local.call(case.action, case.arguments)))

    def at_the_port(bench: Bench) -> Measurement:
        return lambda: seconds_per_call(CALLS, lambda _: bench.call(case.action, case.arguments))

    async def plain() -> float:
        return _seconds(lambda: case.plain(directory))

    async with open_pipe(*sizes) as exchange:

        async def through_a_pipe() -> float:
            return await seconds_per_call(CALLS, lambda _: exchange())

        sides = {"local": at_the_port(local), "remote": at_the_port(remote)}
        found = await interleaved(ROUNDS, {**sides, "plain": plain, "pipe": through_a_pipe})
    allowed = [2 * pipe + 1.5 * plain + ALLOWANCE for pipe, plain in zip(found["pipe"], found["plain"], strict=True)]
    return [
        Figure(name=f"{case.action} in the host", value=median(found["local"]) * 1e6, unit="us"),
        Figure(name=f"{case.action} in the host, of the allowed", value=ratio(found["local"], allowed), unit="x", at_most=1.0),
        Figure(name=f"{case.action} over the socket", value=median(found["remote"]) * 1e6, unit="us"),
        Figure(name=f"{case.action} over the socket, of the allowed", value=ratio(found["remote"], allowed), unit="x"),
    ]


@asynccontextmanager
async def open_pipe(request: int, reply: int) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """A function that exchanges messages of these sizes with a process through pipes."""
    command = (sys.executable, "-I", "-S", "-c", ECHO, str(request), str(reply))
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    async def exchange() -> bytes:
        stdin.write(b"x" * request)
        return await stdout.readexactly(reply)

    yield exchange
    stdin.close()
    await process.wait()


def _seconds(call: Callable[[], object]) -> float:
    """Return the median duration of a call."""
    taken = []
    for _ in range(CALLS):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return median(taken)


async def measure_commands(bench: Bench) -> list[Figure]:
    state = await bench.sandboxes.state(bench.spec.session)
    assert state is not None
    pid = state.pid

    def at_the_port(action: str, arguments: Mapping[str, Any]) -> Measurement:
        async def measure() -> float:
            before, began = _tree_ticks(pid), time.process_time()
            for _ in range(COMMANDS):
                await bench.call(action, arguments)
            return ((_tree_ticks(pid) - before) * _TICK_MS + (time.process_time() - began) * 1000) / COMMANDS

        return measure

    measurements: dict[str, Measurement] = {
        "program": at_the_port("run_command", {"argv": ["/bin/true"]}),
        "plain program": lambda: _plain_cpu(["/bin/true"]),
        "shell": at_the_port("run_shell", {"command": SCRIPT}),
        "plain shell": lambda: _plain_cpu(["/bin/bash", "--norc", "--noprofile", "-c", SCRIPT]),
    }
    found = await interleaved(ROUNDS, measurements)
    return [
        Figure(name="program, over the plain one", value=_median_excess(found, "program"), unit="ms CPU", at_most=6.0),
        Figure(name="one-shot shell, over the plain one", value=_median_excess(found, "shell"), unit="ms CPU", at_most=6.0),
    ]


def _median_excess(found: Mapping[str, list[float]], name: str) -> float:
    return median(over - plain for over, plain in zip(found[name], found[f"plain {name}"], strict=True))


async def _plain_cpu(argv: list[str]) -> float:
    """Milliseconds of CPU for a command that is started without a sandbox."""
    before, began = _children_ms(), time.process_time()
    for _ in range(COMMANDS):
        _run_plain(argv)
    return (_children_ms() - before + (time.process_time() - began) * 1000) / COMMANDS


def _run_plain(argv: list[str]) -> None:
    os.waitpid(os.posix_spawn(argv[0], argv, {}), 0)


def _children_ms() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000


def _tree_ticks(pid: int) -> int:
    """CPU ticks of a process and all below it, those that have ended included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(map(int, fields[11:15])) + sum(_tree_ticks(int(child)) for child in children)


async def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "plain"
        directory.mkdir()
        (directory / "file").write_text(TEXT)
        async with open_bench(Path(name)) as (local, remote):
            figures = [figure for case in CASES for figure in await measure_case(local, remote, directory, case)]
            return [*figures, *await measure_commands(remote)]


def main() -> list[Figure]:
    return asyncio.run(measure())

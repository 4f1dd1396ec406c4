"""The whole path with real sandboxes: client, host process, sandbox, shell; and what is left when one of them is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from fidelio.app.application import Application
from fidelio.app.sandboxes import open_sandboxes
from fidelio.errors import SandboxLost
from fidelio.home import Home
from fidelio.orchestrator.runs import host_process
from fidelio.processes.ending import wait_until_ended
from fidelio.processes.table import ProcessIdentity, find_identity, is_alive
from fidelio.runtime.service import SessionRequest
from fidelio.sandbox.host.client import SandboxClient
from fidelio.sandbox.host.host import PROCESSES_NAME
from fidelio.sandbox.host.pool import LaunchedProcess
from fidelio.sandbox.host.proxy.addresses import Address
from fidelio.sandbox.host.proxy.server import ProxyOptions, Streams
from fidelio.sandbox.launch import LaunchCommand
from fidelio.sandbox.levels import LEVELS, try_level
from fidelio.sandbox.model import Level, LevelReport, SandboxSpec
from fidelio.sandbox.process import SandboxProcess
from fidelio.settings import Settings, load_settings
from tests.sandbox.host.fakes import HostHarness
from tests.sandbox.host.hosting_process import find_descendants, spawn_host
from tests.sandbox.inside.launching import eventually, find_level, make_spec
from tests.support import proves
from tests.support.parts import require_part

# Processes that try to outlive their sandbox: in the background, in a session of their own, without an environment.
STUBBORN = "sleep 999 & (setsid env -i /bin/sh -c 'trap \"\" TERM HUP INT; sleep 999 & wait' &) & sleep 999"


def session_spec(home: Path, session: str) -> SandboxSpec:
    return replace(make_spec(home), session=session)


def read_runs(spec: SandboxSpec) -> str:
    file = Path(spec.directory, "workspace", "runs")
    return file.read_text("utf-8") if file.exists() else ""


@contextmanager
def spawn(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed at the end of the block."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def _no_workers() -> Iterator[None]:
    """Kill the workers that a test has started, instead of waiting until they are idle."""
    yield
    for worker in host_process._WORKERS:
        worker.kill()
        worker.wait(timeout=10)
    host_process._WORKERS.clear()


@asynccontextmanager
async def open_client(settings: Settings) -> AsyncIterator[SandboxClient]:
    client = open_sandboxes(settings)
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").ensure()


@proves("sandbox.host-killed")
@pytest.mark.parametrize("level", LEVELS)
async def test_a_killed_host_leaves_no_sandbox_and_no_process_of_one(home: Home, level: Level) -> None:
    if problem := await asyncio.to_thread(try_level, level):
        require_part(f"level {level}", problem)
    client, specs = SandboxClient(home), [session_spec(home.path, f"s_{number}") for number in range(2)]
    with spawn_host(home.path, FIDELIO_SANDBOX_LEVEL=level) as host:
        for spec in specs:
            state = await client.start(spec)
            assert state.level == level
            if level != "landlock":
                arguments = {"command": STUBBORN, "commandId": "c1", "waitMs": 1_000}
                result = await client.call(spec, "exec_persistent_shell", arguments)
                assert result.output["status"] == "running"
        below = find_descendants(host.pid)
        assert len(below) >= (4 if level != "landlock" else 2)

        host.kill()
        async with asyncio.timeout(20):
            await wait_until_ended(below, 5.0)

        assert [process for process in below if is_alive(process)] == []
    await client.close()
    # The next host takes over, and sessions go on.
    with spawn_host(home.path, FIDELIO_SANDBOX_LEVEL=level):
        assert (await client.start(specs[0])).is_new
        await client.close()


@proves("sandbox.host-killed", "sandbox.never-resent")
async def test_a_command_that_ran_when_the_host_was_killed_is_reported_as_lost(home: Home) -> None:
    find_level()
    spec, client = session_spec(home.path, "s_1"), SandboxClient(home)
    with spawn_host(home.path) as host:
        await client.start(spec)
        arguments = {"command": "echo once >> runs; sleep 999", "commandId": "c1", "waitMs": 40_000}
        call = asyncio.create_task(client.call(spec, "exec_persistent_shell", arguments))
        await eventually(lambda: read_runs(spec) != "", "The command did not begin.", seconds=30)
        host.kill()

        with pytest.raises(SandboxLost, match="The host of the sandboxes ended before it replied"):
            await call
    assert read_runs(spec) == "once\n"


@proves("sandbox.host-sweep")
async def test_the_next_host_ends_what_a_killed_one_has_left_and_nothing_else(harness: HostHarness) -> None:
    with spawn("sleep", "999") as left, spawn("sleep", "999") as other:
        mine, foreign = find_identity(left.pid), find_identity(other.pid)
        assert mine is not None
        assert foreign is not None
        # Its process id was reused meanwhile.
        recorded = [mine, ProcessIdentity(foreign.pid, "0:1")]
        (harness.home.path / PROCESSES_NAME).write_bytes(msgspec.json.encode(recorded))
        async with harness.serving():
            await wait_until_ended([mine], 10.0)

            assert not is_alive(mine)
            assert is_alive(foreign)


@proves("sandbox.one-per-session", "sandbox.host-started", "sandbox.host-worker")
@pytest.mark.usefixtures("_no_workers")
async def test_clients_that_start_the_worker_at_the_same_moment_get_the_same_sandbox(home: Home) -> None:
    find_level()
    settings, spec = load_settings(str(home.path)), session_spec(home.path, "s_1")
    async with open_client(settings) as one, open_client(settings) as two:
        first, second = await asyncio.gather(one.start(spec), two.start(spec))
        assert first.incarnation == second.incarnation
        assert sorted([first.is_new, second.is_new]) == [False, True]

        await one.call(spec, "write_text", {"path": "a", "content": "b"})
        assert (await two.call(spec, "read_text", {"path": "a"})).output["content"] == "b"
        assert await one.stop("s_1")
    identity = find_identity(first.pid)
    assert identity is None or not is_alive(identity)


@proves("sandbox.host-worker")
@pytest.mark.usefixtures("_no_workers")
async def test_a_worker_does_not_end_while_a_sandbox_is_live(home: Home) -> None:
    find_level()
    settings, spec = load_settings(str(home.path)), session_spec(home.path, "s_1")
    async with Application(settings) as application, asyncio.timeout(60):
        working = asyncio.create_task(application.work_until_idle(2.0))
        await eventually((home.path / "sandboxes.sock").exists, "The worker does not listen.")
        await application.sandboxes().start(spec)
        done, _ = await asyncio.wait({working}, timeout=4.0)
        assert not done

        await application.sandboxes().stop("s_1")
        await working


@proves("sandbox.host-worker")
async def test_the_server_hosts_and_takes_its_sandboxes_with_it(home: Home) -> None:
    find_level()
    spec, client = session_spec(home.path, "s_1"), SandboxClient(home)
    with spawn(sys.executable, "-m", "fidelio", "--home", str(home.path), "up", "--port", "0") as server:
        assert server.stdout is not None
        async with asyncio.timeout(60):
            assert "Fidelio leads agents" in await asyncio.to_thread(server.stdout.readline)
        await client.start(spec)
        await client.call(spec, "exec_persistent_shell", {"command": STUBBORN, "commandId": "c1", "waitMs": 500})
        below = find_descendants(server.pid)
        assert below
        server.send_signal(signal.SIGTERM)
        await wait_until_ended(below, 10.0)
        await client.close()

    assert [process for process in below if is_alive(process)] == []
    assert not (home.path / "sandboxes.sock").exists()


@proves("sandbox.session-stop")
async def test_deleting_a_session_stops_its_sandbox(harness: HostHarness) -> None:
    settings = load_settings(str(harness.home.path))
    async with harness.serving(), Application(settings) as application:
        records, runtime, client = await application.records(), await application.runtime(), harness.client()
        sessions = [
            await runtime.open_session(SessionRequest(name=name, project=str(harness.home.path))) for name in ("one", "two")
        ]
        for session in sessions:
            await client.start(harness.spec(session))

        await application.delete_sessions([await records.find(sessions[0])], by="me", reason="It is not needed.")

        assert [process.spec.session for process in harness.launcher.live] == sessions[1:]
        await client.close()


# Bash has no HTTP client, but opens connections; the variable is what programs read.
REQUEST = """
address=${HTTP_PROXY#http://}; address=${address%/}
exec 3<>/dev/tcp/${address%:*}/${address#*:}
printf 'GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n' $1 $1 >&3
cat <&3
"""


@proves("sandbox.proxy-socket", "sandbox.proxy-log")
async def test_a_command_in_a_limited_network_reaches_listed_hosts_through_the_proxy(harness: HostHarness) -> None:
    level, public = find_level(), ip_address("127.0.0.2")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        writer.close()

    server = await asyncio.start_server(answer, str(public), 0)

    async def resolve(_: str, __: int) -> list[Address]:
        return [public]

    async def connect(address: Address, _: int) -> Streams:
        return await asyncio.open_connection(str(address), server.sockets[0].getsockname()[1])

    async def launch(spec: SandboxSpec, report: LevelReport) -> LaunchedProcess:
        process = await SandboxProcess.start(spec, report)
        return LaunchedProcess(process, report.level, process.pid)

    proxy = ProxyOptions(resolve=resolve, connect=connect, is_public=lambda _: True)
    async with server, harness.serving(launch=launch, detect_level=lambda: level, proxy=proxy):
        client = harness.client()
        spec = replace(make_spec(harness.home.path), network="limited", hosts=("example.org",))
        found = await client.call(spec, "run_shell", {"command": f"set -- example.org{REQUEST}"})
        refused = await client.call(spec, "run_shell", {"command": f"set -- other.org{REQUEST}"})
        page = await client.connections("session")
        await client.close()

    assert found.output["stdout"].endswith("hello"), found
    assert "other.org is not one of the hosts of this environment." in refused.output["stdout"]
    assert [(entry.host, entry.port, entry.verdict) for entry in page.entries] == [
        ("example.org", 80, "allowed"),
        ("other.org", 80, "refused"),
    ]


# What a command that has taken over pid 1 could send: garbage, a frame without end, a reply that nobody asked for.
HOSTILE = """
import os, socket, struct, sys
link = socket.socket(fileno=int(sys.argv[1]))
header = struct.Struct(">IQ")
def read(size):
    data = b""
    while len(data) < size:
        data += link.recv(size - len(data)) or sys.exit()
    return data
def reply():
    size, number = header.unpack(read(header.size))
    return number, read(size)
number, _ = reply()
link.sendall(header.pack(11, number) + b'{"ok":true}')
number, _ = reply()
link.sendall({"garbage": header.pack(4, number) + b"spam", "endless": header.pack(1 << 31, number) + b"x" * 100_000,
              "unknown": header.pack(11, 4_000) + b'{"ok":true}'}[sys.argv[2]])
link.recv(1)
"""


@proves("sandbox.host-bad-replies", "sandbox.end-recorded")
@pytest.mark.parametrize("attack", ["garbage", "endless", "unknown"])
async def test_a_sandbox_that_sends_what_is_not_a_reply_is_ended_and_others_go_on(harness: HostHarness, attack: str) -> None:
    async def launch(spec: SandboxSpec, report: LevelReport) -> LaunchedProcess:
        if spec.session != "s_hostile":
            return await harness.launcher(spec, report)
        ours, theirs = socket.socketpair()
        with theirs:
            argv = (sys.executable, "-I", "-S", "-c", HOSTILE, str(theirs.fileno()), attack)
            command = LaunchCommand(argv, (theirs.fileno(),), dict(os.environ), lambda: None)
            process = await SandboxProcess.launch(command, ours, {})
        return LaunchedProcess(process, report.level, process.pid)

    async with harness.serving(launch=launch):
        client, hostile, other = harness.client(), harness.spec("s_hostile"), harness.spec("s_other")
        await client.start(hostile)
        await client.start(other)

        with pytest.raises(SandboxLost):
            await client.call(hostile, "stat", {})

        assert (await client.call(other, "stat", {})).ok
        ending = (await client.start(hostile)).closed_because
        assert ending is not None
        assert ending.reason == "process_ended"
        await client.close()

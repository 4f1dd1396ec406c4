"""The process inside: requests of any kind, and commands that attack it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from pathlib import Path

import msgspec

from fidelio.sandbox.model import SandboxSpec
from tests.sandbox.inside.launching import Sandbox, find_children, isolated_sandbox, make_spec
from tests.support import proves


@proves("sandbox.requests")
async def test_replies_come_in_any_order(bare: Sandbox) -> None:
    slow = asyncio.create_task(bare.run("read -t 0.5 <> <(:)"))
    quick = await asyncio.gather(*(bare.call("stat", path=".") for _ in range(50)))

    assert not slow.done()
    assert len(quick) == 50
    assert (await slow)["status"] == "completed"


_MALFORMED = {
    b"": "invalid_request",
    b"{": "invalid_request",
    b"\xff": "invalid_request",
    b"[]": "invalid_request",
    b"[" * 100_000: "invalid_request",
    b'{"action": 1}': "invalid_request",
    b'{"action": "stat", "arguments": []}': "invalid_request",
    b'{"action": "rm_rf"}': "unknown_action",
    b'{"action": "__class__"}': "unknown_action",
}


@proves("sandbox.requests")
async def test_a_malformed_request_is_an_error_and_ends_nothing(bare: Sandbox) -> None:
    for payload, code in _MALFORMED.items():
        reply = msgspec.json.decode(await bare.process.send(payload))
        assert (reply["ok"], reply["error"]["code"]) == (False, code)

    assert await bare.call("stat", path=".")


_WRONG: list[tuple[str, dict[str, object]]] = [
    ("run_command", {}),
    ("run_command", {"argv": []}),
    ("run_command", {"argv": "/bin/ls"}),
    ("run_command", {"argv": ["/bin/ls", 1]}),
    ("run_command", {"argv": ["/bin/ls", "a\0b"]}),
    ("run_command", {"argv": ["/bin/true"], "timeoutMs": 60_001}),
    ("run_command", {"argv": ["/bin/true"], "timeoutMs": True}),
    ("run_command", {"argv": ["/bin/true"], "cwd": 3}),
    ("run_command", {"argv": ["/bin/true"], "environment": {"A": 1}}),
    ("run_command", {"argv": ["/bin/true"], "environment": {"A=B": "1"}}),
    ("run_command", {"argv": ["/bin/true"], "environment": {"": "1"}}),
    ("run_shell", {}),
    ("run_shell", {"command": "a\0b"}),
    ("run_shell", {"command": "\ud800"}),
    ("run_shell", {"command": "x" * (1 << 20 | 1)}),
    ("run_shell", {"command": "true", "commandId": "x" * 201}),
    ("run_shell", {"command": "true", "maxOutputChars": 40_001}),
    ("exec_persistent_shell", {"command": None}),
    ("exec_persistent_shell", {"command": "true", "waitMs": 45_001}),
    ("exec_persistent_shell", {"command": "true", "waitMs": -1}),
    ("exec_persistent_shell", {"command": "true", "setEnvironment": {"1A": "x"}}),
    ("exec_persistent_shell", {"command": "true", "setEnvironment": {"A": "x\0"}}),
    ("exec_persistent_shell", {"command": "true", "unsetEnvironment": "A"}),
    ("exec_persistent_shell", {"command": "true", "unsetEnvironment": ["A; id"]}),
    ("exec_persistent_shell", {"command": "true", "setCwd": 1}),
    ("open_persistent_shell", {"pty": "yes"}),
    ("open_persistent_shell", {"pty": True, "columns": 0}),
    ("read_output", {"commandId": 1}),
]


@proves("sandbox.requests")
async def test_wrong_arguments_are_refused_and_nothing_is_started(bare: Sandbox) -> None:
    for action, arguments in _WRONG:
        # msgspec does not encode half of a character.
        reply = msgspec.json.decode(await bare.process.send(json.dumps({"action": action, "arguments": arguments}).encode()))
        assert reply["error"]["code"] == "invalid_arguments", (action, arguments)

    assert (await bare.call("inspect_persistent_shell"))["shellId"] is None
    assert find_children(bare.process.pid) == []


@proves("sandbox.requests")
async def test_a_search_that_a_command_kills_is_an_error(isolated: Sandbox) -> None:
    big = isolated.workspace / "big"
    big.write_bytes(b"a" * (64 << 20))
    os.chown(big, isolated.workspace.stat().st_uid, -1)
    attack = "while :; do kill -9 $(ls /proc | grep -v -e '^1$' -e [a-z] -e ^$$); done"
    killer = asyncio.create_task(isolated.run(attack, timeoutMs=1500))
    results = [await isolated.process.call("digest", {"path": "big"}) for _ in range(10)]
    await killer

    assert all(result.error is None or result.error.code == "search_lost" for result in results)
    assert (await isolated.call("stat", path="."))["kind"] == "directory"


@proves("sandbox.protected-pid-1")
async def test_a_command_cannot_look_into_pid_1(isolated: Sandbox) -> None:
    for name in ("environ", "mem", "maps", "fd/0", "root", "cwd"):
        found = await isolated.run(f"cat /proc/1/{name} || ls /proc/1/{name}/")
        assert found["exitCode"] != 0, name
        assert "denied" in found["stderr"], name


@proves("sandbox.protected-pid-1")
async def test_a_command_cannot_end_or_stop_pid_1(isolated: Sandbox) -> None:
    catchable = [number.name[3:] for number in signal.Signals if number.name not in ("SIGKILL", "SIGSTOP")]
    for name in (*catchable, "KILL", "STOP"):
        await isolated.run(f"kill -{name} 1; kill -{name} -1", timeoutMs=300)

    assert (await isolated.run("echo alive"))["stdout"] == "alive\n"


@proves("sandbox.protected-pid-1")
async def test_a_flood_of_signals_delays_nothing(isolated: Sandbox) -> None:
    flood = asyncio.create_task(isolated.run("while :; do kill -CHLD 1; done", timeoutMs=1500))
    answered = 0
    while not flood.done():
        await isolated.call("stat", path=".")
        answered += 1

    assert answered > 50


@proves("sandbox.forwarder")
async def test_programs_reach_the_proxy_of_the_host_and_nothing_else(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, network="limited")
    python = (
        "import os, socket; s = socket.create_connection(os.environ['HTTPS_PROXY'][7:].split(':')); "
        "s.sendall(b'x' * 300_000); s.shutdown(1); print(len(b''.join(iter(lambda: s.recv(65536), b''))))"
    )
    others = "grep -l python /proc/[0-9]*/cmdline | cut -d/ -f3 | grep -v '^1$'"
    async with await _serve_proxy(spec), isolated_sandbox(spec) as sandbox:
        first = await sandbox.run(f'python3 -c "{python}"')
        # A command can end the forwarder, and its own supervisor as well. Connections wait until the forwarder is back.
        await sandbox.run(f"kill -9 $({others})")
        again = await sandbox.run(f'python3 -c "{python}"')
        elsewhere = await sandbox.run("echo x > /dev/tcp/1.1.1.1/80")

    assert first["stdout"] == again["stdout"] == "300004\n", first["stderr"]
    assert elsewhere["exitCode"] != 0


async def _serve_proxy(spec: SandboxSpec) -> asyncio.Server:
    """A proxy that answers everything that it was sent."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"got " + await reader.read())
        writer.close()

    listener = socket.socket(socket.AF_UNIX)
    directory = os.open(spec.directory, os.O_PATH)
    # The path of a test is longer than an address may be.
    listener.bind(f"/proc/self/fd/{directory}/proxy.sock")
    os.close(directory)
    (Path(spec.directory) / "proxy.sock").chmod(0o666)
    return await asyncio.start_unix_server(serve, sock=listener)

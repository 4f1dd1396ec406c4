"""The process of a sandbox, seen from the host: hostile replies, death at any moment, and closing."""

from __future__ import annotations

import ast
import asyncio
import os
import random
import secrets
import signal
from pathlib import Path

import pytest

from fidelio.errors import SandboxLost, SandboxUnavailable
from fidelio.sandbox.launch.library import INSIDE
from fidelio.sandbox.levels import try_level
from fidelio.sandbox.model import Level, LevelReport
from fidelio.sandbox.process import SandboxProcess
from tests.sandbox.inside.launching import (
    Sandbox,
    bare_sandbox,
    eventually,
    find_children,
    find_processes,
    isolated_sandbox,
    make_spec,
)
from tests.support import proves
from tests.support.parts import require_part

# A pid 1 that a command has taken over: it answers the configuration and then as the test says.
_HOSTILE = """
import socket, struct, sys
connection = socket.socket(fileno=int(sys.argv[2]))
def receive():
    length, number = struct.unpack(">IQ", connection.recv(12, socket.MSG_WAITALL))
    connection.recv(length, socket.MSG_WAITALL)
    return number
def send(number, payload, length=None):
    connection.sendall(struct.pack(">IQ", len(payload) if length is None else length, number) + payload)
send(receive(), b'{"ok": true, "output": {}}')
number = receive()
ATTACK
while connection.recv(1 << 16):
    pass
"""
_ATTACKS = {
    "no JSON": "send(number, b'nonsense')",
    "no UTF-8": 'send(number, b\'{"ok": true, "output": {"a": "\\xff"}}\')',
    "no object": "send(number, b'[]')",
    "wrong type": "send(number, b'{\"ok\": 1}')",
    "wrong error": 'send(number, b\'{"ok": false, "error": "no"}\')',
    "wrong output": 'send(number, b\'{"ok": true, "output": []}\')',
    "too deep": "send(number, b'{\"ok\": true, \"output\": ' + b'[' * 100_000)",
    "unknown request": 'send(number + 100, b\'{"ok": true, "output": {}}\')',
    "twice": '[send(number, b\'{"ok": true, "output": {}}\') for _ in range(2)]',
    "too large": "send(number, b'', 32 << 20 | 1)",
    "cut off": "send(number, b'{\"ok\"', 1000); connection.shutdown(1)",
    "nothing": "connection.shutdown(1)",
    "end": "import os; os._exit(0)",
}


@proves("sandbox.hostile-replies")
@pytest.mark.parametrize("attack", _ATTACKS)
async def test_a_reply_that_is_none_ends_the_sandbox(tmp_path: Path, attack: str) -> None:
    async with bare_sandbox(tmp_path, _HOSTILE.replace("ATTACK", _ATTACKS[attack])) as sandbox:
        calls = [asyncio.create_task(sandbox.process.call("stat", {"path": "."})) for _ in range(2)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        # What was answered properly before the attack is a result.
        assert all(isinstance(result, SandboxLost) for result in results[1:])
        assert "ended" in str(results[1])
        with pytest.raises(SandboxLost):
            await sandbox.process.call("stat", {"path": "."})
        async with asyncio.timeout(10):
            await sandbox.process.wait_closed()


@proves("sandbox.hostile-replies")
async def test_a_process_that_does_not_end_with_its_connection_is_killed(tmp_path: Path) -> None:
    ignore = "import time; send(number, b'nonsense'); [time.sleep(1) for _ in range(300)]"
    async with bare_sandbox(tmp_path, _HOSTILE.replace("ATTACK", ignore)) as sandbox:
        with pytest.raises(SandboxLost, match="sent a reply that is not valid, so it was ended"):
            await sandbox.process.call("stat", {"path": "."})
        # Nobody closes it; it is killed all the same.
        await eventually(lambda: not Path(f"/proc/{sandbox.process.pid}/exe").exists(), "the process still runs")


@proves("sandbox.hostile-replies")
async def test_a_caller_that_waits_no_longer_is_no_reason_to_end_the_sandbox(bare: Sandbox) -> None:
    call = asyncio.create_task(bare.run("read -t 0.2 <> <(:)"))
    await bare.call("stat", path=".")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert (await bare.run("read -t 0.3 <> <(:); echo alive"))["stdout"] == "alive\n"


@proves("sandbox.lost")
async def test_a_sandbox_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match=r"did not start.*no such thing"):
        async with bare_sandbox(tmp_path, "import sys; sys.exit('no such thing')"):
            pass
    with pytest.raises(SandboxUnavailable, match="switched off"):
        await SandboxProcess.start(make_spec(tmp_path), LevelReport("none", "Sandboxes are switched off."))


@proves("sandbox.lost")
async def test_closing_fails_outstanding_calls_and_leaves_no_process(tmp_path: Path) -> None:
    mark = f"mark{secrets.token_hex(8)}"
    async with isolated_sandbox(make_spec(tmp_path)) as sandbox:
        environment = {"MARK": mark}
        await sandbox.call("open_persistent_shell", environment=environment)
        await sandbox.execute("setsid -f sleep 300; setsid -f sleep 300")
        outstanding = asyncio.create_task(sandbox.run("sleep 300", environment=environment))
        await eventually(lambda: len(find_processes(mark)) >= 4, "the commands have not started")
        async with asyncio.timeout(10):
            await sandbox.process.close()
        # It returns when nothing is left, so there is nothing to wait for.
        assert find_processes(mark) == []
        with pytest.raises(SandboxLost, match="was closed"):
            await outstanding


def _find_pid_1(sandbox: Sandbox) -> int:
    """The id of pid 1 on the host: somewhere below the process that was started."""
    pending = [sandbox.process.pid]
    while pending:
        pid = pending.pop()
        numbers = Path(f"/proc/{pid}/status").read_text().partition("NSpid:")[2].partition("\n")[0].split()
        if len(numbers) > 1 and numbers[-1] == "1":
            return pid
        pending += find_children(pid)
    raise AssertionError("the sandbox has no pid 1")


@proves("sandbox.lost")
@pytest.mark.parametrize("seed", range(6))
async def test_killing_pid_1_at_any_moment_leaves_nothing_and_every_call_gets_an_error(tmp_path: Path, seed: int) -> None:
    mark, moment = f"mark{secrets.token_hex(8)}", random.Random(seed)
    async with isolated_sandbox(make_spec(tmp_path)) as sandbox:
        environment = {"MARK": mark}
        await sandbox.call("open_persistent_shell", environment=environment)
        calls = [
            sandbox.execute("setsid -f sleep 300; while :; do echo x; done"),
            *(sandbox.run("setsid -f sleep 300; sleep 300", environment=environment) for _ in range(3)),
            *(sandbox.call("grep_text", path=".", query="x") for _ in range(3)),
        ]
        tasks = [asyncio.create_task(call) for call in calls]
        await asyncio.wait(tasks, timeout=moment.random() / 10)
        os.kill(_find_pid_1(sandbox) if seed % 2 else sandbox.process.pid, signal.SIGKILL)
        async with asyncio.timeout(10):
            results = await asyncio.gather(*tasks, return_exceptions=True)
            await sandbox.process.wait_closed()
        await eventually(lambda: not find_processes(mark), "processes are left")

    assert all(isinstance(result, (dict, SandboxLost)) for result in results)
    assert any(isinstance(result, SandboxLost) for result in results)


@proves("sandbox.requests", "sandbox.one-shot", "sandbox.shell-state")
@pytest.mark.parametrize("level", ["bubblewrap", "namespaces", "landlock"])
async def test_every_level_runs_what_it_offers_and_refuses_the_rest(tmp_path: Path, level: Level) -> None:
    if problem := await asyncio.to_thread(try_level, level):
        require_part(f"the level {level}", problem)
    process = await SandboxProcess.start(make_spec(tmp_path), LevelReport(level, ""))
    sandbox = Sandbox(process, tmp_path)
    try:
        await sandbox.call("write_text", path="file", content="text\n")
        assert (await sandbox.call("grep_text", path=".", query="tex"))["count"] == 1
        if level == "landlock":
            for action in ("run_command", "run_shell", "exec_persistent_shell", "open_persistent_shell"):
                assert await sandbox.refuse(action, command="true", argv=["/bin/true"]) == "not_offered"
            assert not (await sandbox.call("inspect_persistent_shell"))["alive"]
        else:
            assert (await sandbox.run("cat file"))["stdout"] == "text\n"
            assert (await sandbox.execute("cat file"))["stdout"] == "text\n"
    finally:
        await process.close()


@proves("sandbox.requests")
def test_the_files_inside_are_valid_for_the_oldest_interpreter_that_runs_them() -> None:
    for file in sorted(INSIDE.glob("*.py")):
        assert isinstance(ast.parse(file.read_text(), file.name, feature_version=(3, 9)), ast.Module)

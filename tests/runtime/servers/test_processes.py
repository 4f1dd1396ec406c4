"""The processes of MCP servers never outlive their user, and never pass for a person."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from fidelio.errors import ToolRefused
from fidelio.ids import new_session_id, run_id
from fidelio.processes.caller import decide_caller, read_signs
from fidelio.processes.table import find_marked, find_parent, send_signal
from fidelio.runtime import events as e
from fidelio.runtime.servers.credentials import Masks
from fidelio.runtime.servers.process import Launch, start_server
from tests.runtime.servers import kill_driver
from tests.runtime.servers.test_servers import PROGRAM, describe_server, wait_for
from tests.runtime.wakes.support import LEASE_MS, open_runtime, replies, say
from tests.support import proves

# Another one in every run of the tests: nothing that an earlier run has left is counted.
RUN = run_id(new_session_id(), 1)


def make_launch(tmp_path: Path, mode: str, *, run: str = RUN, **environment: str) -> Launch:
    return Launch(
        name="test",
        command=sys.executable,
        args=(str(PROGRAM), mode, str(tmp_path / "notes")),
        environment=environment,
        directory=tmp_path,
        run=run,
        masks=Masks(),
    )


@proves("runtime.mcp-ended")
async def test_a_server_that_ignores_every_end_is_killed_with_all_it_started(tmp_path: Path) -> None:
    server = await start_server(make_launch(tmp_path, "stays"))
    await server.request({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"clientInfo": {"name": "test"}}})
    # The guard, the server, and a process that has left its group, its session and its parent.
    await wait_for(lambda: len(find_marked(RUN)) == 3)

    async with asyncio.timeout(10):
        await server.close()

    assert find_marked(RUN) == []


@proves("runtime.mcp-ended")
async def test_a_server_whose_guard_is_killed_ends_too(tmp_path: Path) -> None:
    server = await start_server(make_launch(tmp_path, "hangs"))
    await wait_for(lambda: len(find_marked(RUN)) == 2)
    (guard,) = (identity for identity in find_marked(RUN) if find_parent(identity.pid) == os.getpid())
    assert send_signal(guard, signal.SIGKILL)

    await wait_for(lambda: find_marked(RUN) == [])
    await server.close()


@proves("runtime.mcp-ended")
async def test_the_processes_of_a_killed_worker_end_and_the_call_is_not_repeated(tmp_path: Path) -> None:
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", kill_driver.__name__, str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path.cwd(),  # no access to the disk
    )
    assert worker.stdout is not None
    try:
        async with asyncio.timeout(30):
            session = (await worker.stdout.readline()).decode().strip()
            notes = tmp_path / "notes"
            await wait_for(lambda: "call slow" in notes.read_text())
            assert len(find_marked(f"{session}.1")) == 3
    finally:
        worker.send_signal(signal.SIGKILL)
        await worker.wait()

    await wait_for(lambda: find_marked(f"{session}.1") == [])
    async with open_runtime(tmp_path, replies(say("Done."))) as runtime:
        runtime.clock.now += LEASE_MS + 1
        await runtime.work()
        (waiting,) = (await runtime.record(session)).wakes.blocking
        assert waiting.is_unknown
        assert notes.read_text().count("call slow") == 1
        await runtime.send(session, {"type": "user.tool_confirmation", "tool_use_id": waiting.id, "result": "deny"})
        await runtime.work()
        assert (await runtime.record(session)).status == "idle"


@proves("runtime.mcp-ended")
async def test_a_worker_that_is_stopped_ends_the_servers_of_its_wakes(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await runtime.begin(tools={"mcp_servers": {"test": describe_server("hangs")}})
        await runtime.tell(session, "Work.")
        working = asyncio.create_task(runtime.work())
        await wait_for(lambda: len(find_marked(f"{session}.1")) == 2)
        working.cancel()
        async with asyncio.timeout(10):
            await asyncio.wait({working})

        assert find_marked(f"{session}.1") == []
        assert await runtime.events(session, e.SESSION_ERROR) == ()


@proves("runtime.mcp-agent")
async def test_a_server_and_what_it_starts_are_known_as_an_agent(tmp_path: Path) -> None:
    server = await start_server(make_launch(tmp_path, "stays"))
    try:
        await wait_for(lambda: len(find_marked(RUN)) == 3)
        assert all(decide_caller(read_signs(identity.pid)).is_agent for identity in find_marked(RUN))
    finally:
        await server.close()


@proves("runtime.mcp-agent")
async def test_a_command_that_a_server_starts_cannot_answer_a_request(tmp_path: Path) -> None:
    # It clears its environment, in which the variable of an agent is.
    answer = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', "
        "'from fidelio.inbox import require_person; require_person()'], env={'PATH': '/bin'})"
    )
    said = await read_complaint(replace(make_launch(tmp_path, "plain"), args=("-c", answer)))

    assert "only a person may do this" in said


@proves("runtime.mcp-environment")
async def test_a_server_gets_no_key_of_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-private")
    monkeypatch.setenv("FIDELIO_LEDGER", "postgresql://user:private@host/db")
    show = "import os, sys; sys.stderr.write(repr(sorted(os.environ)))"
    said = await read_complaint(replace(make_launch(tmp_path, "plain", OWN="yes"), args=("-c", show)))

    assert "'OWN'" in said
    assert "'FIDELIO_AGENT'" in said
    assert "ANTHROPIC" not in said
    assert "FIDELIO_LEDGER" not in said


@proves("runtime.mcp-unavailable")
async def test_a_program_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    launch = replace(make_launch(tmp_path, "plain"), args=())
    for command, said in (("no-such-program", "No program called no-such-program"), ("./missing", "missing")):
        with pytest.raises(ToolRefused, match=said):
            await start_server(replace(launch, command=command))

    assert "could not be started: Exec format error" in await read_complaint(replace(launch, command="./text"))


async def read_complaint(launch: Launch) -> str:
    """What a server that ends before its first reply has said."""
    server = await start_server(launch)
    try:
        with pytest.raises(ToolRefused) as refused:
            await server.request({"jsonrpc": "2.0", "id": 1, "method": "initialize"})
    finally:
        await server.close()
    return str(refused.value)

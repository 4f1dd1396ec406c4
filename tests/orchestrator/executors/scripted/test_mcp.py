"""A scripted agent with real MCP servers, and the worker that carries out an activity with them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fidelio.errors import ExecutorFailure
from fidelio.mcp_client import McpServer
from fidelio.mcp_client.client import McpClient, extract_text, open_client
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.contract import TurnResult
from fidelio.orchestrator.executors.scripted.executor import ScriptedExecutor
from fidelio.orchestrator.executors.scripted.script import WORKER
from fidelio.orchestrator.executors.scripted.worker import carry_out_activity
from fidelio.processes import table as processes_table
from fidelio.processes.spooled import find_marked
from fidelio.settings import load_settings
from tests.dialects.gates.conftest import person_answers
from tests.orchestrator.executors.recording import SECONDS, RecordingReporter, make_turn
from tests.support import proves
from tests.surfaces.conftest import environ, home
from tests.surfaces.test_demo import line_with, up

__all__ = ["environ", "home"]

START = {"call": {"tool": "start_session", "arguments": {"workflow_id": "hello"}, "save": {"token": "_meta.session_token"}}}
# A server that asks before it answers, talks in between, and then answers with what it was asked.
CURIOUS = """
import json, sys
say = lambda **message: print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        say(id=asked["id"], result={})
    elif asked.get("method") == "tools/call":
        say(method="notifications/message", params={})
        say(id=asked["id"], method="roots/list")
        refused = json.loads(sys.stdin.readline())
        say(id="p", method="ping")
        pong = json.loads(sys.stdin.readline())
        say(id=asked["id"], result={"content": [{"type": "text", "text": json.dumps([refused, pong])}]})
"""


def over_stdio(environ: dict[str, str], *options: str) -> McpServer:
    return McpServer(command=sys.executable, args=("-m", "fidelio", "mcp", *options), env=environ)


def python_server(program: str) -> McpServer:
    return McpServer(command=sys.executable, args=("-c", program))


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest, environ: dict[str, str]) -> AbstractAsyncContextManager[McpServer]:
    """Our own server, over either transport."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[McpServer]:
        if request.param == "stdio":
            yield over_stdio(environ)
            return
        async with up(environ) as (_, output):
            yield McpServer(url=(await line_with(output, "/mcp")).split()[-1])

    return opened()


async def play(
    directory: Path, steps: Any, server: McpServer, reporter: RecordingReporter, *, prompt: str = "", process: bool = False
) -> TurnResult:
    script = steps if isinstance(steps, str) else {"turns": [steps]}
    options = {"script": script, "process": process}
    blueprint = Blueprint(name="a", description="", options=options, mcp_servers={"fidelio": server})
    turn = make_turn(directory, prompt, blueprint=blueprint)
    async with asyncio.timeout(SECONDS):
        finished = await ScriptedExecutor().carry_out(turn, reporter)
    assert find_marked(turn.run) == []
    return finished


@proves("scripted.mcp")
@pytest.mark.parametrize("process", [False, True], ids=["here", "process"])
async def test_a_script_uses_tools_and_what_they_gave(
    tmp_path: Path, server: AbstractAsyncContextManager[McpServer], reporter: RecordingReporter, process: bool
) -> None:
    steps = [
        START,
        {
            "call": {
                "server": "fidelio",
                "tool": "get_workflow_status",
                "arguments": {"session_token": "{saved.token}"},
                "save": {"status": "structuredContent.status", "also": "json.workflow.id", "whole": "content.0.text"},
            }
        },
        {"call": {"tool": "no_such_tool", "may_fail": True}},
        {"result": "{saved.status} {saved.also}: {returned}"},
    ]

    async with server as reached:
        finished = await play(tmp_path, steps, reached, reporter, process=process)

    assert finished.text.startswith("active hello: Tool no_such_tool not found.")
    assert [(call, tool) for call, tool, _ in reporter.calls] == [
        ("1.1", "start_session"),
        ("1.2", "get_workflow_status"),
        ("1.3", "no_such_tool"),
    ]
    assert [(call, ok) for call, ok, _ in reporter.returns] == [("1.1", True), ("1.2", True), ("1.3", False)]
    assert json.loads(reporter.returns[1][2])["status"] == "active"


@proves("scripted.mcp")
@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"tool": "no_such_tool"}, "no_such_tool failed: Tool no_such_tool not found."),
        ({"tool": "health_check", "save": {"x": "nowhere"}}, "the result has no nowhere; it has content"),
        ({"tool": "health_check", "save": {"x": "json.status.more"}}, "the result has nothing at json.status.more"),
        ({"tool": "discover", "save": {"x": "json.status"}}, "the text of the result is not JSON"),
        ({"server": "other", "tool": "x"}, "there is no MCP server 'other'; the blueprint names fidelio"),
    ],
)
async def test_a_call_that_fails_ends_the_turn(
    tmp_path: Path, environ: dict[str, str], reporter: RecordingReporter, call: dict[str, Any], words: str
) -> None:
    with pytest.raises(ExecutorFailure) as caught:
        await play(tmp_path, [{"call": call}], over_stdio(environ), reporter)

    assert words in caught.value.sentence


@proves("scripted.mcp")
@pytest.mark.parametrize(
    ("server", "words"),
    [
        (McpServer(command="/no/such/server"), "could not be started"),
        (python_server("import sys; sys.exit('no licence')"), "It said: no licence"),
        (python_server("print('Welcome!', flush=True); input()"), "has ended"),
        (McpServer(url="http://127.0.0.1:9/mcp"), "could not be reached"),
        (McpServer(url="nonsense"), "could not be reached"),
        (McpServer(url="http://127.0.0.1:port/mcp"), "could not be reached"),
        (python_server("print('x' * 40_000_000, flush=True); input()"), "sent a message of more than 8,000,000 bytes"),
        (python_server("print('{}\\n' * 2_000, flush=True); input(); input()"), "sends messages without end"),
    ],
)
async def test_a_server_that_is_not_there_is_a_failure(
    tmp_path: Path, reporter: RecordingReporter, server: McpServer, words: str
) -> None:
    with pytest.raises(ExecutorFailure) as caught:
        await play(tmp_path, [{"call": {"tool": "x"}}], server, reporter)

    assert words in caught.value.sentence
    assert caught.value.reason == "mcp"


@proves("scripted.mcp")
async def test_a_server_that_asks_is_answered(tmp_path: Path, reporter: RecordingReporter) -> None:
    steps = [{"call": {"tool": "x", "save": {"said": "json"}}}, {"data": "{saved.said}"}]

    refused, pong = (await play(tmp_path, steps, python_server(CURIOUS), reporter)).data

    assert refused["error"]["code"] == -32601
    assert pong == {"jsonrpc": "2.0", "id": "p", "result": {}}


@proves("scripted.mcp")
async def test_a_server_that_does_not_exit_is_killed(
    tmp_path: Path, reporter: RecordingReporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fidelio.mcp_client.client._DISCONNECT_SECONDS", 0.05)
    stays = CURIOUS.replace("for line", "import signal, time; signal.signal(signal.SIGTERM, lambda *_: None)\nfor line")

    await play(tmp_path, [{"call": {"tool": "x"}}], python_server(f"{stays}\ntime.sleep(600)"), reporter)


@proves("scripted.mcp")
async def test_a_cancelled_call_over_http_releases_its_connection(tmp_path: Path, reporter: RecordingReporter) -> None:
    reading, left = asyncio.Event(), asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: a reply that never comes\n")
        reading.set()
        while await reader.read(1000):
            pass
        left.set()
        writer.close()

    silent = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with asyncio.timeout(SECONDS), silent:
        server = McpServer(url=f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}/mcp")
        playing = asyncio.create_task(play(tmp_path, [{"call": {"tool": "x"}}], server, reporter))
        await reading.wait()
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        await left.wait()


async def ask(client: McpClient, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call(tool, arguments)
    assert not result.get("isError"), extract_text(result)
    return result


@asynccontextmanager
async def entered(tmp_path: Path, environ: dict[str, str], activity: str) -> AsyncIterator[tuple[McpClient, str]]:
    """A session of `hello` in one of its activities, as a conductor holds it."""
    async with open_client(over_stdio(environ), directory=tmp_path, environment=environ) as client:
        token = (await ask(client, "start_session", workflow_id="hello"))["_meta"]["session_token"]
        token = (await ask(client, "next_activity", session_token=token, activity_id=activity))["_meta"]["session_token"]
        yield client, token


@proves("scripted.worker")
@pytest.mark.parametrize("process", [False, True], ids=["here", "process"])
async def test_the_worker_carries_out_an_activity_and_its_manifest_is_accepted(
    tmp_path: Path, environ: dict[str, str], reporter: RecordingReporter, process: bool
) -> None:
    async with asyncio.timeout(SECONDS), entered(tmp_path, environ, "greet") as (client, token):
        prompt = f"Carry out the activity.\n\nsession_token: {token}\n"
        working = asyncio.create_task(play(tmp_path, WORKER, over_stdio(environ), reporter, prompt=prompt, process=process))
        await reporter.until(lambda: len(reporter.returns) == 4)
        await person_answers(load_settings(environ=environ), "none", "choose-tone")
        finished = await working
        move = {"activity_id": "farewell", "step_manifest": finished.data["steps"], "variables": finished.data["variables"]}
        moved = await ask(client, "next_activity", session_token=token, **move)

    assert finished.data == {
        "steps": [{"step_id": "look", "output": "Done: Look around."}, {"step_id": "ask", "output": "Done: Ask."}],
        "variables": {},
    }
    assert json.loads(finished.text) == finished.data
    assert [tool for _, tool, _ in reporter.calls] == [
        "get_activity",
        "get_skill",
        "get_skill",
        "yield_checkpoint",
        "resume_checkpoint",
    ]
    assert moved["_meta"]["validation"] == {"status": "valid", "warnings": []}


@proves("scripted.worker")
async def test_a_worker_goes_on_where_another_stopped(tmp_path: Path, environ: dict[str, str]) -> None:
    tools, waits = list[str](), list[int]()

    async with asyncio.timeout(SECONDS), entered(tmp_path, environ, "greet") as (client, token):
        await ask(client, "yield_checkpoint", session_token=token, checkpoint_id="choose-tone")

        async def use(tool: str, arguments: Mapping[str, Any], *, quiet: bool = False) -> dict[str, Any]:
            tools.append(tool)
            if tools == ["get_workflow_status"] * 3:
                await person_answers(load_settings(environ=environ), "warm", "choose-tone")
            waits.append(arguments.get("wait_seconds", 0))
            # Every wait is over at once, as if nobody had answered in its time.
            return await client.call(tool, {**arguments, "wait_seconds": 0} if waits[-1] else arguments)

        done = await carry_out_activity(json.dumps({"task": "work", "session_token": token}), use)

    assert [step["step_id"] for step in done["steps"]] == ["look", "ask"]
    assert [wait > 0 for wait in waits[:3]] == [False, True, True]
    assert tools[3:] == ["resume_checkpoint", "get_activity", "get_skill", "get_skill", "yield_checkpoint"]


@proves("scripted.worker")
async def test_a_step_that_is_known_not_to_apply_is_left_out(
    tmp_path: Path, environ: dict[str, str], reporter: RecordingReporter
) -> None:
    async with asyncio.timeout(SECONDS), entered(tmp_path, environ, "greet") as (client, token):
        await ask(client, "yield_checkpoint", session_token=token, checkpoint_id="choose-tone")
        await person_answers(load_settings(environ=environ), "warm", "choose-tone")
        done = [{"step_id": step, "output": "done"} for step in ("look", "ask")]
        await ask(client, "next_activity", session_token=token, activity_id="compose", step_manifest=done)
        finished = await play(tmp_path, WORKER, over_stdio(environ), reporter, prompt=f"session_token={token}")

    assert [step["step_id"] for step in finished.data["steps"]] == ["read-advice", "write"]


@proves("scripted.worker")
@pytest.mark.parametrize(("prompt", "reason"), [("Work!", "no-token"), ("session_token: forged", "tool-failed")])
async def test_a_worker_without_a_good_token_says_so(
    tmp_path: Path, environ: dict[str, str], reporter: RecordingReporter, prompt: str, reason: str
) -> None:
    with pytest.raises(ExecutorFailure) as caught:
        await play(tmp_path, WORKER, over_stdio(environ), reporter, prompt=prompt)

    assert caught.value.reason == reason


@proves("scripted.mcp")
async def test_a_script_with_servers_is_played_where_there_is_no_process_table(
    tmp_path: Path, reporter: RecordingReporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"script": {"turns": [[{"call": {"tool": "x"}}, {"result": "done"}]]}}
    blueprint = Blueprint(name="a", description="", options=options, mcp_servers={"curious": python_server(CURIOUS)})
    monkeypatch.setattr(processes_table, "_PROC", tmp_path / "none")
    processes_table.missing_support.cache_clear()
    try:
        async with asyncio.timeout(SECONDS):
            finished = await ScriptedExecutor().carry_out(make_turn(tmp_path, blueprint=blueprint), reporter)
    finally:
        processes_table.missing_support.cache_clear()

    assert finished.text == "done"


# Never replies to a call, and says in a file whether it was cancelled.
PATIENT = """
import json, pathlib, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {}}), flush=True)
    elif asked.get("method") == "tools/call":
        called = asked["id"]
    elif asked.get("method") == "notifications/cancelled":
        pathlib.Path("cancelled").write_text(str(asked["params"]["requestId"] == called))
"""


@proves("scripted.mcp")
async def test_a_call_that_is_stopped_is_cancelled_at_the_server(tmp_path: Path) -> None:
    async with open_client(python_server(PATIENT), directory=tmp_path, environment={}) as client:
        calling = asyncio.create_task(client.call("wait", {}))
        # The task sends its request in its first step.
        await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling

    # The server has read all that was sent before its input was closed.
    assert (tmp_path / "cancelled").read_text() == "True"

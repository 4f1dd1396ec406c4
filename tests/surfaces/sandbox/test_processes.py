"""The toolset in a process of its own, with sandboxes that another process hosts; and an agent that works through it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import yaml
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult, TextContent

from fidelio.app.application import Application
from fidelio.orchestrator.record.model import StartAgent
from fidelio.settings import Settings
from tests.support import proves
from tests.surfaces.sandbox.local import require_commands

SECONDS = 120.0


@pytest.fixture
async def app(settings: Settings, project: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Application]:
    """The host of agents and sandboxes, as `fidelio up` is."""
    require_commands()
    monkeypatch.setenv("FIDELIO_TRUST", str(project))
    async with asyncio.timeout(SECONDS), Application(settings) as app:
        await app.host_sandboxes()
        yield app


def read_text(result: object) -> str:
    assert isinstance(result, CallToolResult)
    return "".join(block.text for block in result.content if isinstance(block, TextContent))


@proves("sandbox-tools.session", "sandbox-tools.options")
async def test_a_server_over_stdio_uses_the_sandboxes_of_the_home(
    app: Application, project: Path, environ: dict[str, str]
) -> None:
    options = ["--toolset", "sandbox", "--session", "work", "--mount", ".:copy"]
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "fidelio", "mcp", *options], env=environ, cwd=str(project)
    )
    async with Client(stdio_client(server)) as client:
        listed = await client.list_tools()
        await client.call_tool("write", {"path": "/workspace/a.txt", "content": "durable\n"})
        waiting = msgspec.json.decode(read_text(await client.call_tool("shell_exec", {"command": "cd project; pwd"})))
        await (await app.inbox()).answer(waiting["requestId"], "allow", by="person:test", channel="cli")
        done = msgspec.json.decode(read_text(await client.call_tool("shell_exec", {"command": "cd project; pwd"})))
    async with Client(stdio_client(server)) as client:
        again = msgspec.json.decode(read_text(await client.call_tool("read", {"path": "/workspace/a.txt"})))
        described = msgspec.json.decode(read_text(await client.call_tool("shell_describe", {})))

    assert len(listed.tools) == 34
    assert done["output"]["stdout"] == "/workspace/project\n"
    assert again["output"]["content"] == "durable\n"
    # The shell outlived the server that opened it.
    assert described["cwd"] == "/workspace/project"
    assert described["persistentShell"]["status"] == "active"


@proves("blueprints.sandbox-tools")
async def test_an_agent_works_in_a_copy_of_the_project_through_its_own_toolset(app: Application, project: Path) -> None:
    file = {"path": "/workspace/project/adder.py"}
    script = [
        {"call": {"tool": "edit", "arguments": {**file, "oldText": "-", "newText": "+"}}},
        {"call": {"tool": "read", "arguments": file, "save": {"text": "json.output.content"}}},
        {"call": {"tool": "shell_run", "arguments": {"command": "id"}, "save": {"reply": "text"}}},
        {"result": "{saved.text}{saved.reply}"},
    ]
    head = {
        "name": "closed",
        "description": "Works in a sandbox.",
        "executor": "scripted",
        "tools": "sandbox",
        "options": {"script": {"turns": [script]}},
    }
    folder = project / ".fidelio" / "agents"
    folder.mkdir(parents=True)
    (folder / "closed.md").write_text(f"---\n{yaml.safe_dump(head)}---\nYou are closed in.\n")

    service = await app.agents()
    started = await service.start(
        StartAgent(name="task", prompt="Correct it.", blueprint="closed", project=str(project), sandbox="shared")
    )
    await service.wait([started.id], mode="all", seconds=60)
    result = await service.result(started.id)
    requests = (await (await app.inbox()).list_requests()).items
    session = await (await app.records()).find("shared")

    assert result.text.startswith("def add(a, b):\n    return a + b\n")
    assert '"status":"waiting"' in result.text
    assert "not asked on behalf of a person" in result.text
    assert (project / "adder.py").read_text() == "def add(a, b):\n    return a - b\n"
    # The command waits for a person; the agent was not asked.
    assert [(request.kind, request.session) for request in requests] == [("tool_approval", session.id)]

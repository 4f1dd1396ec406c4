"""A client for the orchestrator's tools over every transport, with scripted agents."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult, TextContent

from fidelio.app.application import Application
from fidelio.settings import Settings, load_settings
from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.serving import serve_http
from fidelio.surfaces.mcp.protocol import Protocol
from fidelio.surfaces.mcp.server import make_identity, make_request_states
from fidelio.surfaces.mcp.toolsets.orchestrator.declarations import open_tools
from fidelio.toolkit import Done, Reporter
from tests.support.tool_calls import call_tool
from tests.support.transports import parametrize_transport
from tests.surfaces.mcp.reply_checks import check_plain

SECONDS = 60.0


@dataclass(frozen=True)
class ToolReply:
    """What a client sees of a call."""

    texts: list[str]
    is_error: bool
    structured: dict[str, Any] | None

    @property
    def text(self) -> str:
        return self.texts[0]

    @property
    def body(self) -> dict[str, Any]:
        assert not self.is_error, self.text
        assert self.structured is not None
        return self.structured


class ToolClient:
    """Calls tools over any transport, in a project with blueprints of its own."""

    def __init__(self, call: Callable[[str, dict[str, Any]], Any], project: Path) -> None:
        self._call = call
        self.project = project

    async def __call__(self, tool: str, /, **arguments: Any) -> ToolReply:
        reply = await self._call(tool, arguments)
        assert isinstance(reply, ToolReply)
        return reply

    async def start(self, name: str, blueprint: str = "echo", prompt: Any = "Hello.", **more: Any) -> ToolReply:
        given = {"session_name": name, "prompt": prompt, "project_dir": str(self.project), **more}
        return await self("start_agent_session", agent_blueprint_name=blueprint, **given)

    def script(self, name: str, *turns: list[dict[str, Any]], **front: Any) -> None:
        """A blueprint whose agent does this in its turns."""
        options = {"script": {"turns": list(turns)}}
        head = {"name": name, "description": f"Plays {name}.", "executor": "scripted", "options": options, **front}
        folder = self.project / ".fidelio" / "agents"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.md").write_text(f"---\n{yaml.safe_dump(head)}---\nYou are {name}.\n")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose blueprints are trusted, whatever a test makes of them."""
    directory = tmp_path / "project"
    directory.mkdir()
    monkeypatch.setenv("FIDELIO_TRUST", str(directory))
    return directory


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(environ={"FIDELIO_HOME": str(tmp_path / "home"), "FIDELIO_SYNC_SECONDS": "20"})


@asynccontextmanager
async def in_memory(
    settings: Settings, project: Path, environ: dict[str, str] | None = None, reporter: Reporter | None = None
) -> AsyncIterator[ToolClient]:
    async with Application(settings) as app:
        tools = open_tools(app, environ=environ or {})

        async def call(tool: str, arguments: dict[str, Any]) -> ToolReply:
            done = await call_tool(tools, tool, arguments, reporter=reporter)
            assert isinstance(done, Done)
            check_plain(done)
            structured = None if done.structured is None else dict(done.structured)
            return ToolReply([done.text, *done.remarks], done.is_error, structured)

        yield ToolClient(call, project)


@asynccontextmanager
async def over_stdio(settings: Settings, project: Path) -> AsyncIterator[ToolClient]:
    environ = {**os.environ, "FIDELIO_HOME": str(settings.home.path), "FIDELIO_SYNC_SECONDS": "20"}
    arguments = ["-m", "fidelio", "mcp", "--toolset", "orchestrator"]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=environ, cwd=str(project))
    async with Client(stdio_client(server)) as client:
        yield ToolClient(_through(client), project)


@asynccontextmanager
async def over_http(settings: Settings, project: Path) -> AsyncIterator[ToolClient]:
    async with Application(settings) as app:
        tools = open_tools(app, environ={})
        protocol = Protocol(make_identity(settings), tools, make_request_states(settings))
        asgi = create_app({"/mcp/orchestrator": protocol})
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(serve_http(asgi, port=0, ready=address.set_result))
        try:
            async with Client(f"{await address}/mcp/orchestrator") as client:
                yield ToolClient(_through(client), project)
        finally:
            serving.cancel()
            await asyncio.wait([serving], timeout=10)


OPEN = {"memory": in_memory, "stdio": over_stdio, "http": over_http}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_transport(metafunc)


@pytest.fixture
async def client(transport: str, settings: Settings, project: Path) -> AsyncIterator[ToolClient]:
    """A client over the transport of the test."""
    async with asyncio.timeout(SECONDS), OPEN[transport](settings, project) as client:
        yield client


@pytest.fixture
async def memory(settings: Settings, project: Path) -> AsyncIterator[ToolClient]:
    """A client without a transport, for behaviour that does not depend on it."""
    async with asyncio.timeout(SECONDS), in_memory(settings, project) as client:
        yield client


def _through(client: Client) -> Callable[[str, dict[str, Any]], Any]:
    async def call(tool: str, arguments: dict[str, Any]) -> ToolReply:
        result = await client.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult)
        texts = [block.text for block in result.content if isinstance(block, TextContent)]
        return ToolReply(texts, bool(result.is_error), result.structured_content)

    return call

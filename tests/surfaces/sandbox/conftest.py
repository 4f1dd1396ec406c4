"""A project, and the toolset `sandbox` served to the official client over HTTP, with sandboxes in the process of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp import Client
from mcp.types import CallToolResult, TextContent

from fidelio.settings import Settings, load_settings
from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.serving import serve_http
from fidelio.surfaces.mcp.dialects import SandboxSession, load_tools
from fidelio.surfaces.mcp.protocol import Protocol
from fidelio.surfaces.mcp.server import make_identity, make_request_states
from tests.surfaces.sandbox.local import LocalApplication, make_project, require_commands

SECONDS = 90.0


class ToolError(AssertionError):
    """A call that the server refused."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


class ToolsetClient:
    """Calls tools through the official client, and allows what waits as a person would."""

    def __init__(self, client: Client, app: LocalApplication) -> None:
        self._client = client
        self.app = app

    async def __call__(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The JSON of a result. Raises `ToolError` for a result with `isError`."""
        result = await self.raw(tool, arguments)
        block = result.content[0]
        assert isinstance(block, TextContent)
        body: dict[str, Any] = msgspec.json.decode(block.text)
        if result.is_error:
            raise ToolError(body["error"]["code"], body["error"]["message"])
        return body

    async def raw(self, tool: str, arguments: Any) -> CallToolResult:
        result = await self._client.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult)
        return result

    async def allowed(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The result of a call that a person allows in the inbox."""
        waiting = await self(tool, **arguments)
        assert waiting["status"] == "waiting", waiting
        inbox = await self.app.inbox()
        await inbox.answer(waiting["requestId"], "allow", by="person:test", channel="cli")
        return await self(tool, **arguments)


Serve = Callable[..., AbstractAsyncContextManager[ToolsetClient]]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in which the server runs. Sandboxes of root run as another user, who has to get there."""
    tmp_path.chmod(0o755)
    made = make_project(tmp_path)
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def settings(home: Path) -> Settings:
    return load_settings(environ={"FIDELIO_HOME": str(home), "FIDELIO_MIN_RESPONSE_SECONDS": "0"})


@pytest.fixture
def serve(settings: Settings, project: Path) -> Serve:
    """Serve the toolset over HTTP and connect the official client: `serve(session, address, **options of the client)`."""
    require_commands()
    assert project.is_dir()

    @asynccontextmanager
    async def connect(
        session: SandboxSession | None = None, address: str = "/mcp/sandbox", **options: Any
    ) -> AsyncIterator[ToolsetClient]:
        async with asyncio.timeout(SECONDS), LocalApplication(settings) as app:
            protocol = Protocol(make_identity(settings), load_tools("sandbox", app, session), make_request_states(settings))
            url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            serving = asyncio.create_task(serve_http(create_app({"/mcp/sandbox": protocol}), port=0, ready=url.set_result))
            try:
                async with Client(f"{await url}{address}", **options) as client:
                    yield ToolsetClient(client, app)
            finally:
                serving.cancel()
                await asyncio.wait([serving], timeout=10)

    return connect


@pytest.fixture
async def sandbox(serve: Serve) -> AsyncIterator[ToolsetClient]:
    """The tools of the session `default`, with a copy of the project."""
    async with serve(SandboxSession(mount=".")) as client:
        yield client

"""One player for every way in: the table of tools itself, the server over stdio, and the server over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult, TextContent

from fidelio.app.application import Application
from fidelio.settings import Settings, load_settings
from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.serving import serve_http
from fidelio.surfaces.mcp.dialects import DEFAULT, endpoint_path, load_tools
from fidelio.surfaces.mcp.protocol import Protocol
from fidelio.surfaces.mcp.server import make_identity, make_request_states
from fidelio.toolkit import AskPerson, Done
from tests.dialects.sample_workflow import write_sample_workflow
from tests.support.tool_calls import call_tool
from tests.support.transports import parametrize_transport
from tests.surfaces.mcp.reply_checks import Strict, check_plain


@dataclass(frozen=True)
class ToolReply:
    """What a client sees of a call."""

    text: str
    meta: dict[str, Any]
    is_error: bool
    structured: dict[str, Any] | None

    @property
    def json(self) -> Any:
        assert not self.is_error, self.text
        return json.loads(self.text)

    @property
    def token(self) -> str:
        assert not self.is_error, self.text
        return str(self.meta["session_token"])

    @property
    def text_token(self) -> str:
        """The token or handle in the text, which a model reads; it stands there once."""
        found = re.findall(r'(?:session_token|checkpoint_handle)"?: ?"?([\w.-]+)', self.text)
        assert len(found) == 1, self.text
        return str(found[0])

    @property
    def warnings(self) -> list[str]:
        assert not self.is_error, self.text
        return list(self.meta["validation"]["warnings"])


class Player:
    """Calls tools, whatever lies between."""

    def __init__(self, call: Callable[[str, dict[str, Any]], Any], address: str = "") -> None:
        self._call = call
        self.address = address

    async def __call__(self, tool: str, /, **arguments: Any) -> ToolReply:
        reply = await self._call(tool, arguments)
        assert isinstance(reply, ToolReply)
        return reply

    async def start(self, workflow: str = "score", **more: Any) -> str:
        return (await self("start_session", workflow_id=workflow, **more)).token

    async def at(self, activity: str, **more: Any) -> str:
        token = await self.start(**more)
        return (await self("next_activity", session_token=token, activity_id=activity)).token

    async def do_solo(self, parent: str) -> None:
        """Carries out the workflow that the activity `play` of the score starts."""
        child = (await self("start_session", workflow_id="solo", parent_session_token=parent)).token
        for activity in ("alone", "__terminal__"):
            child = (await self("next_activity", session_token=child, activity_id=activity)).token


Opens = Callable[..., AbstractAsyncContextManager[Player]]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return write_sample_workflow(tmp_path / "workflows")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(environ={"FIDELIO_HOME": str(tmp_path / "home"), "FIDELIO_MIN_RESPONSE_SECONDS": "0"})


@pytest.fixture
def dialect() -> str:
    """Which tools the player calls; the suite of another dialect has its own."""
    return DEFAULT


@asynccontextmanager
async def playing(settings: Settings, library: Path, *, dialect: str = DEFAULT, **options: Any) -> AsyncIterator[Player]:
    """The tools without any transport, over the workflows in one directory. Takes the options of `Application`."""
    async with Application(settings, [str(library)], **options) as house:
        tools = load_tools(dialect, house)
        strict = Strict(tools.table)

        async def call(tool: str, arguments: dict[str, Any]) -> ToolReply:
            outcome = await call_tool(tools, tool, arguments)
            done = outcome if isinstance(outcome, Done) else await _unanswered(outcome)
            check_plain(done)
            strict.check(tool, done.structured, is_error=done.is_error)
            structured = None if done.structured is None else dict(done.structured)
            return ToolReply(done.text, dict(done.meta), done.is_error, structured)

        yield Player(call)


async def _unanswered(question: AskPerson) -> Done:
    """The reply where nobody can be asked."""
    assert question.record_unanswered is not None
    assert question.waiting_reply is not None
    await question.record_unanswered()
    return question.waiting_reply


@pytest.fixture
def memory(settings: Settings, library: Path, dialect: str) -> Opens:
    """`playing` over the score. Takes the options of `Application` and other settings."""

    @asynccontextmanager
    async def open_player(*, house_settings: Settings | None = None, **options: Any) -> AsyncIterator[Player]:
        async with playing(house_settings or settings, library, dialect=dialect, **options) as player:
            yield player

    return open_player


@pytest.fixture
def stdio(settings: Settings, library: Path, dialect: str) -> Opens:
    """The same in a process of its own, which is told by flags and environment."""

    @asynccontextmanager
    async def open_player(
        *, house_settings: Settings | None = None, fidelity: str = "advise", person: bool = False, era: Any = "auto"
    ) -> AsyncIterator[Player]:
        wanted = {"--enforce": fidelity == "enforce", "--person": person}
        arguments = ["-m", "fidelio", "mcp", "--workflows", str(library), "--dialect", dialect]
        arguments += [flag for flag, on in wanted.items() if on]
        environ = {**os.environ, **_outside(house_settings or settings)}
        server = StdioServerParameters(command=sys.executable, args=arguments, env=environ)
        async with Client(stdio_client(server), mode=era) as client:
            yield Player(_through(client))

    return open_player


def _outside(settings: Settings) -> dict[str, str]:
    seconds = str(settings.min_response_ms / 1000)
    return {"FIDELIO_HOME": str(settings.home.path), "FIDELIO_MIN_RESPONSE_SECONDS": seconds}


@pytest.fixture
def http(settings: Settings, library: Path, dialect: str) -> Opens:
    @asynccontextmanager
    async def open_player(
        *, house_settings: Settings | None = None, era: Any = "auto", **options: Any
    ) -> AsyncIterator[Player]:
        mine = house_settings or settings
        async with Application(mine, [str(library)], **options) as house:
            protocol = Protocol(make_identity(mine), load_tools(dialect, house), make_request_states(mine))
            app = create_app({endpoint_path(dialect): protocol})
            address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            serving = asyncio.create_task(serve_http(app, port=0, ready=address.set_result))
            try:
                url = f"{await address}{endpoint_path(dialect)}"
                async with asyncio.timeout(30), Client(url, mode=era) as client:
                    yield Player(_through(client), url)
            finally:
                serving.cancel()
                await asyncio.wait([serving], timeout=10)

    return open_player


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_transport(metafunc)


@pytest.fixture
def opens(request: pytest.FixtureRequest, transport: str) -> Opens:
    """A player over the transport of the test."""
    found: Opens = request.getfixturevalue(transport)
    return found


@pytest.fixture
async def play(opens: Opens) -> AsyncIterator[Player]:
    """The player over the transport of the test."""
    async with opens() as player:
        yield player


def _through(client: Client) -> Callable[[str, dict[str, Any]], Any]:
    async def call(tool: str, arguments: dict[str, Any]) -> ToolReply:
        result = await client.call_tool(tool, arguments)
        assert isinstance(result, CallToolResult)
        block = result.content[0]
        assert isinstance(block, TextContent)
        return ToolReply(block.text, dict(result.meta or {}), bool(result.is_error), result.structured_content)

    return call

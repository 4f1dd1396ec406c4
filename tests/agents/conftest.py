"""Fixtures: a project configured for Fidelio over stdio or HTTP, and a real agent with a scripted model working in it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agent import Agent, working
from tests.agents.model import Model, modelled
from tests.agents.programs import require_claude
from tests.surfaces.conftest import Fidelio, environ, fidelio, home
from tests.surfaces.test_demo import line_with, up

__all__ = ["environ", "fidelio", "home"]

Connected = Callable[..., AbstractAsyncContextManager[None]]
Work = Callable[..., AbstractAsyncContextManager[tuple[Model, Agent]]]


@pytest.fixture(scope="session")
def claude() -> Path:
    return require_claude()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    return place


@pytest.fixture(params=["stdio", "http"])
def connected(request: pytest.FixtureRequest, project: Path, fidelio: Fidelio, environ: dict[str, str]) -> Connected:
    """Over stdio with what `fidelio init` writes, over HTTP with the address that `fidelio up` prints."""

    @asynccontextmanager
    async def over_stdio(*options: str) -> AsyncIterator[None]:
        assert fidelio("init", "--client", "claude", "--project", str(project)).returncode == 0
        entry = json.loads((project / ".mcp.json").read_text("utf-8"))["mcpServers"]["fidelio"]
        write_entry(project, {**entry, "args": [*entry["args"], *options]})
        yield

    @asynccontextmanager
    async def over_http(*options: str) -> AsyncIterator[None]:
        async with up(environ, *options) as (_, output):
            write_entry(project, {"type": "http", "url": (await line_with(output, "/mcp")).split()[-1]})
            yield

    return over_stdio if request.param == "stdio" else over_http


def write_entry(project: Path, entry: dict[str, Any]) -> None:
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"fidelio": entry}}), "utf-8")


@pytest.fixture
def work(claude: Path, project: Path, connected: Connected, environ: dict[str, str]) -> Work:
    """Sets the agent to work, with a model that a test speaks for. Takes the options of the server."""
    ours = {name: value for name, value in environ.items() if name.startswith("FIDELIO_")}

    @asynccontextmanager
    async def at_work(*options: str) -> AsyncIterator[tuple[Model, Agent]]:
        async with connected(*options), modelled() as (model, address), working(claude, project, address, **ours) as agent:
            yield model, agent

    return at_work

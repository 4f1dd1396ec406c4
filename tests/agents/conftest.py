"""A project with an entry for Fidelio, over either front, and a real agent with a scripted model at work in it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tests.agents.agent import Agent, program, working
from tests.agents.model import Model, modelled
from tests.conformance.node import HOW_TO_INSTALL
from tests.support.parts import require_part
from tests.surfaces.conftest import Fidelio, environ, fidelio, home
from tests.surfaces.test_demo import line_with, up

__all__ = ["environ", "fidelio", "home"]

Work = Callable[[], AbstractAsyncContextManager[tuple[Model, Agent]]]


@pytest.fixture(scope="session")
def claude() -> Path:
    found = program()
    if found is None:
        require_part("The coding agent (Claude Code)", HOW_TO_INSTALL)
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    return place


@pytest.fixture(params=["stdio", "http"])
async def connected(
    request: pytest.FixtureRequest, project: Path, fidelio: Fidelio, environ: dict[str, str]
) -> AsyncIterator[None]:
    """Over stdio with what `fidelio init` writes, over HTTP with the address that `fidelio up` prints."""
    if request.param == "stdio":
        assert fidelio("init", "--client", "claude", "--project", str(project)).returncode == 0
        yield
        return
    async with up(environ) as (_, output):
        url = (await line_with(output, "/mcp")).split()[-1]
        entry = {"mcpServers": {"fidelio": {"type": "http", "url": url}}}
        (project / ".mcp.json").write_text(json.dumps(entry), "utf-8")
        yield


@pytest.fixture
def work(claude: Path, project: Path, connected: None, environ: dict[str, str]) -> Work:
    """Sets the agent to work, with a model that a test speaks for."""

    @asynccontextmanager
    async def at_work() -> AsyncIterator[tuple[Model, Agent]]:
        ours = {name: value for name, value in environ.items() if name.startswith("FIDELIO_")}
        async with modelled() as (model, address), working(claude, project, address, **ours) as agent:
            yield model, agent

    return at_work

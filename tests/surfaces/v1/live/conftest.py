"""A server for each module of tests, and the programs in JavaScript."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic

from tests.conformance.node import HOW_TO_INSTALL, environment, is_installed, node, programs
from tests.support.parts import require_part
from tests.surfaces.sandbox.local import require_commands
from tests.surfaces.v1.live.server import SECONDS, TOKEN, LiveServer, run_server

PINS = Path(__file__).parents[1] / "javascript"
RunJavaScript = Callable[..., Awaitable[Any]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    require_commands()
    with run_server(tmp_path_factory.mktemp("live")) as running:
        yield running


@pytest.fixture
async def sdk(server: LiveServer) -> AsyncIterator[AsyncAnthropic]:
    async with server.connect() as client:
        yield client


@pytest.fixture
def javascript(server: LiveServer) -> RunJavaScript:
    """Run a program of the directory `javascript` with the official SDK; returns the JSON that it prints."""
    if not is_installed(PINS):
        require_part("The official SDK in JavaScript (with its node)", HOW_TO_INSTALL)

    async def run(program: str, **arguments: Any) -> Any:
        given = {"sdk": str(programs(PINS)), "url": server.url, "key": TOKEN, **arguments}
        process = await asyncio.create_subprocess_exec(
            *(str(node()), str(PINS / program), json.dumps(given)),
            env=environment(),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(SECONDS):
                output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, output.decode()
        return json.loads(output)

    return run

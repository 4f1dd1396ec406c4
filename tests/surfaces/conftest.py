"""A home of its own for every test, and the two ways in: an MCP client and the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

Connect = Callable[[], AbstractAsyncContextManager[Client]]
Fidelio = Callable[..., subprocess.CompletedProcess[str]]
Typing = Callable[[str], subprocess.CompletedProcess[str]]
# A home that no environment names, below the directory of the test.
UNNAMED_HOME = "my home"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def environ(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FIDELIO_")}
    # Whoever has installed it can call it by its name, and is told to.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {**kept, "PATH": path, "FIDELIO_HOME": str(home), "FIDELIO_MIN_RESPONSE_SECONDS": "0", "COLUMNS": "100"}


@pytest.fixture
def fidelio(environ: dict[str, str], tmp_path: Path) -> Fidelio:
    """Runs a command as a user would, in a process of its own."""

    def run(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fidelio", *arguments]
        return subprocess.run(
            command, env={**environ, **changes}, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )

    return run


@pytest.fixture
def typing(environ: dict[str, str], tmp_path: Path) -> Typing:
    """Types a line as it stands, in the same directory, where nothing else says which home is meant."""
    outside = {name: value for name, value in environ.items() if name != "FIDELIO_HOME"}

    def type_(line: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", "-c", line]
        return subprocess.run(command, env=outside, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    return type_


@pytest.fixture
def connect(environ: dict[str, str]) -> Connect:
    """Starts a server and connects the official client to it, as often as wanted."""

    @asynccontextmanager
    async def client() -> AsyncIterator[Client]:
        server = StdioServerParameters(command=sys.executable, args=["-m", "fidelio", "mcp"], env=environ)
        async with Client(stdio_client(server)) as connected:
            yield connected

    return client

"""Fixtures of the surface tests: a new home for every test, the command line, and an MCP client."""

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

from fidelio.definitions.library.search_path import bundled_root
from tests.support.command_line import run_fidelio
from tests.support.shared import advised_copy

Connect = Callable[[], AbstractAsyncContextManager[Client]]
Fidelio = Callable[..., subprocess.CompletedProcess[str]]
Shell = Callable[[str], subprocess.CompletedProcess[str]]
# A home that no environment variable names, in the directory of the test.
UNNAMED_HOME = "my home"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def environ(home: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FIDELIO_")}
    # `fidelio` is on the PATH, so messages name it without a path.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {**inherited, "PATH": path, "FIDELIO_HOME": str(home), "FIDELIO_MIN_RESPONSE_SECONDS": "0", "COLUMNS": "100"}


@pytest.fixture
def fidelio(environ: dict[str, str], tmp_path: Path) -> Fidelio:
    """Run a command in the process of the test."""

    def run(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return run_fidelio(arguments, environ={**environ, **changes}, directory=tmp_path)

    return run


@pytest.fixture
def fidelio_process(environ: dict[str, str], tmp_path: Path) -> Fidelio:
    """Run a command in a separate process, for what depends on it."""

    def run(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fidelio", *arguments]
        return subprocess.run(
            command, env={**environ, **changes}, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )

    return run


@pytest.fixture
def shell(environ: dict[str, str], tmp_path: Path) -> Shell:
    """Run a line in a shell, in the same directory, without FIDELIO_HOME."""
    outside = {name: value for name, value in environ.items() if name != "FIDELIO_HOME"}

    def run_line(line: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", "-c", line]
        return subprocess.run(command, env=outside, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    return run_line


@pytest.fixture
def connect(environ: dict[str, str], home: Path, tmp_path: Path) -> Connect:
    """Start a server over stdio and connect the official client to it.

    Its bundled workflows only advise, because the tests report nothing; those of the home are as they are.
    """
    bundled, own = advised_copy(bundled_root().path, tmp_path), home / "workflows"

    @asynccontextmanager
    async def client() -> AsyncIterator[Client]:
        roots = [bundled, own] if own.is_dir() else [bundled]
        arguments = ["-m", "fidelio", "mcp", *(part for root in roots for part in ("--workflows", str(root)))]
        server = StdioServerParameters(command=sys.executable, args=arguments, env=environ)
        async with Client(stdio_client(server)) as connected:
            yield connected

    return client

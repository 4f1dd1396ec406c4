"""MCP servers of the user that are programs: each is a process of its own under a guard.

The server runs on the host with the rights of the user, as it does for other agents, and carries the mark of an agent: it and
everything that it starts cannot answer requests of people. `fidelio.mcp_client.stdio` bounds what it sends.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from fidelio.errors import ExecutorFailure, ToolRefused
from fidelio.mcp_client.stdio import MAX_LINE, StdioTransport
from fidelio.processes.spooled import find_executable
from fidelio.processes.table import AGENT_MARKER, missing_support, put_mark
from fidelio.retry import cancel_tasks
from fidelio.runtime.servers import guard
from fidelio.runtime.servers.credentials import Masks

_TAIL = 1_000
_CLOSE_SECONDS = guard.GRACE_MS / 1000 + 6.0
_STDERR_SECONDS = 1.0
# Variables that any program needs. Keys of this process are none of them; a definition names what its server gets.
_INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "NO_PROXY", "no_proxy"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
)


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A server to start. `environment` is added to what every program gets; `run` is the mark that it carries."""

    name: str
    command: str
    args: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    run: str
    masks: Masks


class McpProcess(StdioTransport):
    """A running server."""

    def __init__(self, launch: Launch, child: asyncio.subprocess.Process, control: int) -> None:
        super().__init__(child)
        self._launch, self._control = launch, control
        self._tail = b""
        self._stderr = asyncio.create_task(self._read_stderr())

    async def close(self) -> None:
        """End the server and everything that it has started. Also if this is cancelled: the guard ends it then."""
        self._release()
        assert self.child.stdin is not None
        self.child.stdin.close()
        draining = asyncio.create_task(self.drain())
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.child.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self.child.kill()
            await self.child.wait()
        finally:
            await cancel_tasks(draining, self._stderr)

    def _release(self) -> None:
        control, self._control = self._control, -1
        if control >= 0:
            os.close(control)

    async def read_complaints(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_STDERR_SECONDS):
                await asyncio.shield(self._stderr)

    async def _read_stderr(self) -> None:
        assert self.child.stderr is not None
        while data := await self.child.stderr.read(1 << 16):
            self._tail = (self._tail + data)[-_TAIL:]

    def failure(self, what: str) -> ToolRefused:
        text = self._launch.masks.apply(self._tail.decode(errors="replace").strip())
        said = f" It said: {text}" if text else ""
        return ToolRefused(
            f"The MCP server {self._launch.name} {what}.{said}",
            remedy="The person has to look at the server.",
            reason="mcp_server_failed",
            retryable=True,
        )


async def start_server(launch: Launch) -> McpProcess:
    """Start a server. Raises `ToolRefused`."""
    if problem := missing_support():
        raise _not_started(launch, problem)
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    environment |= {**launch.environment, AGENT_MARKER: launch.run}
    try:
        program = find_executable(launch.command, launch.directory, environment)
    except ExecutorFailure as error:
        raise _not_started(launch, str(error.sentence)) from error
    reading, writing = os.pipe()
    try:
        child = await _spawn(launch, (program, *launch.args), environment, reading)
    except BaseException as error:
        os.close(writing)
        if isinstance(error, OSError):
            raise _not_started(launch, f"{error.strerror}.") from error
        raise
    finally:
        os.close(reading)
    put_mark(child.pid, launch.run)
    with suppress(BrokenPipeError):
        os.write(writing, b"!")
    return McpProcess(launch, child, writing)


async def _spawn(
    launch: Launch, command: tuple[str, ...], environment: Mapping[str, str], control: int
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", guard.__file__, str(control), *command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=launch.directory,
        env=environment,
        limit=MAX_LINE,
        pass_fds=(control,),
        start_new_session=True,
    )


def _not_started(launch: Launch, why: str) -> ToolRefused:
    return ToolRefused(
        f"The MCP server {launch.name} could not be started: {launch.masks.apply(why)}",
        remedy="Correct its definition, or install it.",
        reason="mcp_server_failed",
    )

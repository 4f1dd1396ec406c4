"""Stdio transport to an MCP server of the user, which is a process of its own under a guard.

The server runs on the host with the rights of the user, as it does for other agents, and carries the mark of an agent: it and
everything that it starts cannot answer requests of people. It may be hostile to us in what it sends: lines are bounded, what is
no JSON is skipped, and a server that floods us without a reply is given up.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from fidelio.errors import ExecutorFailure, ToolRefused
from fidelio.processes.spooled import find_executable
from fidelio.processes.table import AGENT_MARKER, missing_support, put_mark
from fidelio.retry import cancel_tasks
from fidelio.runtime.servers import guard
from fidelio.runtime.servers.credentials import Masks

MAX_LINE = 8_000_000
# What a server may send before the reply to a request: progress, log messages, lines that are no JSON.
MAX_SKIPPED, MAX_SKIPPED_BYTES = 1_000, 32_000_000
_TAIL = 1_000
_CLOSE_SECONDS = guard.GRACE_MS / 1000 + 6.0
_STDERR_SECONDS = 1.0
_UNKNOWN_METHOD = -32601
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


class McpProcess:
    """A running server. A `Transport` of `fidelio.mcp_client`, for requests in sequence."""

    def __init__(self, launch: Launch, child: asyncio.subprocess.Process, control: int) -> None:
        self._launch, self._child, self._control = launch, child, control
        self._tail = b""
        self._stderr = asyncio.create_task(self._read_stderr())

    async def request(self, message: Mapping[str, Any]) -> dict[str, Any]:
        await self.notify(message)
        skipped = 0
        for _ in range(MAX_SKIPPED):
            line = await self._read_line()
            reply = _decode(line)
            if reply.get("id") == message["id"] and "method" not in reply:
                return reply
            await self._answer(reply)
            skipped += len(line)
            if skipped > MAX_SKIPPED_BYTES:
                break
        raise self._failure("sends messages without end")

    async def notify(self, message: Mapping[str, Any]) -> None:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(msgspec.json.encode(message) + b"\n")
            await self._child.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise self._failure("has ended") from error

    async def close(self) -> None:
        """End the server and everything that it has started. Also if this is cancelled: the guard ends it then."""
        self._release()
        assert self._child.stdin is not None
        self._child.stdin.close()
        # The transport sees the end of the process only after the end of its output, of which nobody may have read the rest.
        draining = asyncio.create_task(self._drain())
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._child.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._child.kill()
            await self._child.wait()
        finally:
            await cancel_tasks(draining, self._stderr)

    def _release(self) -> None:
        control, self._control = self._control, -1
        if control >= 0:
            os.close(control)

    async def _drain(self) -> None:
        assert self._child.stdout is not None
        while await self._child.stdout.read(1 << 20):
            pass

    async def _read_line(self) -> bytes:
        assert self._child.stdout is not None
        try:
            line = await self._child.stdout.readline()
        except ValueError as error:
            raise self._failure(f"sent a message of more than {MAX_LINE:,} bytes") from error
        if not line:
            # What it complained about may arrive a moment later.
            with suppress(TimeoutError):
                async with asyncio.timeout(_STDERR_SECONDS):
                    await asyncio.shield(self._stderr)
            raise self._failure("has ended")
        return line

    async def _answer(self, message: Mapping[str, Any]) -> None:
        """Reply to a request of the server: only `ping` is supported."""
        if not isinstance(message.get("id"), str | int) or not isinstance(message.get("method"), str):
            return
        refusal = {"code": _UNKNOWN_METHOD, "message": "Method not found"}
        answer: dict[str, Any] = {"result": {}} if message["method"] == "ping" else {"error": refusal}
        await self.notify({"jsonrpc": "2.0", "id": message["id"], **answer})

    async def _read_stderr(self) -> None:
        assert self._child.stderr is not None
        while data := await self._child.stderr.read(1 << 16):
            self._tail = (self._tail + data)[-_TAIL:]

    def _failure(self, what: str) -> ToolRefused:
        text = self._launch.masks.apply(self._tail.decode(errors="replace").strip())
        said = f" It said: {text}" if text else ""
        return ToolRefused(
            f"The MCP server {self._launch.name} {what}.{said}",
            remedy="The person has to look at the server.",
            reason="mcp_server_failed",
            retryable=True,
        )


def _decode(line: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {}


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

"""A minimal MCP client for agents without a model: it connects, calls tools in sequence, and disconnects.

The official client is not used here: importing it takes longer than a whole scripted agent runs, so only surfaces load it.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from fidelio.errors import ExecutorFailure
from fidelio.mcp_client import McpServer
from fidelio.mcp_client.stdio import MAX_LINE, StdioTransport
from fidelio.retry import cancel_tasks

if TYPE_CHECKING:
    from fidelio.mcp_client.http import HttpTransport

REVISION = "2025-06-18"
_CONNECT_SECONDS = 60.0
_CALL_SECONDS = 900.0
_DISCONNECT_SECONDS = 5.0
_CLIENT = {"name": "fidelio-scripted", "version": "1"}


class Transport(Protocol):
    """Sends a message and returns its reply."""

    async def request(self, message: Mapping[str, Any]) -> dict[str, Any]: ...

    async def notify(self, message: Mapping[str, Any]) -> None: ...


class McpClient:
    """A connected client."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._ids = itertools.count(1)

    async def connect(self) -> None:
        await self._request("initialize", protocolVersion=REVISION, capabilities={}, clientInfo=_CLIENT)
        await self._transport.notify({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool. A JSON-RPC error is returned as a tool result with `isError`, because an agent reads both alike."""
        reply = await self._request("tools/call", name=tool, arguments=dict(arguments))
        if (error := reply.get("error")) is not None:
            return {"isError": True, "content": [{"type": "text", "text": str(error.get("message", error))}]}
        return dict(reply.get("result") or {})

    async def _request(self, method: str, **params: Any) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        return await self._transport.request(message)


def extract_text(result: Mapping[str, Any]) -> str:
    """The text blocks of a tool result, which are what a model would read."""
    blocks = result.get("content") or ()
    return "\n".join(str(block["text"]) for block in blocks if isinstance(block, dict) and "text" in block)


@asynccontextmanager
async def open_client(server: McpServer, *, directory: Path, environment: Mapping[str, str]) -> AsyncIterator[McpClient]:
    """Connect to a server, which is started in `directory` or has an address."""
    async with _open_transport(server, directory, environment) as transport:
        client = McpClient(transport)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await client.connect()
        except TimeoutError as error:
            raise ExecutorFailure("The MCP server does not answer.", reason="mcp") from error
        yield client


@asynccontextmanager
async def _open_transport(server: McpServer, directory: Path, environment: Mapping[str, str]) -> AsyncIterator[Transport]:
    if server.command is None:
        transport = _open_endpoint(server.url or "", server.headers)
        try:
            yield transport
        finally:
            await transport.close()
        return
    with tempfile.TemporaryFile() as complaints:
        child = await _start(server, directory, {**environment, **server.env}, complaints)
        pipes = _ScriptedPipes(child, complaints)
        try:
            yield pipes
        finally:
            draining = asyncio.create_task(pipes.drain())
            try:
                await _disconnect(child)
            finally:
                await cancel_tasks(draining)


def _open_endpoint(address: str, headers: Mapping[str, str]) -> HttpTransport:
    from fidelio.mcp_client.http import HttpTransport  # noqa: PLC0415  # 180 ms; most servers are programs

    def describe_failure(what: str, said: str) -> ExecutorFailure:
        return ExecutorFailure(f"{address} {what}{f': {said[:500]}' if said else '.'}", reason="mcp")

    return HttpTransport(address, headers, describe_failure, seconds=_CALL_SECONDS)


async def _start(
    server: McpServer, directory: Path, environment: Mapping[str, str], complaints: BinaryIO
) -> asyncio.subprocess.Process:
    assert server.command is not None
    try:
        return await asyncio.create_subprocess_exec(
            *(server.command, *server.args),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=complaints,
            cwd=directory,
            env=environment,
            limit=MAX_LINE,
            start_new_session=True,
        )
    except OSError as error:
        raise ExecutorFailure(f"The MCP server {server.command} could not be started: {error}.", reason="mcp") from error


async def _disconnect(child: asyncio.subprocess.Process) -> None:
    """Close the input of the server, and kill the server if it does not exit."""
    assert child.stdin is not None
    child.stdin.close()
    try:
        async with asyncio.timeout(_DISCONNECT_SECONDS):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            child.kill()
        raise


class _ScriptedPipes(StdioTransport):
    """A server of a scripted agent; its stderr becomes part of an error."""

    def __init__(self, child: asyncio.subprocess.Process, complaints: BinaryIO) -> None:
        super().__init__(child)
        self._complaints = complaints

    async def read_complaints(self) -> None:
        """The file has them already."""

    async def request(self, message: Mapping[str, Any]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                return await super().request(message)
        except TimeoutError as error:
            raise self.failure(f"gave no reply within {_CALL_SECONDS:.0f} seconds") from error

    def failure(self, what: str) -> ExecutorFailure:
        self._complaints.seek(0)
        said = self._complaints.read().decode("utf-8", "replace").strip()[-1000:]
        return ExecutorFailure(f"The MCP server {what}. It said: {said or 'nothing'}", reason="mcp")

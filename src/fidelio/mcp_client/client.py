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
from typing import Any, BinaryIO, Protocol

import msgspec

from fidelio.errors import ExecutorFailure
from fidelio.mcp_client import McpServer

REVISION = "2025-06-18"
_CONNECT_SECONDS = 60.0
_CALL_SECONDS = 900.0
_DISCONNECT_SECONDS = 5.0
_MAX_MESSAGE_BYTES = 32_000_000
_UNKNOWN_METHOD = -32601
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
        from fidelio.mcp_client.http import open_http_transport  # noqa: PLC0415  # most servers are programs

        async with open_http_transport(server.url or "", server.headers) as transport:
            yield transport
        return
    with tempfile.TemporaryFile() as complaints:
        child = await _start(server, directory, {**environment, **server.env}, complaints)
        try:
            yield _Pipes(child, complaints)
        finally:
            await _disconnect(child)


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
            limit=_MAX_MESSAGE_BYTES,
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


class _Pipes:
    """Transport to a child process with a JSON message on each line; its stderr becomes part of an error."""

    def __init__(self, child: asyncio.subprocess.Process, complaints: BinaryIO) -> None:
        self._child, self._complaints = child, complaints

    async def request(self, message: Mapping[str, Any]) -> dict[str, Any]:
        await self.notify(message)
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                while (reply := await self._next()).get("id") != message["id"] or "method" in reply:
                    await self._answer(reply)
        except TimeoutError as error:
            raise self._failed() from error
        return reply

    async def notify(self, message: Mapping[str, Any]) -> None:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(msgspec.json.encode(message) + b"\n")
            await self._child.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise self._failed() from error

    async def _next(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        try:
            line = await self._child.stdout.readline()
            return msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, ValueError) as error:  # a line that is not JSON, or longer than the limit
            raise self._failed() from error

    async def _answer(self, message: Mapping[str, Any]) -> None:
        """Reply to a request of the server: only `ping` is supported."""
        if "id" not in message or "method" not in message:
            return
        refusal = {"code": _UNKNOWN_METHOD, "message": "Method not found"}
        answer: dict[str, Any] = {"result": {}} if message["method"] == "ping" else {"error": refusal}
        await self.notify({"jsonrpc": "2.0", "id": message["id"], **answer})

    def _failed(self) -> ExecutorFailure:
        self._complaints.seek(0)
        said = self._complaints.read().decode("utf-8", "replace").strip()[-1000:]
        return ExecutorFailure(f"The MCP server gave no reply. It said: {said or 'nothing'}", reason="mcp")

"""MCP servers with an address: helpful, and hostile ones."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fidelio.runtime import events as e
from fidelio.runtime.servers import connection
from fidelio.runtime.servers.credentials import MASK, Masks
from fidelio.runtime.servers.http import ServerEndpoint
from tests.runtime.servers.program import SCHEMA
from tests.runtime.servers.test_secrets import SECRET, find_leaks
from tests.runtime.servers.test_servers import result_text, talk
from tests.runtime.wakes.support import Runtime, open_runtime, say, use
from tests.support import proves

Headers = dict[str, str]


class HttpServer:
    """A server of a few lines. `mode` says how it answers a tool call, or everything."""

    def __init__(self, mode: str) -> None:
        self.mode, self.seen = mode, list[tuple[str, Headers]]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                method, headers = parse_head(head)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                await self.answer(method, headers, json.loads(body or b"{}"), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, method: str, headers: Headers, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.seen.append((message.get("method", method), headers))
        if method == "DELETE" or "id" not in message:
            reply(writer, "202 Accepted", b"")
        elif self.mode == "refuses":
            reply(writer, "401 Unauthorized", f"Wrong key {headers.get('authorization')}".encode())
        elif self.mode == "redirects":
            reply(writer, "302 Found", b"", Location="http://127.0.0.1:1/elsewhere")
        elif self.mode == "hangs":
            await asyncio.Event().wait()
        elif self.mode == "compressed":
            packed = gzip.compress(b" " * 50_000_000)
            reply(writer, "200 OK", packed, **{"Content-Encoding": "gzip"})
        elif self.mode == "no-json":
            reply(writer, "200 OK", b"<html>")
        elif self.mode in ("endless", "endless-stream"):
            await flood(writer, is_stream=self.mode == "endless-stream")
        else:
            self.reply_well(message, writer)
        await writer.drain()

    def reply_well(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        results: dict[str, Any] = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}},
            "tools/list": {"tools": [{"name": "echo", "description": "Says it again.", "inputSchema": SCHEMA}]},
            "tools/call": {"content": [{"type": "text", "text": "from afar"}]},
        }
        whole = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]})
        if self.mode == "stream":
            events = f'event: message\ndata: {{"jsonrpc":"2.0","method":"notifications/x"}}\n\ndata: {whole}\n\n'
            reply(writer, "200 OK", events.encode(), "text/event-stream")
        else:
            reply(writer, "200 OK", whole.encode(), **{"Mcp-Session-Id": "one"})


def parse_head(head: bytes) -> tuple[str, Headers]:
    first, *lines = head.decode().splitlines()
    pairs = (line.split(": ", 1) for line in lines if ": " in line)
    return first.split()[0], {name.lower(): value for name, value in pairs}


def reply(writer: asyncio.StreamWriter, status: str, body: bytes, kind: str = "application/json", **headers: str) -> None:
    extra = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    writer.write(head.encode() + body)


async def flood(writer: asyncio.StreamWriter, *, is_stream: bool) -> None:
    kind = "text/event-stream" if is_stream else "application/json"
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n".encode())
    while True:
        writer.write(b'data: {"method": "x"}\n\n' * 1_000 if is_stream else b" " * 100_000)
        await writer.drain()


@asynccontextmanager
async def serve(mode: str) -> AsyncIterator[tuple[HttpServer, str]]:
    server = HttpServer(mode)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        yield server, f"http://127.0.0.1:{port}/mcp"


async def begin(runtime: Runtime, address: str, **headers: str) -> str:
    await runtime.service.vaults.add("key", f"Bearer {SECRET}", by="person:test")
    server = {"url": address, "headers": headers, "policies": {"echo": "always_allow"}}
    await runtime.define(tools={"mcp_servers": {"far": server}})
    return await runtime.start(vaults=("key",))


@proves("runtime.mcp-http")
@pytest.mark.parametrize("mode", ["json", "stream"])
async def test_a_server_with_an_address_is_called_with_its_credentials(tmp_path: Path, mode: str) -> None:
    async with serve(mode) as (server, address), open_runtime(tmp_path) as runtime:
        session = await begin(runtime, address, Authorization="vault:key")
        await talk(runtime, session, use(("mcp__far__echo", {"text": "x"})), say("Done."))

        assert result_text(runtime.requests[1]) == '{"ok":true,"content":"from afar"}'
        assert all(headers["authorization"] == f"Bearer {SECRET}" for _, headers in server.seen)
        # A server of Fidelio takes no call of an agent for a person's.
        assert all(headers["fidelio-agent"] == f"{session}.1" for _, headers in server.seen)
        assert await find_leaks(runtime, session, SECRET) == []
        if mode == "json":
            assert server.seen[-1][0] == "DELETE"
            assert server.seen[-1][1]["mcp-session-id"] == "one"


@proves("runtime.mcp-http")
@pytest.mark.parametrize(
    "mode", ["refuses", "redirects", "hangs", "no-json", "endless", "endless-stream", "compressed", "missing"]
)
async def test_a_hostile_server_with_an_address_is_an_error_and_nothing_more(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 2.0)
    async with serve(mode) as (_, address), open_runtime(tmp_path) as runtime:
        target = address if mode != "missing" else "http://127.0.0.1:1/mcp"
        session = await begin(runtime, target, Authorization="vault:key")
        async with asyncio.timeout(20):
            await talk(runtime, session, say("Without it."))

        (error,) = await runtime.events(session, e.SESSION_ERROR)
        assert "The MCP server far" in error.body["error"]["message"]
        assert await find_leaks(runtime, session, SECRET) == []
        assert (await runtime.record(session)).status == "idle"
        assert ("compressed" in error.body["error"]["message"]) is (mode == "compressed")
        if mode == "refuses":
            assert f"Wrong key {MASK}" in error.body["error"]["message"]


@proves("runtime.mcp-http")
async def test_a_server_elsewhere_learns_that_an_agent_calls_but_not_its_session() -> None:
    endpoint = ServerEndpoint("far", "https://mcp.example.org/", {}, Masks(), run="s_testtesttest.1", seconds=1.0)
    await endpoint.close()

    assert endpoint.headers["Fidelio-Agent"] == "runtime"


@proves("runtime.fork-conversation")
async def test_a_fork_declares_the_tools_that_its_source_has(tmp_path: Path) -> None:
    async with serve("json") as (server, address), open_runtime(tmp_path) as runtime:
        session = await begin(runtime, address)
        await talk(runtime, session, say("Hello."))
        fork = await runtime.service.fork(session, by="person:test")
        asked = len(server.seen)
        await talk(runtime, fork, say("Hello."))

        assert runtime.requests[1].tools == runtime.requests[0].tools
        assert len(server.seen) == asked

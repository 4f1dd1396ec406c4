"""A client that sends exactly the bytes it is told to, for what no well-behaved client does."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

SECONDS = 30
COMMAND = (sys.executable, "-m", "tests.surfaces.mcp.example")
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
ASKABLE = {**META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}

Json = dict[str, Any]


def request(name: object, method: str, /, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": name, "method": method, "params": params}


def call(name: object, tool: str, arguments: object = None, **params: Any) -> Json:
    wanted = {"name": tool, "arguments": arguments or {}, **params}
    return {"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": wanted}


def initialize(revision: str = "2025-11-25", **capabilities: Any) -> Json:
    client = {"name": "wire", "version": "1"}
    return request("init", "initialize", protocolVersion=revision, capabilities=capabilities, clientInfo=client)


def notification(method: str, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def text_of(reply: Json) -> str:
    return str(reply["result"]["content"][0]["text"])


class Wire:
    """One server process, and what goes over its standard streams."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def send(self, *messages: object) -> None:
        self.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    async def receive(self) -> Any:
        assert self.process.stdout is not None
        async with asyncio.timeout(SECONDS):
            return json.loads(await self.process.stdout.readline())

    async def ask(self, message: object) -> Any:
        self.send(message)
        return await self.receive()

    async def end(self) -> tuple[int, bytes]:
        """Closes our end; the exit code, and what else the server wrote."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        async with asyncio.timeout(SECONDS):
            rest = await self.process.stdout.read()
            return await self.process.wait(), rest


@asynccontextmanager
async def wired(*command: str, **environ: str) -> AsyncIterator[Wire]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(command or COMMAND), stdin=pipe, stdout=pipe, limit=64 * 1024 * 1024, env=environ or None
    )
    try:
        yield Wire(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        # The transport would otherwise be closed by the garbage collector, with a warning.
        process._transport.close()  # type: ignore[attr-defined]  # there is no public way

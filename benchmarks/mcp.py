"""Benchmarks of the MCP servers: time to the first reply over stdio, and cost of our HTTP server against the SDK alone.

python -m benchmarks mcp

The servers that are measured are started from here, each in a process of its own: `python -m benchmarks.mcp ours` or `bare`.
"""

from __future__ import annotations

import asyncio
import compileall
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figures import Figure
from benchmarks.measure import interleaved, ratio, seconds_per_call

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 15
CALLS = 200
# A small acknowledgement, and a document of the size of an activity.
SIZES = (200, 28_000)
BARE_PYTHON = (sys.executable, "-c", "import asyncio, json")
FIDELIO = (sys.executable, "-m", "fidelio", "mcp")
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
}


# Over stdio: from the start of the process to the first reply


def environment(home: str) -> dict[str, str]:
    """Environment of the servers, in which Python may write bytecode: compiling would be measured otherwise."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("FIDELIO_", "PYTHONDONTWRITE"))}
    return {**inherited, "FIDELIO_HOME": home}


def handshake() -> bytes:
    client = {"name": "benchmark", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode() + b"\n"


async def spawn_to_reply(home: str) -> float:
    began = time.perf_counter()
    pipe = subprocess.PIPE
    with subprocess.Popen(FIDELIO, stdin=pipe, stdout=pipe, env=environment(home)) as server:  # noqa: ASYNC220  # nothing else runs on this event loop while the benchmark or test program blocks
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(handshake())
        server.stdin.flush()
        assert b"serverInfo" in server.stdout.readline()
        return time.perf_counter() - began


async def spawn_bare(home: str) -> float:
    began = time.perf_counter()
    subprocess.run(BARE_PYTHON, check=True, env=environment(home))  # noqa: ASYNC221  # nothing else runs on this event loop while the benchmark or test program blocks
    return time.perf_counter() - began


async def starts() -> list[Figure]:
    with tempfile.TemporaryDirectory() as home:
        found = await interleaved(ROUNDS, {"ours": partial(spawn_to_reply, home), "bare": partial(spawn_bare, home)})
    return [
        Figure(name="spawn to initialize reply", value=median(found["ours"]) * 1000, unit="ms"),
        Figure(
            name="spawn to initialize reply / bare python with asyncio and json",
            value=ratio(found["ours"], found["bare"]),
            unit="x",
            at_most=2.5,
        ),
    ]


# Over HTTP: one call against an echo on the SDK alone


def http_request(revision: str, number: int, params: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """Body and headers of a call, as the revision wants them."""
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    headers["MCP-Protocol-Version"] = revision
    if revision == "2026-07-28":
        params = {**params, "_meta": _META}
        headers |= {"Mcp-Method": "tools/call", "Mcp-Name": params["name"]}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}), headers


@dataclass(slots=True)
class Caller:
    """A minimal client on a persistent connection."""

    connection: http.client.HTTPConnection
    revision: str

    async def seconds(self, size: int) -> float:
        # The server closes a connection that was idle while the other server was measured.
        self.connection.close()
        return await seconds_per_call(CALLS, partial(self.call, size))

    async def call(self, size: int, number: int) -> None:
        body, headers = http_request(self.revision, number, {"name": "echo", "arguments": {"size": size}})
        self.connection.request("POST", "/mcp", body, headers)
        reply = self.connection.getresponse().read()
        assert len(reply) > size, reply


@contextmanager
def server(kind: str) -> Iterator[http.client.HTTPConnection]:
    command = [sys.executable, "-m", "benchmarks.mcp", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip().removeprefix("http://")
        connection = http.client.HTTPConnection(address, timeout=60)
        try:
            yield connection
        finally:
            connection.close()
            process.terminate()


async def calls() -> list[Figure]:
    figures = []
    with ExitStack() as stack:
        connections = {kind: stack.enter_context(server(kind)) for kind in ("ours", "bare")}
        for revision in ("2026-07-28", "2025-11-25"):
            for size in SIZES:
                callers = {kind: Caller(connection, revision) for kind, connection in connections.items()}
                figures += await compare(callers, revision, size)
    return figures


async def compare(callers: dict[str, Caller], revision: str, size: int) -> list[Figure]:
    found = await interleaved(ROUNDS // 2, {kind: partial(caller.seconds, size) for kind, caller in callers.items()})
    name = f"HTTP call, {revision}, reply of {size} bytes"
    return [
        Figure(name=name, value=median(found["ours"]) * 1000, unit="ms"),
        Figure(name=f"{name} / echo on the SDK", value=ratio(found["ours"], found["bare"]), unit="x", at_most=1.5),
    ]


# The servers


async def serve(kind: str) -> None:
    from fidelio.surfaces.http.serving import serve_http  # noqa: PLC0415  # only the servers load the SDK

    app = our_app() if kind == "ours" else bare_app()
    app.state.has_token = False
    await serve_http(app, port=0, ready=lambda address: print(address, flush=True))


def our_app() -> Any:
    import msgspec  # noqa: PLC0415  # only the servers load the SDK

    from fidelio.surfaces.http.application import create_app  # noqa: PLC0415  # only the servers load the SDK
    from fidelio.surfaces.mcp.endpoint import (  # noqa: PLC0415  # only the servers load the SDK
        Identity,
        RequestStates,  # the same
        ServedTools,
    )
    from fidelio.surfaces.mcp.protocol import Protocol  # noqa: PLC0415  # only the servers load the SDK
    from fidelio.tokens.keyring import FixedKeys  # noqa: PLC0415  # only the servers load the SDK
    from fidelio.toolkit import CallContext, Done, Tool, ToolHandlers, ToolTable  # noqa: PLC0415  # only the servers load the SDK

    parameters = msgspec.defstruct("EchoParameters", [("size", int)])

    class Handlers(ToolHandlers):
        async def echo(self, arguments: Any, _: CallContext) -> Done:
            return Done("x" * arguments.size)

    table = ToolTable([Tool("echo", "Echo", "Replies with a text.", parameters, read_only=True)], Handlers)
    states = RequestStates(lambda: FixedKeys(b"k" * 32))
    return create_app({"/mcp": Protocol(Identity("ours", "1"), ServedTools(table), states)})


def bare_app() -> Any:
    import mcp_types as types  # noqa: PLC0415  # only the servers load the SDK
    from mcp.server.lowlevel.server import Server  # noqa: PLC0415  # only the servers load the SDK

    schema = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="echo", description="Echo.", input_schema=schema)])

    async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        size = int((params.arguments or {})["size"])
        return types.CallToolResult(content=[types.TextContent(type="text", text="x" * size)])

    bare = Server("bare", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    return bare.streamable_http_app(json_response=True, stateless_http=True)


async def measure() -> list[Figure]:
    return [*await starts(), *await calls()]


def main() -> list[Figure]:
    compileall.compile_dir(ROOT / "src", quiet=2)
    return asyncio.run(measure())


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))

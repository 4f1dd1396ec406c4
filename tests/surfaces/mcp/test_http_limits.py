"""Limits of the HTTP server: a client that is slow, greedy or gone does not stop it for the others."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import httpx2
import pytest

from fidelio.errors import UsageProblem
from fidelio.settings import HttpLimits, load_settings
from fidelio.surfaces.http.limits import MAX_BODY, SMALL_BODY
from tests.support import proves
from tests.surfaces.mcp.serving import Served, served
from tests.surfaces.mcp.wire import SECONDS, call, initialize

SHORT = 0.3
HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json\r\n"


class Connection:
    """A connection that sends exactly the bytes it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def read_head(self) -> bytes:
        return await self._reader.readuntil(b"\r\n\r\n")

    async def read_all(self) -> bytes:
        return await self._reader.read()

    async def trickle(self) -> tuple[bytes, int]:
        """Send a byte whenever nothing has come back for a while; returns the reply and the number of bytes."""
        reply, count = asyncio.create_task(self.read_all()), 0
        while not reply.done():
            self.send(b"x")
            count += 1
            await asyncio.wait({reply}, timeout=SHORT / 4)
        return await reply, count


@asynccontextmanager
async def connected(server: Served) -> AsyncIterator[Connection]:
    address = urlsplit(server.address)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def repeat_until(attempt: Callable[[], Awaitable[bool]]) -> None:
    """Send requests until one works. The time limit of `served` ends it if none ever does."""
    while not await attempt():
        continue


async def is_healthy(server: Served) -> bool:
    async with httpx2.AsyncClient(timeout=SECONDS) as client:
        return (await client.get(f"{server.address}/health")).status_code == 200


@proves("mcp.http-slow-requests")
@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"POST /mcp HTTP/1.1\r\nX-A: ",
        HEAD + b"Content-Length: 90000\r\n\r\n{",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nfff\r\n",
    ],
    ids=["nothing", "headers", "body", "chunks"],
)
async def test_a_request_that_trickles_in_is_ended(start: bytes) -> None:
    async with served(limits=HttpLimits(read_seconds=SHORT)) as server, connected(server) as slow:
        slow.send(start)
        reply, count = await slow.trickle()

        assert reply.startswith(b"HTTP/1.1 408 ")
        assert b"FIDELIO_HTTP_READ_SECONDS" in reply
        assert count < 40
        assert await is_healthy(server)


@proves("mcp.http-slow-requests")
async def test_so_is_a_second_request_on_a_connection_that_has_worked() -> None:
    async with served(limits=HttpLimits(read_seconds=SHORT)) as server, connected(server) as slow:
        slow.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await slow.read_head()).startswith(b"HTTP/1.1 200 ")
        slow.send(b"GET /health HTTP/1.1\r\nX-A: ")
        reply, _ = await slow.trickle()

    assert b"HTTP/1.1 408 " in reply


@proves("mcp.http-slow-requests")
async def test_a_call_that_takes_longer_than_its_request_may_is_answered() -> None:
    async with served(limits=HttpLimits(read_seconds=SHORT, send_seconds=SHORT, idle_seconds=SHORT)) as server:
        plain = await server.post(call(1, "later", {"seconds": 2 * SHORT}))
        streamed = await server.ask_stateless(call(2, "later", {"seconds": 2 * SHORT}, _meta=_with_progress()))

    assert "late" in plain.text
    assert "late" in streamed.text


def _with_progress() -> dict[str, object]:
    version, capabilities = "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"
    return {version: "2026-07-28", capabilities: {}, "progressToken": "p"}


@proves("mcp.http-connections")
@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (HttpLimits(connections=2, per_peer=5), "FIDELIO_HTTP_CONNECTIONS"),
        (HttpLimits(connections=5, per_peer=2), "FIDELIO_HTTP_CONNECTIONS_PER_PEER"),
    ],
)
async def test_one_connection_too_many_is_refused_until_another_is_closed(limits: HttpLimits, name: str) -> None:
    async with served(limits=limits) as server, connected(server) as first:
        async with connected(server) as second:
            for open_one in (first, second):
                open_one.send(HEAD)
            async with connected(server) as third:
                reply = await third.read_all()
        await repeat_until(lambda: is_healthy(server))

    assert reply.startswith(b"HTTP/1.1 503 ")
    assert f"raise {name}." in json.loads(reply.partition(b"\r\n\r\n")[2])["error"]


@proves("mcp.http-bodies")
async def test_unfinished_bodies_together_are_limited_and_small_ones_always_taken() -> None:
    large = 900_000
    head = HEAD + b"Content-Length: %d\r\n\r\n" % (large + 1)
    async with served(limits=HttpLimits(body_megabytes=1)) as server:
        async with connected(server) as first, connected(server) as second:
            first.send(head + b"x" * large)
            second.send(head + b"x" * large)
            # Both are read at the same time, so either may be the one that does not fit.
            replies = [asyncio.create_task(unfinished.read_head()) for unfinished in (first, second)]
            answered, waiting = await asyncio.wait(replies, return_when=asyncio.FIRST_COMPLETED)
            reply = answered.pop().result()
            for task in waiting:
                task.cancel()
            small = await server.post(call(1, "echo", {"text": "x" * (SMALL_BODY // 2)}))
        await repeat_until(lambda: _is_taken(server, large))

    assert reply.startswith(b"HTTP/1.1 503 ")
    assert small.status_code == 200


async def _is_taken(server: Served, size: int) -> bool:
    return (await server.post(call(2, "echo", {"text": "x" * size}))).status_code == 200


@proves("mcp.http-bodies")
async def test_a_body_in_a_session_counts_as_well_and_one_that_is_too_large_is_refused() -> None:
    async with served(limits=HttpLimits(body_megabytes=1)) as server:
        begun = await server.post(initialize(elicitation={}))
        session = {"Mcp-Session-Id": begun.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        too_many = await server.post(call(1, "echo", {"text": "x" * 1_900_000}), **session)
        fits = await server.post(call(2, "echo", {"text": "x" * 900_000}), **session)
        too_large = await server.post(call(3, "echo", {"text": "x" * MAX_BODY}), **session)

    assert too_many.status_code == 503
    assert "FIDELIO_HTTP_BODY_MEGABYTES" in too_many.json()["error"]
    assert fits.status_code == 200
    assert too_large.status_code == 413


@proves("mcp.http-abandoned-streams")
async def test_a_client_that_reads_nothing_of_its_reply_is_disconnected() -> None:
    message = json.dumps(call(1, "echo", {"text": "x" * 50_000, "times": 1000})).encode()
    async with served(limits=HttpLimits(connections=1, send_seconds=SHORT)) as server:
        address = urlsplit(server.address)
        deaf = socket.socket()
        with deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(deaf, (address.hostname, address.port))
            await loop.sock_sendall(deaf, HEAD + b"Content-Length: %d\r\n\r\n" % len(message) + message)
            await repeat_until(lambda: is_healthy(server))


@proves("mcp.http-abandoned-streams")
async def test_sessions_of_clients_that_never_close_them_are_limited_and_end_when_idle() -> None:
    async with served(limits=HttpLimits(sessions=2, idle_seconds=4 * SHORT)) as server:
        statuses = [(await server.post(initialize(elicitation={}))).status_code for _ in range(3)]

        async def is_begun() -> bool:
            return (await server.post(initialize(elicitation={}))).status_code == 200

        assert statuses[:2] == [200, 200]
        assert statuses[2] >= 400
        await repeat_until(is_begun)


@proves("mcp.http-limit-settings")
def test_the_limits_are_settings_and_a_wrong_one_is_named() -> None:
    home = {"FIDELIO_HOME": "unused"}
    given = {"FIDELIO_HTTP_CONNECTIONS": "7", "FIDELIO_HTTP_READ_SECONDS": "1.5", "FIDELIO_HTTP_SESSIONS": "9"}
    limits = load_settings(environ={**home, **given}).http

    assert load_settings(environ=home).http == HttpLimits()
    assert limits == HttpLimits(connections=7, read_seconds=1.5, sessions=9)
    for name in ("CONNECTIONS", "CONNECTIONS_PER_PEER", "READ_SECONDS", "SEND_SECONDS", "BODY_MEGABYTES", "IDLE_SECONDS"):
        with pytest.raises(UsageProblem, match=f"FIDELIO_HTTP_{name}"):
            load_settings(environ={**home, f"FIDELIO_HTTP_{name}": "0"})

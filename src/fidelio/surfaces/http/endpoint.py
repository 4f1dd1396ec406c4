"""ASGI endpoint for clients of every revision: chooses for each request the cheapest transport that suffices.

A plain JSON reply, with nothing kept between two requests, is enough unless something has to reach the client in the middle of
a call: up to 2025-11-25 that takes a session and a stream, for progress it takes a stream. Who needs a stream says so in
advance, by a capability or a token, so the choice is made request by request and nothing has to be remembered.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from fidelio.surfaces.http.plain import JSON, Headers, PlainCall, PlainCalls

MAX_BODY = 16 * 1024 * 1024
MAX_SESSIONS = 1000
LONGEST_NUMBER = 20
# What a client declares when the server may turn to it in the middle of a call.
_BACK_CHANNELS = frozenset({"elicitation", "sampling", "roots"})
_HANDSHAKE = frozenset(revision.encode() for revision in HANDSHAKE_PROTOCOL_VERSIONS)
_WANTS_STREAM = (b'"progressToken"', b'"io.modelcontextprotocol/logLevel"')


class Endpoint:
    """An ASGI application for one server of the SDK."""

    def __init__(self, server: Server[Any], plain_calls: PlainCalls) -> None:
        self._plain_calls = plain_calls
        self._plain = StreamableHTTPSessionManager(server, json_response=True, stateless=True, max_request_body_size=MAX_BODY)
        self._streams = StreamableHTTPSessionManager(server, max_request_body_size=MAX_BODY, max_sessions=MAX_SESSIONS)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._plain.run())
            await stack.enter_async_context(self._streams.run())
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if b"mcp-session-id" in headers:
            await self._streams.handle_request(scope, receive, send)
        elif scope["method"] != "POST":
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
        elif _declared_size(headers) > MAX_BODY:
            await _too_large(scope, receive, send)
        else:
            with suppress(ClientDisconnect):  # a client that has disconnected gets no reply
                await self._post(scope, headers, receive, send)

    async def _post(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        if body is None:
            await _too_large(scope, receive, send)
        elif _needs_stream(headers, body):
            await self._streams.handle_request(scope, _replay(body, receive), send)
        elif (plain := self._read(scope, headers, body)) is not None:
            await _reply(await self._plain_calls.answer(plain), send)
        else:
            await self._plain.handle_request(scope, _replay(body, receive), send)

    def _read(self, scope: Scope, headers: Headers, body: bytes) -> PlainCall | None:
        # A header that is there twice may be read in two ways.
        return self._plain_calls.read(headers, body) if len(headers) == len(scope["headers"]) else None


_too_large = Response("Request body too large", status_code=413)


def _declared_size(headers: Headers) -> int:
    """What does not declare its size, or not as a number, is bounded while it is read."""
    declared = headers.get(b"content-length", b"")
    return int(declared) if declared.isdigit() and len(declared) < LONGEST_NUMBER else 0


async def _reply(body: bytes, send: Send) -> None:
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", JSON)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _body(receive: Receive) -> bytes | None:
    """All of it; None when it is too large. Whoever goes away in the middle has asked for nothing."""
    parts, size, more = list[bytes](), 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        more = message.get("more_body", False)
        if size > MAX_BODY:
            return None
    return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


def _needs_stream(headers: Headers, body: bytes) -> bool:
    revision = headers.get(b"mcp-protocol-version")
    if revision is not None and revision not in _HANDSHAKE:
        return any(word in body for word in _WANTS_STREAM)
    return b'"initialize"' in body and _has_back_channel(body)


def _has_back_channel(body: bytes) -> bool:
    try:
        message = json.loads(body)
        return message["method"] == "initialize" and not _BACK_CHANNELS.isdisjoint(message["params"]["capabilities"])
    except (ValueError, RecursionError, KeyError, TypeError):
        return False  # whoever serves it says what is wrong with it

"""One address for clients of every revision, each served in the cheapest way that can do what it may need.

A plain JSON reply, with nothing kept between two requests, is enough unless something has to reach the client in the middle of
a call: up to 2025-11-25 that takes a session and a stream, for progress it takes a stream. Who needs a stream says so in
advance, by a capability or a token, so the choice is made request by request and nothing has to be remembered.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

MAX_BODY = 16 * 1024 * 1024
MAX_SESSIONS = 1000
# What a client declares when the server may turn to it in the middle of a call.
_BACK_CHANNELS = frozenset({"elicitation", "sampling", "roots"})
_WANTS_STREAM = (b'"progressToken"', b'"io.modelcontextprotocol/logLevel"')


class Endpoint:
    """An ASGI application for one server of the SDK."""

    def __init__(self, server: Server[Any]) -> None:
        self._plain = StreamableHTTPSessionManager(server, json_response=True, stateless=True, max_request_body_size=MAX_BODY)
        self._streams = StreamableHTTPSessionManager(server, max_request_body_size=MAX_BODY, max_sessions=MAX_SESSIONS)
        self._bounded = RequestBodyLimitMiddleware(self._route, MAX_BODY)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._plain.run())
            await stack.enter_async_context(self._streams.run())
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._bounded(scope, receive, send)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if "mcp-session-id" in headers:
            await self._streams.handle_request(scope, receive, send)
        elif scope["method"] != "POST":
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
        else:
            body = await Request(scope, receive).body()
            manager = self._streams if _needs_stream(headers, body) else self._plain
            await manager.handle_request(scope, _replay(body, receive), send)


def _replay(body: bytes, receive: Receive) -> Receive:
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


def _needs_stream(headers: Mapping[str, str], body: bytes) -> bool:
    revision = headers.get("mcp-protocol-version")
    if revision is not None and revision not in HANDSHAKE_PROTOCOL_VERSIONS:
        return any(word in body for word in _WANTS_STREAM)
    return b'"initialize"' in body and _has_back_channel(body)


def _has_back_channel(body: bytes) -> bool:
    try:
        message = json.loads(body)
        return message["method"] == "initialize" and not _BACK_CHANNELS.isdisjoint(message["params"]["capabilities"])
    except (ValueError, RecursionError, KeyError, TypeError):
        return False  # whoever serves it says what is wrong with it

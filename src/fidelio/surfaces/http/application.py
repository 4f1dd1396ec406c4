"""ASGI application: an endpoint for every set of tools, a health check, and the guard in front of them.

An endpoint chooses the cheapest transport for each request. A plain JSON reply without state is enough unless the server must
reach the client in the middle of a call: up to 2025-11-25 elicitation needs a session and a stream, and progress needs a
stream. Clients announce this in advance, by a capability or a progress token, so the choice needs no state.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from fidelio.surfaces.http.guard import Guard, validate_token
from fidelio.surfaces.http.plain import JSON, Headers, PlainCall, PlainCalls
from fidelio.surfaces.http.sdk import make_sdk_server
from fidelio.surfaces.mcp.endpoint import Identity, RequestStates, ServedTools

HEALTH = "/health"
MAX_BODY = 16 * 1024 * 1024
MAX_SESSIONS = 1000
MAX_LENGTH_DIGITS = 20
# Capabilities of clients that the server may send requests to in the middle of a call.
_BACK_CHANNELS = frozenset({"elicitation", "sampling", "roots"})
_HANDSHAKE = frozenset(revision.encode() for revision in HANDSHAKE_PROTOCOL_VERSIONS)
_WANTS_STREAM = (b'"progressToken"', b'"io.modelcontextprotocol/logLevel"')


def create_app(
    tool_sets: Mapping[str, ServedTools],
    identity: Identity,
    states: RequestStates,
    *,
    bearer_token: str | None = None,
    allowed_hosts: Iterable[str] = (),
    routes: Iterable[Route] = (),
    prepare: Callable[[Server[Any]], None] | None = None,
) -> Starlette:
    """Build the application. `prepare` may extend each server of the SDK before it serves; `routes` are further pages.

    Plain calls bypass the SDK server, so middleware that `prepare` adds does not see them.
    """
    token = validate_token(bearer_token) if bearer_token else None
    endpoints: dict[str, Endpoint] = {}
    for path, tools in tool_sets.items():
        server = make_sdk_server(identity, tools, states)
        if prepare is not None:
            prepare(server)
        endpoints[path] = Endpoint(server, PlainCalls(identity, tools, states))
    app = Starlette(
        # The guard dispatches to the endpoints itself; these routes serve paths with a trailing slash.
        routes=[*(Route(path, endpoint) for path, endpoint in endpoints.items()), Route(HEALTH, _check_health), *routes],
        middleware=[Middleware(Guard, token, tuple(allowed_hosts), (HEALTH,), endpoints)],
        lifespan=_lifespan(endpoints.values()),
    )
    app.state.has_token = bool(token)
    return app


def _lifespan(endpoints: Iterable[Endpoint]) -> Callable[[Starlette], Any]:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for endpoint in endpoints:
                await stack.enter_async_context(endpoint.run())
            yield

    return lifespan


async def _check_health(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


class Endpoint:
    """ASGI application for a set of tools."""

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
            await _too_large_response(scope, receive, send)
        else:
            with suppress(ClientDisconnect):  # a client that has disconnected gets no reply
                await self._post(scope, headers, receive, send)

    async def _post(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        body = await _read_body(receive)
        if body is None:
            await _too_large_response(scope, receive, send)
        elif _needs_stream(headers, body):
            await self._streams.handle_request(scope, _replay(body, receive), send)
        elif (call := self._read(scope, headers, body)) is not None:
            await _send_reply(await self._plain_calls.answer(call), send)
        else:
            await self._plain.handle_request(scope, _replay(body, receive), send)

    def _read(self, scope: Scope, headers: Headers, body: bytes) -> PlainCall | None:
        # A duplicate header is ambiguous: our reader and the SDK could use different values.
        return self._plain_calls.read(headers, body) if len(headers) == len(scope["headers"]) else None


_too_large_response = Response("Request body too large", status_code=413)


def _declared_size(headers: Headers) -> int:
    """Return Content-Length, or 0 if it is missing or invalid; then the body is bounded while it is read."""
    declared = headers.get(b"content-length", b"")
    return int(declared) if declared.isdigit() and len(declared) < MAX_LENGTH_DIGITS else 0


async def _send_reply(body: bytes, send: Send) -> None:
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", JSON)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _read_body(receive: Receive) -> bytes | None:
    """Read the body; None if it is too large. Raises `ClientDisconnect` if the client disconnects before its end."""
    chunks, size, more = list[bytes](), 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        more = message.get("more_body", False)
        if size > MAX_BODY:
            return None
    return b"".join(chunks)


def _replay(body: bytes, receive: Receive) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return pending.pop() if pending else await receive()

    return receive_again


def _needs_stream(headers: Headers, body: bytes) -> bool:
    revision = headers.get(b"mcp-protocol-version")
    if revision is not None and revision not in _HANDSHAKE:
        return any(marker in body for marker in _WANTS_STREAM)
    return b'"initialize"' in body and _declares_back_channel(body)


def _declares_back_channel(body: bytes) -> bool:
    try:
        message = json.loads(body)
        return message["method"] == "initialize" and not _BACK_CHANNELS.isdisjoint(message["params"]["capabilities"])
    except (ValueError, RecursionError, KeyError, TypeError):
        return False  # the transport reports what is wrong with the body

"""ASGI application: every set of tools at its own path, a health check, and the guard in front of all of it."""

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


def create_app(
    tables: Mapping[str, ServedTools],
    identity: Identity,
    states: RequestStates,
    *,
    bearer_token: str | None = None,
    allowed_hosts: Iterable[str] = (),
    routes: Iterable[Route] = (),
    prepare: Callable[[Server[Any]], None] | None = None,
) -> Starlette:
    """`prepare` sees each server of the SDK before it serves, to add what is beyond tools; `routes` are further pages.

    Plain calls of our own tools do not pass through the server, and so not through middleware that is added to it.
    """
    token = validate_token(bearer_token) if bearer_token else None
    endpoints: dict[str, Endpoint] = {}
    for path, table in tables.items():
        server = make_sdk_server(identity, table, states)
        if prepare is not None:
            prepare(server)
        endpoints[path] = Endpoint(server, PlainCalls(identity, table, states))
    app = Starlette(
        # The guard knows the way to the endpoints; here they are for those who write it with a slash at the end.
        routes=[*(Route(path, endpoint) for path, endpoint in endpoints.items()), Route(HEALTH, _health), *routes],
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


async def _health(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


MAX_BODY = 16 * 1024 * 1024
MAX_SESSIONS = 1000
MAX_LENGTH_DIGITS = 20
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
    return int(declared) if declared.isdigit() and len(declared) < MAX_LENGTH_DIGITS else 0


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

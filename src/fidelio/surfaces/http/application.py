"""ASGI application: an endpoint for every set of tools, a health check, and the guard in front of them.

Our `Protocol` answers plain JSON exchanges, and the SDK serves the requests that need a session or a stream. Clients announce
in advance that they need one, so the choice needs no state: up to 2025-11-25 by a capability in their handshake, later by a
progress token.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from fidelio.surfaces.http.guard import Guard, validate_token
from fidelio.surfaces.http.plain import HttpReply, PlainExchanges, make_peer_lookup
from fidelio.surfaces.http.sdk import make_sdk_server
from fidelio.surfaces.mcp.protocol import Protocol

HEALTH = "/health"
MAX_BODY = 16 * 1024 * 1024
MAX_SESSIONS = 1000
MAX_LENGTH_DIGITS = 20


def create_app(
    protocols: Mapping[str, Protocol],
    *,
    bearer_token: str | None = None,
    allowed_hosts: Iterable[str] = (),
    routes: Iterable[Route] = (),
    prepare: Callable[[Server[Any]], None] | None = None,
) -> Starlette:
    """Build the application. `prepare` may extend each server of the SDK before it serves; `routes` are further pages."""
    token = validate_token(bearer_token) if bearer_token else None
    endpoints: dict[str, Endpoint] = {}
    for path, protocol in protocols.items():
        server = make_sdk_server(protocol)
        if prepare is not None:
            prepare(server)
        endpoints[path] = Endpoint(protocol, server)
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

    def __init__(self, protocol: Protocol, server: Server[Any]) -> None:
        self._plain = PlainExchanges(protocol)
        self._streams = StreamableHTTPSessionManager(server, max_request_body_size=MAX_BODY, max_sessions=MAX_SESSIONS)
        self.run = self._streams.run

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
                await self._post(scope, receive, send)

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _read_body(receive)
        if body is None:
            await _too_large_response(scope, receive, send)
        elif (reply := await self._plain.answer(Headers(scope=scope), body, make_peer_lookup(scope))) is not None:
            await _send_reply(reply, send)
        else:
            await self._streams.handle_request(scope, _replay(body, receive), send)


_too_large_response = Response("Request body too large", status_code=413)


def _declared_size(headers: Mapping[bytes, bytes]) -> int:
    """Return Content-Length, or 0 if it is missing or invalid; then the body is bounded while it is read."""
    declared = headers.get(b"content-length", b"")
    return int(declared) if declared.isdigit() and len(declared) < MAX_LENGTH_DIGITS else 0


async def _send_reply(reply: HttpReply, send: Send) -> None:
    headers = [(b"content-length", b"%d" % len(reply.body)), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


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

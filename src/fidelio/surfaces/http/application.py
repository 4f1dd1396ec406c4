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
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fidelio.settings import HttpLimits
from fidelio.surfaces.http.guard import SECURITY_HEADERS, Guard, SecureHeaders, validate_token
from fidelio.surfaces.http.limits import MAX_BODY, BodyBudget, BodyReader, BodyTooLarge, TooManyBodies
from fidelio.surfaces.http.plain import HttpReply, PlainExchanges, make_peer_lookup, read_session
from fidelio.surfaces.http.sdk import make_sdk_server
from fidelio.surfaces.mcp.protocol import Protocol

HEALTH = "/health"
MAX_LENGTH_DIGITS = 20


def create_app(
    protocols: Mapping[str, Protocol],
    *,
    bearer_token: str | None = None,
    allowed_hosts: Iterable[str] = (),
    routes: Iterable[Route] = (),
    pages: ASGIApp | None = None,
    prepare: Callable[[Server[Any]], None] | None = None,
    limits: HttpLimits | None = None,
) -> Starlette:
    """Build the application. `prepare` may extend each server of the SDK before it serves; `routes` are further
    paths for programs, `pages` is the web page."""
    token = validate_token(bearer_token) if bearer_token else None
    limits = limits or HttpLimits()
    budget = BodyBudget(limits.body_megabytes * 1024 * 1024)
    endpoints: dict[str, Endpoint] = {}
    for path, protocol in protocols.items():
        server = make_sdk_server(protocol)
        if prepare is not None:
            prepare(server)
        endpoints[path] = Endpoint(protocol, server, limits, budget)
    app = Starlette(
        # The guard dispatches to the endpoints itself; these routes serve paths with a trailing slash.
        routes=[*(Route(path, endpoint) for path, endpoint in endpoints.items()), Route(HEALTH, _check_health), *routes],
        middleware=[Middleware(SecureHeaders), Middleware(Guard, token, tuple(allowed_hosts), (HEALTH,), endpoints, pages)],
        # What handles errors is outside of all middleware.
        exception_handlers={Exception: _fail},
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


async def _fail(_: Request, error: Exception) -> Response:  # noqa: ARG001  # the signature of Starlette
    headers = {name.decode(): value.decode() for name, value in SECURITY_HEADERS}
    return JSONResponse({"error": "The request failed. The log of the server has the cause."}, status_code=500, headers=headers)


class Endpoint:
    """ASGI application for a set of tools."""

    def __init__(self, protocol: Protocol, server: Server[Any], limits: HttpLimits, budget: BodyBudget) -> None:
        self._plain = PlainExchanges(protocol)
        self._budget = budget
        self._streams = StreamableHTTPSessionManager(
            server,
            max_request_body_size=MAX_BODY,
            max_sessions=limits.sessions,
            session_idle_timeout=limits.idle_seconds,
        )
        self.run = self._streams.run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if scope["method"] != "POST":
            if b"mcp-session-id" in headers:
                await self._streams.handle_request(scope, receive, send)
            else:
                await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
        elif _declared_size(headers) > MAX_BODY:
            await _too_large_response(scope, receive, send)
        else:
            with suppress(ClientDisconnect):  # a client that has disconnected gets no reply
                await self._post(scope, receive, send, in_session=b"mcp-session-id" in headers)

    async def _post(self, scope: Scope, receive: Receive, send: Send, *, in_session: bool) -> None:
        body = BodyReader(receive, self._budget)
        try:
            content = await body.read()
            if not in_session and (reply := await self._answer_plain(scope, content)) is not None:
                await _send_reply(reply, send)
            else:
                await self._streams.handle_request(scope, _replay(content, receive), send)
        except BodyTooLarge:
            await _too_large_response(scope, receive, send)
        except TooManyBodies:
            await _too_many_response(scope, receive, send)
        finally:
            body.release()

    async def _answer_plain(self, scope: Scope, body: bytes) -> HttpReply | None:
        session = read_session(scope["query_string"])
        return await self._plain.answer(Headers(scope=scope), body, make_peer_lookup(scope), session=session)


_too_large_response = Response("Request body too large", status_code=413)
_too_many_response = JSONResponse(
    {"error": "Too many large requests are in progress. Send it again in a moment, or raise FIDELIO_HTTP_BODY_MEGABYTES."},
    status_code=503,
    headers={"Retry-After": "5"},
)


def _declared_size(headers: Mapping[bytes, bytes]) -> int:
    """Return Content-Length, or 0 if it is missing or invalid; then the body is bounded while it is read."""
    declared = headers.get(b"content-length", b"")
    return int(declared) if declared.isdigit() and len(declared) < MAX_LENGTH_DIGITS else 0


async def _send_reply(reply: HttpReply, send: Send) -> None:
    headers = [(b"content-length", b"%d" % len(reply.body)), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


def _replay(body: bytes, receive: Receive) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return pending.pop() if pending else await receive()

    return receive_again

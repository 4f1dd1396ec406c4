"""ASGI application: every set of tools at its own path, a health check, and the guard in front of all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from mcp.server.lowlevel.server import Server
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fidelio.surfaces.http.endpoint import Endpoint
from fidelio.surfaces.http.guard import Guard, checked_token
from fidelio.surfaces.http.plain import PlainCalls
from fidelio.surfaces.http.sdk import sdk_server
from fidelio.surfaces.mcp.endpoint import Identity, ServedTools
from fidelio.surfaces.mcp.states import RequestStates

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
    token = checked_token(bearer_token) if bearer_token else None
    endpoints: dict[str, Endpoint] = {}
    for path, table in tables.items():
        server = sdk_server(identity, table, states)
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

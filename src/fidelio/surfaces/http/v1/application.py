"""The routes of the API. Whatever has no route here answers 404 in the error shape."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fidelio.ids import new_id
from fidelio.surfaces.http.v1 import (
    agents,
    credentials,
    deployments,
    environments,
    files,
    memory_stores,
    session_resources,
    skills,
    threads,
    vaults,
    work,
)
from fidelio.surfaces.http.v1.endpoint import ApiRoute, ApiServices, make_endpoint
from fidelio.surfaces.http.v1.errors import NOT_FOUND, make_error
from fidelio.surfaces.http.v1.events import routes as events
from fidelio.surfaces.http.v1.sessions import routes as sessions

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
# One tuple of routes for each group of the API.
GROUPS: tuple[tuple[ApiRoute, ...], ...] = (
    agents.ROUTES,
    environments.ROUTES,
    memory_stores.ROUTES,
    vaults.ROUTES,
    credentials.ROUTES,
    files.ROUTES,
    session_resources.ROUTES,
    skills.ROUTES,
    deployments.ROUTES,
    sessions.ROUTES,
    events.ROUTES,
    threads.ROUTES,
    work.ROUTES,
)


def create_routes(services: ApiServices, groups: Iterable[tuple[ApiRoute, ...]] = GROUPS) -> list[Route]:
    """All routes below `/v1`, for `create_app`."""
    routes = [Route(route.path, make_endpoint(route, services), methods=_METHODS) for route in chain(*groups)]
    return [*routes, Route("/v1/{rest:path}", _not_offered, methods=_METHODS)]


async def _not_offered(raw: Request) -> Response:
    message = f"{raw.url.path[:200]} is not offered here. The documentation lists what is."
    return make_error(404, NOT_FOUND, message, new_id("req_", 20))

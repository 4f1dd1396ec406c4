"""The operations of the API in the order of its document, and the routes that carry them out."""

from __future__ import annotations

from functools import cache
from typing import Any

from starlette.routing import Route

from fidelio.surfaces.http.api import agents, events, requests, service, sessions, webhooks, workflows
from fidelio.surfaces.http.api.dispatch import make_routes
from fidelio.surfaces.http.api.document import build_document
from fidelio.surfaces.http.api.operations import ApiCall, ApiOperation, JsonServices, NoQuery


async def _read_document(_: ApiCall[NoQuery, None]) -> dict[str, Any]:
    return _build()


OPERATIONS: tuple[ApiOperation, ...] = (
    *requests.OPERATIONS,
    *sessions.OPERATIONS,
    *events.OPERATIONS,
    *workflows.OPERATIONS,
    *agents.OPERATIONS,
    *service.OPERATIONS,
    *webhooks.OPERATIONS,
    ApiOperation(
        method="GET",
        path="/api/openapi.json",
        name="readDocument",
        group="Document",
        summary="Read this document.",
        handler=_read_document,
        result=dict[str, Any],
    ),
)


@cache
def _build() -> dict[str, Any]:
    return build_document(OPERATIONS)


def create_json_routes(services: JsonServices) -> list[Route]:
    """All routes below `/api`, for `create_app`."""
    return make_routes(OPERATIONS, services)

"""Resources of sessions: files and memory stores that a program attaches, before or while a session lives."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fidelio.clock import format_iso
from fidelio.errors import SessionNotFound
from fidelio.ids import new_id
from fidelio.runtime.attachments import SessionResource
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.uploads.attaching import (
    MAX_RESOURCES,
    add_resource,
    check_together,
    find_resource,
    plan_file,
    remove_resource,
)
from fidelio.sandbox.model import UPLOADS
from fidelio.surfaces.http.v1 import memory_stores
from fidelio.surfaces.http.v1.endpoint import API_ACTOR, ApiRequest, ApiRoute
from fidelio.surfaces.http.v1.errors import ApiProblem, not_found
from fidelio.surfaces.http.v1.files import load_file, open_files
from fidelio.surfaces.http.v1.ids import to_wire
from fidelio.surfaces.http.v1.sessions.loading import load_session

MEMORY_STORE = "memory_store"
_STORE_FIELDS = ("memory_store_id", "access", "instructions", "name", "description", "mount_path")
NO_REPOSITORIES = (
    "github_repository is not offered: the server clones nothing. Mount a directory of this machine as the project of the "
    "session, with --mount at the command line, or upload an archive as a file."
)


class _FileParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="file"):
    file_id: str
    mount_path: str | None = None


class _MemoryStoreParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="memory_store"):
    memory_store_id: str
    access: Literal["read_write", "read_only"] | None = None
    instructions: Annotated[str, Meta(max_length=4_096)] | None = None


class _RepositoryParams(msgspec.Struct, frozen=True, tag_field="type", tag="github_repository"):
    """Refused, whatever else it has."""


ResourceParams = _FileParams | _MemoryStoreParams | _RepositoryParams


class _UpdateParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    authorization_token: str


async def plan_resources(request: ApiRequest, raw: Sequence[Any] | None) -> tuple[Mapping[str, Any], ...]:
    """The resources of a new session from its request, for `NewAgentSession.resources`. Raises 400 and 404."""
    if raw is not None and len(raw) > MAX_RESOURCES:
        raise ApiProblem(f"resources: {len(raw)} are too many. Use up to {MAX_RESOURCES}.")
    planned = list[Mapping[str, Any]]()
    for number, item in enumerate(raw or ()):
        stores = [each["content"]["mount_path"] for each in planned if each["type"] == MEMORY_STORE]
        planned.append(await _plan(request, item, f"resources.{number}", stores))
    check_together(planned)
    return tuple(planned)


def render_resources(_: ApiRequest, record: RuntimeRecord) -> list[dict[str, Any]]:
    """The resources of a session as its object has them."""
    return [render_resource(resource) for resource in record.resources]


async def _plan(request: ApiRequest, item: Any, where: str, stores: Collection[str]) -> Mapping[str, Any]:
    try:
        params = msgspec.convert(item, ResourceParams)
    except msgspec.ValidationError as error:
        raise ApiProblem(f"{where}: {error}") from error
    if isinstance(params, _FileParams):
        file = await load_file(request, params.file_id)
        (await open_files(request)).require_unexpired(file)
        return plan_file(file, params.mount_path or f"{UPLOADS}/{to_wire('file', file.id)}")
    if isinstance(params, _MemoryStoreParams):
        content = await memory_stores.plan_resource(request, item, stores)
        return {"id": new_id("sesrsc_"), "type": MEMORY_STORE, "content": content}
    raise ApiProblem(f"{where}: {NO_REPOSITORIES}")


def render_resource(resource: SessionResource) -> dict[str, Any]:
    content = resource.content
    if resource.type == MEMORY_STORE:
        # The SDK gives it neither an id nor times.
        return {"type": MEMORY_STORE, **{name: content.get(name) for name in _STORE_FIELDS}}
    return {
        "id": resource.id,
        "type": "file",
        "file_id": to_wire("file", content["file"]),
        "mount_path": content["mount_path"],
        "created_at": format_iso(resource.created_at),
        "updated_at": format_iso(resource.updated_at),
    }


def render_configuration(planned: Mapping[str, Any]) -> dict[str, Any]:
    """A resource of a deployment, which has no id and no times."""
    content = planned["content"]
    if planned["type"] == MEMORY_STORE:
        return {"type": MEMORY_STORE, **{name: content.get(name) for name in _STORE_FIELDS[:3]}}
    return {"type": "file", "file_id": to_wire("file", content["file"]), "mount_path": content["mount_path"]}


async def _add(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    session = await load_session(request, request.path("session_id"))
    body = await request.body(dict[str, Any])
    if body.get("type") == MEMORY_STORE:
        raise ApiProblem("type: a memory store is attached when a session begins. Name it in resources then.")
    planned = await _plan(request, body, "body", ())
    added = await add_resource((await request.services.runtime()).context, session.id, planned, by=API_ACTOR)
    return render_resource(added)


async def _list(request: ApiRequest) -> dict[str, Any]:
    session = await load_session(request, request.path("session_id"))
    resources, list_ = session.record.resources, f"resources:{session.id}"
    limit = request.limit(default=MAX_RESOURCES, most=1_000)
    start = int(request.cursor(list_) or 0)
    items = [render_resource(resource) for resource in resources[start : start + limit]]
    return request.page(list_, items, start + limit if start + limit < len(resources) else None)


async def _retrieve(request: ApiRequest) -> dict[str, Any]:
    return render_resource(_find(request, (await load_session(request, request.path("session_id"))).record))


async def _update(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    resource = _find(request, (await load_session(request, request.path("session_id"))).record)
    await request.body(_UpdateParams)
    raise ApiProblem(f"authorization_token: a resource of type {resource.type} has no token.")


async def _delete(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    session = await load_session(request, request.path("session_id"))
    resource = _find(request, session.record)
    await remove_resource((await request.services.runtime()).context, session.id, resource.id, by=API_ACTOR)
    return {"id": resource.id, "type": "session_resource_deleted"}


def _find(request: ApiRequest, record: RuntimeRecord) -> SessionResource:
    id_ = request.path("resource_id")
    try:
        return find_resource(record, id_)
    except SessionNotFound:
        raise not_found("Resource", id_) from None


ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute("/v1/sessions/{session_id}/resources", {"POST": _add, "GET": _list}),
    ApiRoute("/v1/sessions/{session_id}/resources/{resource_id}", {"GET": _retrieve, "POST": _update, "DELETE": _delete}),
)

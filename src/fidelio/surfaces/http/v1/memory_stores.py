"""`/v1/memory_stores`: stores, their memories, and the versions of these."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, ValidationError, convert, field
from msgspec.structs import replace

from fidelio.clock import format_iso
from fidelio.ids import SESSION_PREFIX
from fidelio.runtime.memory_stores import rules
from fidelio.runtime.memory_stores.record import OPERATIONS, Memory
from fidelio.runtime.memory_stores.rules import MemoryPrefix
from fidelio.runtime.memory_stores.service import (
    MemoryStore,
    MemoryStores,
    MemoryVersion,
    StoredStore,
    make_store_id,
    make_version_id,
    read_store_id,
    read_version_id,
)
from fidelio.surfaces.http.v1.endpoint import API_ACTOR, ApiRequest, ApiRoute
from fidelio.surfaces.http.v1.errors import ApiProblem
from fidelio.surfaces.http.v1.ids import to_wire
from fidelio.surfaces.http.v1.values import Body, Name, keep, patch_metadata, render_time

# A server has one key; the id says that a version was written with it.
API_KEY = "apikey_owner"
# With contents a page is smaller.
MAX_FULL = 20
# Attached to a session.
MAX_STORES = 8
_Description = Annotated[str, Meta(max_length=1_024)]


class StoreCreation(Body, frozen=True):
    """The body that creates a store."""

    name: Name
    description: _Description = ""
    metadata: dict[str, str] = field(default_factory=dict)


class StoreChange(Body, frozen=True):
    """The body that changes a store."""

    name: Name | UnsetType | None = UNSET
    description: _Description | UnsetType | None = UNSET
    metadata: dict[str, str | None] | UnsetType | None = UNSET


class MemoryCreation(Body, frozen=True):
    """The body that creates a memory."""

    path: str
    content: str


class Precondition(Body, frozen=True):
    """The content that the caller has seen, by its digest."""

    type: Literal["content_sha256"]
    content_sha256: str


class MemoryChange(Body, frozen=True):
    """The body that changes a memory. Null keeps the value, as if it were omitted: a memory has both."""

    path: str | None = None
    content: str | None = None
    precondition: Precondition | None = None


class MemoryStoreAttachment(Body, frozen=True):
    """What a program says when it attaches a store to a session."""

    type: Literal["memory_store"]
    memory_store_id: str
    access: Literal["read_write", "read_only"] | None = None
    instructions: Annotated[str, Meta(max_length=4_096)] | None = None


async def plan_resource(request: ApiRequest, params: Mapping[str, Any], taken: Collection[str] = ()) -> dict[str, Any]:
    """The content of a session resource: the store as it is now, and where it is mounted. Raises 400 and 404.

    `taken`: the mount paths of the other stores of the session.
    """
    try:
        wanted = convert(dict(params), MemoryStoreAttachment)
    except ValidationError as error:
        raise ApiProblem(f"resources: {error}") from error
    if len(taken) >= MAX_STORES:
        raise ApiProblem(f"resources: a session has at most {MAX_STORES} memory stores.")
    found = await (await _stores(request)).objects.load(read_store_id(wanted.memory_store_id))
    if found.archived_at:
        raise ApiProblem(f"memory_store_id: the store {wanted.memory_store_id} is archived. Attach another one.")
    return {
        "memory_store_id": make_store_id(found.id),
        "access": wanted.access or "read_write",
        "instructions": wanted.instructions or "",
        "name": found.content.name,
        "description": found.content.description,
        "mount_path": rules.choose_mount_path(found.content.name, taken),
    }


async def create_store(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    body = await request.body(StoreCreation)
    content = MemoryStore(_check_name(body.name), body.description, patch_metadata({}, body.metadata))
    stores = await _stores(request)
    return _render_store(await stores.objects.create(content, by=API_ACTOR, key=request.idempotency_key))


async def list_stores(request: ApiRequest) -> dict[str, Any]:
    with_archived = request.flag("include_archived")
    created = request.times("created_at")
    list_ = f"memory_stores {with_archived} {created}"

    def keep(found: StoredStore) -> bool:
        return (with_archived or not found.archived_at) and found.created_at in created

    objects = (await _stores(request)).objects
    page = await objects.select(keep, cursor=request.cursor(list_), limit=request.limit())
    return request.page(list_, map(_render_store, page.items), page.next)


async def retrieve_store(request: ApiRequest) -> dict[str, Any]:
    return _render_store(await (await _stores(request)).objects.load(_store_id(request)))


async def update_store(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    body = await request.body(StoreChange)

    def revise(before: MemoryStore) -> MemoryStore:
        return replace(
            before,
            name=_check_name(keep(body.name, before.name, before.name)),
            description=keep(body.description, before.description, ""),
            metadata=patch_metadata(before.metadata, body.metadata),
        )

    return _render_store(await (await _stores(request)).update(_store_id(request), revise, by=API_ACTOR))


async def archive_store(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    return _render_store(await (await _stores(request)).objects.archive(_store_id(request), by=API_ACTOR))


async def delete_store(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    store = _store_id(request)
    await (await _stores(request)).objects.delete(store, by=API_ACTOR)
    return {"id": make_store_id(store), "type": "memory_store_deleted"}


async def create_memory(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    body, view = await request.body(MemoryCreation), _view(request, "basic")
    stores, store = await _stores(request), _store_id(request)
    memory = await stores.add(store, body.path, rules.encode_content(body.content), by=API_ACTOR, key=request.idempotency_key)
    return await _render_memory(stores, store, memory, view)


async def list_memories(request: ApiRequest) -> dict[str, Any]:
    stores, store, view = await _stores(request), _store_id(request), _view(request, "basic")
    prefix, depth = request.query("path_prefix"), _depth(request)
    rules.check_prefix(prefix)
    list_ = f"memories {store} {prefix} {depth} {view}"
    after, limit = request.cursor(list_) or "", _limit(request, view)
    await stores.objects.load(store)
    memories = (await stores.memories(store)).entries.values()
    rest = [item for item in rules.list_memories(memories, prefix=prefix, depth=depth) if item.path > after]
    shown = rest[:limit]
    rendered = [await _render_item(stores, store, item, view) for item in shown]
    return request.page(list_, rendered, shown[-1].path if len(rest) > limit else None)


async def retrieve_memory(request: ApiRequest) -> dict[str, Any]:
    stores, store, view = await _stores(request), _store_id(request), _view(request, "full")
    return await _render_memory(stores, store, await stores.load(store, request.path("memory")), view)


async def update_memory(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    body, view = await request.body(MemoryChange), _view(request, "basic")
    stores, store, expected = await _stores(request), _store_id(request), None
    if body.precondition is not None:
        rules.check_digest("precondition.content_sha256", expected := body.precondition.content_sha256)
    content = None if body.content is None else rules.encode_content(body.content)
    memory = request.path("memory")
    changed = await stores.change(store, memory, path=body.path, content=content, expected=expected, by=API_ACTOR)
    return await _render_memory(stores, store, changed, view)


async def delete_memory(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    memory = request.path("memory")
    expected = request.query("expected_content_sha256") or None
    if expected is not None:
        rules.check_digest("expected_content_sha256", expected)
    await (await _stores(request)).remove(_store_id(request), memory, expected=expected, by=API_ACTOR)
    return {"id": memory, "type": "memory_deleted"}


async def list_versions(request: ApiRequest) -> dict[str, Any]:
    stores, store, view = await _stores(request), _store_id(request), _view(request, "basic")
    await stores.objects.load(store)
    names = ("memory_id", "operation", "session_id", "api_key_id", "service_account_id", "created_at[gte]", "created_at[lte]")
    list_ = " ".join(("memory_versions", store, view, *(f"{request.query(name)!r}" for name in names)))
    cursor = request.cursor(list_)
    before = None if cursor is None else int(cursor)
    page = await stores.versions(store, _version_filter(request), before=before, limit=_limit(request, view))
    rendered = [await _render_version(stores, store, version, view) for version in page.items]
    return request.page(list_, rendered, page.next)


async def retrieve_version(request: ApiRequest) -> dict[str, Any]:
    stores, store, view = await _stores(request), _store_id(request), _view(request, "full")
    version = await stores.version(store, read_version_id(store, request.path("version")))
    return await _render_version(stores, store, version, view)


async def redact_version(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    stores, store = await _stores(request), _store_id(request)
    version = await stores.redact(store, read_version_id(store, request.path("version")), by=API_ACTOR)
    return await _render_version(stores, store, version, "basic")


def _version_filter(request: ApiRequest) -> Callable[[MemoryVersion], bool]:
    memory, operation = request.query("memory_id"), request.query("operation")
    if operation and operation not in OPERATIONS:
        raise ApiProblem(f"operation: {operation!r:.80} is none of {', '.join(OPERATIONS)}.")
    created = request.times("created_at")
    wanted = {key: request.query(key) for key in ("session_id", "api_key_id", "service_account_id")}
    authors = {(key, value) for key, value in wanted.items() if value}

    def keep(version: MemoryVersion) -> bool:
        is_named = (not memory or version.memory_id == memory) and (not operation or version.operation == operation)
        return is_named and version.created_at in created and authors <= {*_actor(version.actor).items()}

    return keep


async def _stores(request: ApiRequest) -> MemoryStores:
    services = request.services
    return MemoryStores((await services.runtime()).context, services.project)


def _store_id(request: ApiRequest) -> str:
    return read_store_id(request.path("store"))


def _check_name(name: str) -> str:
    if any(unicodedata.category(character) == "Cc" for character in name):
        raise ApiProblem("name: it has control characters.")
    return name


def _view(request: ApiRequest, default: str) -> str:
    view = request.query("view", default)
    if view not in ("basic", "full"):
        raise ApiProblem(f"view: {view!r:.80} is neither basic nor full.")
    return view


def _limit(request: ApiRequest, view: str) -> int:
    return min(request.limit(), MAX_FULL) if view == "full" else request.limit()


def _depth(request: ApiRequest) -> int:
    text = request.query("depth") or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 3 and int(text) <= rules.MAX_SEGMENTS):
        raise ApiProblem(f"depth: {text!r:.80} is not a number from 0 to {rules.MAX_SEGMENTS}.")
    return int(text)


def _render_store(found: StoredStore) -> dict[str, Any]:
    content = found.content
    return {
        "id": make_store_id(found.id),
        "type": "memory_store",
        "name": content.name,
        "description": content.description,
        "metadata": content.metadata,
        "created_at": format_iso(found.created_at),
        "updated_at": format_iso(max(found.created_at, content.changed_at, found.archived_at)),
        "archived_at": render_time(found.archived_at),
    }


async def _render_item(stores: MemoryStores, store: str, item: Memory | MemoryPrefix, view: str) -> dict[str, Any]:
    if isinstance(item, MemoryPrefix):
        return {"type": "memory_prefix", "path": item.path}
    return await _render_memory(stores, store, item, view)


async def _render_memory(stores: MemoryStores, store: str, memory: Memory, view: str) -> dict[str, Any]:
    return {
        "id": memory.id,
        "type": "memory",
        "memory_store_id": make_store_id(store),
        "memory_version_id": make_version_id(store, memory.version),
        "path": memory.path,
        "content": await stores.content(memory.sha256) if view == "full" else None,
        "content_sha256": memory.sha256,
        "content_size_bytes": memory.size,
        "created_at": format_iso(memory.created_at),
        "updated_at": format_iso(memory.updated_at),
    }


async def _render_version(stores: MemoryStores, store: str, version: MemoryVersion, view: str) -> dict[str, Any]:
    is_shown = view == "full" and version.sha256 is not None
    return {
        "id": make_version_id(store, version.number),
        "type": "memory_version",
        "memory_id": version.memory_id,
        "memory_store_id": make_store_id(store),
        "operation": version.operation,
        "path": version.path,
        "content": await stores.content(version.sha256 or "") if is_shown else None,
        "content_sha256": version.sha256,
        "content_size_bytes": version.size,
        "created_at": format_iso(version.created_at),
        "created_by": _actor(version.actor),
        "redacted_at": render_time(version.redacted_at),
        "redacted_by": _actor(version.redacted_by) if version.redacted_at else None,
    }


def _actor(actor: str) -> dict[str, str]:
    if actor.startswith(SESSION_PREFIX):
        return {"type": "session_actor", "session_id": to_wire("sesn", actor)}
    return {"type": "api_actor", "api_key_id": API_KEY if actor == API_ACTOR else f"apikey_{actor}"}


_STORE, _MEMORY, _VERSION = (
    "/v1/memory_stores/{store}",
    "/v1/memory_stores/{store}/memories/{memory}",
    "/v1/memory_stores/{store}/memory_versions/{version}",
)
ROUTES = (
    ApiRoute("/v1/memory_stores", {"GET": list_stores, "POST": create_store}),
    ApiRoute(_STORE, {"GET": retrieve_store, "POST": update_store, "DELETE": delete_store}),
    ApiRoute(f"{_STORE}/archive", {"POST": archive_store}),
    ApiRoute(f"{_STORE}/memories", {"GET": list_memories, "POST": create_memory}),
    ApiRoute(_MEMORY, {"GET": retrieve_memory, "POST": update_memory, "DELETE": delete_memory}),
    ApiRoute(f"{_STORE}/memory_versions", {"GET": list_versions}),
    ApiRoute(_VERSION, {"GET": retrieve_version}),
    ApiRoute(f"{_VERSION}/redact", {"POST": redact_version}),
)

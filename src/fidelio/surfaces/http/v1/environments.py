"""The group `/v1/environments`. Also which environment a session names, and the id of the environment that a session has.

An environment that a program creates is an object of its project. Each of its contents defines a version of an environment of
our sandboxes whose name is the id on the wire, so that a session keeps the version it began with. The built-in environment and
those of files and commands are there as `env_NAME`, to be read and used.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from fidelio.clock import format_iso
from fidelio.errors import EnvironmentProblem, SessionNotFound
from fidelio.ids import ALPHABET
from fidelio.runtime.environments.programs import (
    HostedEnvironment,
    PackageList,
    Packages,
    build_environment,
    find_apt_problem,
)
from fidelio.runtime.environments.service import OBJECT, Environments, NamedEnvironment
from fidelio.runtime.environments.versions import Environment
from fidelio.runtime.objects import Objects, StoredObject
from fidelio.surfaces.http.v1.endpoint import API_ACTOR, ApiRequest, ApiRoute
from fidelio.surfaces.http.v1.errors import ApiProblem, not_found
from fidelio.surfaces.http.v1.ids import to_session, to_wire
from fidelio.surfaces.http.v1.values import keep, patch_metadata

PREFIX = "env"
# What is installed on this machine; sandboxes see it below /usr.
APT_STATUS = Path("/var/lib/dpkg/status")
_OBJECT_NAME = re.compile(rf"env_[{ALPHABET}]{{12}}")
Stored: TypeAlias = StoredObject[HostedEnvironment]


class Unrestricted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="unrestricted"):
    """Every public host."""


class Limited(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="limited"):
    """Some hosts."""

    allowed_hosts: Annotated[tuple[str, ...], Meta(max_length=80)] | UnsetType | None = UNSET
    allow_mcp_servers: bool | UnsetType | None = UNSET
    allow_package_managers: bool | UnsetType | None = UNSET


class PackagesParam(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Packages by package manager."""

    apt: PackageList | UnsetType | None = UNSET
    cargo: PackageList | UnsetType | None = UNSET
    gem: PackageList | UnsetType | None = UNSET
    go: PackageList | UnsetType | None = UNSET
    npm: PackageList | UnsetType | None = UNSET
    pip: PackageList | UnsetType | None = UNSET
    type: Literal["packages"] | None = None


class Cloud(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="cloud"):
    """A sandbox of this server."""

    networking: Unrestricted | Limited | UnsetType | None = UNSET
    packages: PackagesParam | UnsetType | None = UNSET


class SelfHosted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="self_hosted"):
    """A worker of the user's."""


Config: TypeAlias = Cloud | SelfHosted
Name = Annotated[str, Meta(min_length=1, max_length=256)]
Description = Annotated[str, Meta(max_length=2_048)]


class UpdateEnvironment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of an update."""

    name: Name | UnsetType | None = UNSET
    description: Description | UnsetType | None = UNSET
    config: Config | UnsetType | None = UNSET
    metadata: dict[str, str | None] | UnsetType | None = UNSET
    scope: Literal["organization", "account"] | None = None


class CreateEnvironment(UpdateEnvironment, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of a creation."""

    name: Name


async def choose_environment(request: ApiRequest, id_: str) -> str:
    """The internal name of an environment that a body names. Raises 404 if it is unknown, 400 if it is archived."""
    if (stored := await _find_object(request, id_)) is not None:
        if stored.archived_at:
            raise ApiProblem(f"environment_id: the environment {id_} is archived. Use another one.")
        await _define(request, stored)
        return to_wire(PREFIX, stored.id)
    return (await _find_named(request, id_)).name


async def find_environment(request: ApiRequest, id_: str) -> str:
    """The internal name of an environment that a path names, archived or not. Raises 404 if it is unknown."""
    stored = await _find_object(request, id_)
    return (await _find_named(request, id_)).name if stored is None else to_wire(PREFIX, stored.id)


def environment_id(name: str) -> str:
    """The id on the wire of the environment of a session."""
    return name if _OBJECT_NAME.fullmatch(name) else f"{PREFIX}_{name}"


async def _create(request: ApiRequest) -> Any:
    await request.require_key_holder()
    body = await request.body(CreateEnvironment)
    content = _apply(HostedEnvironment(name=body.name), body)
    await _check(content)
    stored = await (await _objects(request)).create(content, by=API_ACTOR, key=request.idempotency_key)
    await _define(request, stored)
    return _render(stored)


async def _retrieve(request: ApiRequest) -> Any:
    id_ = request.path("environment_id")
    stored = await _find_object(request, id_)
    return _render_named(await _find_named(request, id_)) if stored is None else _render(stored)


async def _update(request: ApiRequest) -> Any:
    await request.require_key_holder()
    body = await request.body(UpdateEnvironment)
    stored = await _require_object(request)
    await _check(_apply(stored.content, body))
    updated = await (await _objects(request)).update(stored.id, lambda found: _apply(found.content, body), by=API_ACTOR)
    await _define(request, updated)
    return _render(updated)


async def _archive(request: ApiRequest) -> Any:
    await request.require_key_holder()
    stored = await _require_object(request)
    return _render(await (await _objects(request)).archive(stored.id, by=API_ACTOR))


async def _delete(request: ApiRequest) -> Any:
    await request.require_key_holder()
    stored = await _require_object(request)
    id_ = to_wire(PREFIX, stored.id)
    if session := await (await _environments(request)).find_user(request.project, id_):
        raise ApiProblem(
            f"The environment {id_} is used by the session {to_wire('sesn', session)}. Archive or delete its sessions first,"
            " or archive the environment."
        )
    await (await _objects(request)).delete(stored.id, by=API_ACTOR)
    return {"id": id_, "type": "environment_deleted"}


async def _list(request: ApiRequest) -> Any:
    limit, archived = request.limit(), request.flag("include_archived")
    list_ = f"environments:{archived}"
    position = request.cursor(list_) or {}
    if "n" in position:
        return await _add_named(request, list_, [], position["n"], limit)
    items, cursor = list[dict[str, Any]](), position.get("c")
    while len(items) < limit:
        page = await (await _objects(request)).list(cursor=cursor, limit=limit - len(items))
        items += [_render(stored) for stored in page.items if archived or not stored.archived_at]
        if (cursor := page.next) is None:
            break
    if cursor is not None:
        return request.page(list_, items, {"c": cursor})
    return await _add_named(request, list_, items, 0, limit - len(items))


async def _add_named(request: ApiRequest, list_: str, items: list[dict[str, Any]], first: int, room: int) -> dict[str, Any]:
    """The end of the list: what is there by name."""
    named = await (await _environments(request)).list_named(request.project)
    shown = named[first : first + room]
    position = {"n": first + len(shown)} if first + len(shown) < len(named) else None
    return request.page(list_, [*items, *map(_render_named, shown)], position)


async def _objects(request: ApiRequest) -> Objects[HostedEnvironment]:
    context = (await request.services.runtime()).context
    return Objects(context, request.project, "environment", HostedEnvironment)


async def _environments(request: ApiRequest) -> Environments:
    return (await request.services.runtime()).environments


async def _find_object(request: ApiRequest, id_: str) -> Stored | None:
    if not _OBJECT_NAME.fullmatch(id_):
        return None
    try:
        return await (await _objects(request)).load(to_session(PREFIX, id_))
    except SessionNotFound:
        return None


async def _find_named(request: ApiRequest, id_: str) -> NamedEnvironment:
    name = id_.removeprefix(f"{PREFIX}_")
    found = await (await _environments(request)).find_named(request.project, name) if name != id_ else None
    if found is None:
        raise not_found("Environment", id_)
    return found


async def _require_object(request: ApiRequest) -> Stored:
    """The environment of the path, which a program must have created."""
    id_ = request.path("environment_id")
    if (stored := await _find_object(request, id_)) is not None:
        return stored
    found = await _find_named(request, id_)
    raise ApiProblem(f"The environment {found.name} is built in, or defined by a file or a command. Change it there.")


async def _define(request: ApiRequest, stored: Stored) -> None:
    """Make the content the newest version of our environment of that name."""
    name = to_wire(PREFIX, stored.id)
    await (await _environments(request)).define(name, build_environment(stored.content), by=OBJECT)


async def _check(content: HostedEnvironment) -> None:
    """Refuse what cannot be had on this machine."""
    build_environment(content)
    if content.packages.apt:
        status = await asyncio.to_thread(_read_status)
        if problem := find_apt_problem(content.packages.apt, status):
            raise EnvironmentProblem(f"config.packages: {problem}")


def _read_status() -> str:
    try:
        return APT_STATUS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _apply(former: HostedEnvironment, body: UpdateEnvironment) -> HostedEnvironment:
    """The content after an update."""
    if body.scope == "account":
        raise ApiProblem("scope: `account` is not offered here. Use `organization`, or leave it out.")
    changed = replace(
        former,
        name=keep(body.name, former.name, former.name),
        description=keep(body.description, former.description, None),
        metadata=patch_metadata(former.metadata, body.metadata, clears_empty=True),
    )
    if isinstance(body.config, UnsetType) or (body.config is None and former.kind == "cloud"):
        return changed
    if isinstance(body.config, SelfHosted):
        return HostedEnvironment(
            name=changed.name, description=changed.description, metadata=changed.metadata, kind="self_hosted"
        )
    return _apply_cloud(changed, body.config or Cloud())


def _apply_cloud(former: HostedEnvironment, config: Cloud) -> HostedEnvironment:
    packages = former.packages
    if config.packages is None:
        packages = Packages()
    elif not isinstance(config.packages, UnsetType):
        packages = _apply_packages(former.packages, config.packages)
    return _apply_network(replace(former, kind="cloud", packages=packages), config.networking)


def _apply_packages(former: Packages, param: PackagesParam) -> Packages:
    names = Packages.__struct_fields__
    return Packages(**{name: keep(getattr(param, name), getattr(former, name), ()) for name in names})


def _apply_network(former: HostedEnvironment, param: Unrestricted | Limited | UnsetType | None) -> HostedEnvironment:
    if isinstance(param, UnsetType):
        return former
    if not isinstance(param, Limited):
        return replace(former, network="unrestricted", allowed_hosts=(), allow_mcp_servers=False, allow_package_managers=False)
    return replace(
        former,
        network="limited",
        allowed_hosts=keep(param.allowed_hosts, former.allowed_hosts, ()),
        allow_mcp_servers=keep(param.allow_mcp_servers, former.allow_mcp_servers, False),
        allow_package_managers=keep(param.allow_package_managers, former.allow_package_managers, False),
    )


def _render(stored: Stored) -> dict[str, Any]:
    content = stored.content
    return {
        "id": to_wire(PREFIX, stored.id),
        "type": "environment",
        "name": content.name,
        "description": content.description,
        "config": _render_config(content),
        "metadata": content.metadata,
        "scope": "organization",
        "created_at": format_iso(stored.created_at),
        "updated_at": format_iso(stored.updated_at),
        "archived_at": format_iso(stored.archived_at) if stored.archived_at else None,
    }


def _render_config(content: HostedEnvironment) -> dict[str, Any]:
    if content.kind == "self_hosted":
        return {"type": "self_hosted"}
    packages = {name: list(getattr(content.packages, name)) for name in Packages.__struct_fields__}
    return {"type": "cloud", "networking": _render_network(content), "packages": {"type": "packages", **packages}}


def _render_network(content: HostedEnvironment) -> dict[str, Any]:
    if content.network == "unrestricted":
        return {"type": "unrestricted"}
    return {
        "type": "limited",
        "allowed_hosts": list(content.allowed_hosts),
        "allow_mcp_servers": content.allow_mcp_servers,
        "allow_package_managers": content.allow_package_managers,
    }


def _render_named(named: NamedEnvironment) -> dict[str, Any]:
    time = format_iso(named.time)
    return {
        "id": f"{PREFIX}_{named.name}",
        "type": "environment",
        "name": named.name,
        "description": named.environment.description or None,
        "config": _render_config(_to_hosted(named.name, named.environment)),
        "metadata": {},
        "scope": "organization",
        "created_at": time,
        "updated_at": time,
        "archived_at": None,
    }


def _to_hosted(name: str, environment: Environment) -> HostedEnvironment:
    """What the wire can say of an environment of a file. Its programs and its setup are not on the wire."""
    if environment.self_hosted:
        return HostedEnvironment(name=name, kind="self_hosted")
    if environment.network in ("unrestricted", "host"):
        return HostedEnvironment(name=name)
    return HostedEnvironment(
        name=name, network="limited", allowed_hosts=environment.hosts, allow_mcp_servers=environment.mcp_servers
    )


ROUTES = (
    ApiRoute("/v1/environments", {"GET": _list, "POST": _create}),
    ApiRoute("/v1/environments/{environment_id}", {"GET": _retrieve, "POST": _update, "DELETE": _delete}),
    ApiRoute("/v1/environments/{environment_id}/archive", {"POST": _archive}),
)

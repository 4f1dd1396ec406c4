"""`/v1/vaults`: the vaults of a project, and which of them a session is attached to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET, UnsetType, field
from msgspec.structs import replace

from fidelio.clock import format_iso
from fidelio.errors import SessionNotFound
from fidelio.runtime.credentials.model import (
    VaultContent,
)
from fidelio.runtime.credentials.service import ProjectVaults, StoredVault
from fidelio.surfaces.http.v1.endpoint import API_ACTOR, ApiRequest, ApiRoute
from fidelio.surfaces.http.v1.errors import ApiProblem, not_found
from fidelio.surfaces.http.v1.ids import to_session, to_wire
from fidelio.surfaces.http.v1.values import Body, Name, patch_metadata, render_time

PREFIX = "vlt"


class VaultCreation(Body, frozen=True):
    """The body that creates a vault."""

    display_name: Name
    metadata: dict[str, str] = field(default_factory=dict)


class VaultChange(Body, frozen=True):
    """The body that changes a vault."""

    display_name: Name | None = None
    metadata: dict[str, str | None] | UnsetType | None = UNSET


async def check_vaults(request: ApiRequest, ids: Iterable[str]) -> tuple[str, ...]:
    """The vaults that a session is attached to, in order. Raises 404 for an unknown vault and 400 for an archived vault."""
    vaults, found = await open_vaults(request), list[str]()
    for id_ in ids:
        try:
            stored = await vaults.objects.load(to_session(PREFIX, id_))
        except SessionNotFound as error:
            raise not_found("Vault", id_) from error
        if stored.archived_at:
            raise ApiProblem(f"vault_ids: the vault {id_} is archived. Use another one.")
        found.append(stored.id)
    return tuple(dict.fromkeys(found))


async def create_vault(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    body = await request.body(VaultCreation)
    content, vaults = VaultContent(body.display_name, patch_metadata({}, body.metadata)), await open_vaults(request)
    return _render_vault(await vaults.objects.create(content, by=API_ACTOR, key=request.idempotency_key))


async def list_vaults(request: ApiRequest) -> dict[str, Any]:
    with_archived = request.flag("include_archived")
    list_ = f"vaults {with_archived}"
    page = await (await open_vaults(request)).objects.select(
        lambda found: with_archived or not found.archived_at, cursor=request.cursor(list_), limit=request.limit()
    )
    return request.page(list_, map(_render_vault, page.items), page.next)


async def retrieve_vault(request: ApiRequest) -> dict[str, Any]:
    return _render_vault(await (await open_vaults(request)).objects.load(read_vault_id(request)))


async def update_vault(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    body = await request.body(VaultChange)
    vaults, now = await open_vaults(request), await read_now(request)

    def change(found: StoredVault) -> VaultContent:
        before = found.content
        name, metadata = body.display_name or before.display_name, patch_metadata(before.metadata, body.metadata)
        after = replace(before, display_name=name, metadata=metadata)
        return before if after == before else replace(after, changed_at=now)

    return _render_vault(await vaults.objects.update(read_vault_id(request), change, by=API_ACTOR))


async def archive_vault(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    return _render_vault(await (await open_vaults(request)).archive(read_vault_id(request), by=API_ACTOR))


async def delete_vault(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    vault = read_vault_id(request)
    await (await open_vaults(request)).objects.delete(vault, by=API_ACTOR)
    return {"id": to_wire(PREFIX, vault), "type": "vault_deleted"}


async def open_vaults(request: ApiRequest) -> ProjectVaults:
    services = request.services
    return ProjectVaults((await services.runtime()).context, services.project)


async def read_now(request: ApiRequest) -> int:
    return (await request.services.runtime()).context.clock()


def read_vault_id(request: ApiRequest) -> str:
    return to_session(PREFIX, request.path("vault"))


def _render_vault(found: StoredVault) -> dict[str, Any]:
    content = found.content
    return {
        "id": to_wire(PREFIX, found.id),
        "type": "vault",
        "display_name": content.display_name,
        "metadata": content.metadata,
        "created_at": format_iso(found.created_at),
        "updated_at": format_iso(max(found.created_at, content.changed_at, found.archived_at)),
        "archived_at": render_time(found.archived_at),
    }


VAULT = "/v1/vaults/{vault}"
ROUTES = (
    ApiRoute("/v1/vaults", {"GET": list_vaults, "POST": create_vault}),
    ApiRoute(VAULT, {"GET": retrieve_vault, "POST": update_vault, "DELETE": delete_vault}),
    ApiRoute(f"{VAULT}/archive", {"POST": archive_vault}),
)

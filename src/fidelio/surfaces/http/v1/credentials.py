"""`/v1/vaults/{vault}/credentials`: credentials for MCP servers. What is secret goes in and never comes out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, NoReturn, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field
from msgspec.structs import replace

from fidelio.clock import format_iso
from fidelio.runtime.credentials.exchange import (
    ProbeResult,
    RefreshResult,
    ShownReply,
    mask_secrets,
    probe,
    refresh,
    store_tokens,
)
from fidelio.runtime.credentials.model import Credential, RefreshSettings, Secrets, check_secret, check_url
from fidelio.surfaces.http.v1.endpoint import API_ACTOR, ApiRequest, ApiRoute
from fidelio.surfaces.http.v1.errors import ApiProblem
from fidelio.surfaces.http.v1.ids import to_wire
from fidelio.surfaces.http.v1.values import Body, Name, keep, patch_metadata, render_time
from fidelio.surfaces.http.v1.vaults import PREFIX, VAULT, open_vaults, read_now, read_vault_id

_Scope: TypeAlias = Annotated[str, Meta(max_length=2_048)]
_ClientId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=2_048)]
_NO_VARIABLES = (
    "auth.type: environment_variable credentials are not offered here. Their promise is that a secret is put into the requests "
    "of the sandbox on their way out, and the proxy of the sandbox does not open TLS connections. Use an MCP server with "
    "static_bearer or mcp_oauth."
)


class NoEndpointAuth(Body, frozen=True, tag_field="type", tag="none"):
    """The token endpoint wants no client secret."""


class BasicEndpointAuth(Body, frozen=True, tag_field="type", tag="client_secret_basic"):
    """The client secret is sent with HTTP Basic authentication."""

    client_secret: str


class PostEndpointAuth(Body, frozen=True, tag_field="type", tag="client_secret_post"):
    """The client secret is sent in the body."""

    client_secret: str


class RefreshCreation(Body, frozen=True):
    """How a new access token is obtained."""

    client_id: _ClientId
    refresh_token: str
    token_endpoint: str
    token_endpoint_auth: NoEndpointAuth | BasicEndpointAuth | PostEndpointAuth
    resource: _Scope | None = None
    scope: _Scope | None = None


class BearerCreation(Body, frozen=True, tag_field="type", tag="static_bearer"):
    """A token that does not change."""

    token: str
    mcp_server_url: str


class OAuthCreation(Body, frozen=True, tag_field="type", tag="mcp_oauth"):
    """An access token that may expire."""

    access_token: str
    mcp_server_url: str
    expires_at: datetime | None = None
    refresh: RefreshCreation | None = None


class VariableCreation(Body, frozen=True, tag_field="type", tag="environment_variable"):
    """A variable of the sandbox; refused."""

    secret_name: Any = None
    secret_value: Any = None
    networking: Any = None
    injection_location: Any = None


class CredentialCreation(Body, frozen=True):
    """The body that creates a credential."""

    auth: BearerCreation | OAuthCreation | VariableCreation
    display_name: Name | None = None
    metadata: dict[str, str] = field(default_factory=dict)


class BasicAuthChange(Body, frozen=True, tag_field="type", tag="client_secret_basic"):
    """Another client secret."""

    client_secret: str | None = None


class PostAuthChange(Body, frozen=True, tag_field="type", tag="client_secret_post"):
    """Another client secret."""

    client_secret: str | None = None


class RefreshChange(Body, frozen=True):
    """What changes of how a new access token is obtained."""

    refresh_token: str | None = None
    scope: _Scope | UnsetType | None = UNSET
    token_endpoint_auth: BasicAuthChange | PostAuthChange | None = None


class BearerChange(Body, frozen=True, tag_field="type", tag="static_bearer"):
    """Another token."""

    token: str | None = None


class OAuthChange(Body, frozen=True, tag_field="type", tag="mcp_oauth"):
    """Another access token, another expiry, other refresh settings."""

    access_token: str | None = None
    expires_at: datetime | UnsetType | None = UNSET
    refresh: RefreshChange | None = None


class VariableChange(VariableCreation, frozen=True, tag_field="type", tag="environment_variable"):
    """A variable of the sandbox; refused."""


class CredentialChange(Body, frozen=True):
    """The body that changes a credential."""

    auth: BearerChange | OAuthChange | VariableChange | None = None
    display_name: Name | UnsetType | None = UNSET
    metadata: dict[str, str | None] | UnsetType | None = UNSET


async def create_credential(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    body = await request.body(CredentialCreation)
    draft, secrets = _read_creation(body, await read_now(request))
    vault = read_vault_id(request)
    return _render_credential(
        vault, await (await open_vaults(request)).add(vault, draft, secrets, by=API_ACTOR, key=request.idempotency_key)
    )


async def list_credentials(request: ApiRequest) -> dict[str, Any]:
    vault, with_archived = read_vault_id(request), request.flag("include_archived")
    list_ = f"credentials {vault} {with_archived}"
    after, limit = request.cursor(list_), request.limit()
    found = [each for each in await (await open_vaults(request)).list(vault) if with_archived or not each.archived_at]
    rest = found if after is None else [each for each in found if [each.created_at, each.id] < after]
    shown = rest[:limit]
    position = [shown[-1].created_at, shown[-1].id] if len(rest) > limit else None
    return request.page(list_, [_render_credential(vault, each) for each in shown], position)


async def retrieve_credential(request: ApiRequest) -> dict[str, Any]:
    vault = read_vault_id(request)
    return _render_credential(vault, await (await open_vaults(request)).load(vault, request.path("credential")))


async def update_credential(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    body = await request.body(CredentialChange)
    vault, now = read_vault_id(request), await read_now(request)

    def revise(found: Credential, secrets: Secrets) -> tuple[Credential, Secrets]:
        named = replace(
            found,
            display_name=keep(body.display_name, found.display_name, None),
            metadata=patch_metadata(found.metadata, body.metadata),
        )
        return (named, secrets) if body.auth is None else _revise_auth(named, secrets, body.auth, now)

    return _render_credential(
        vault, await (await open_vaults(request)).change(vault, request.path("credential"), revise, by=API_ACTOR)
    )


async def archive_credential(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    vault = read_vault_id(request)
    found = await (await open_vaults(request)).archive_credential(vault, request.path("credential"), by=API_ACTOR)
    return _render_credential(vault, found)


async def delete_credential(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    credential = request.path("credential")
    await (await open_vaults(request)).remove(read_vault_id(request), credential, by=API_ACTOR)
    return {"id": credential, "type": "vault_credential_deleted"}


async def validate_credential(request: ApiRequest) -> dict[str, Any]:
    """Try a credential at its server. A token that the server refuses is refreshed, and tried again."""
    await request.require_key_holder()
    vaults, vault = await open_vaults(request), read_vault_id(request)
    found, secrets = await vaults.open_secrets(vault, request.path("credential"))
    if found.type != "mcp_oauth":
        raise ApiProblem(f"The credential {found.id} is {found.type}; only mcp_oauth credentials are validated.")
    result, exchange = await probe(found.mcp_server_url, secrets.token, mask_secrets(secrets)), None
    if result.was_refused:
        exchange = await refresh(found, secrets, await read_now(request))
        if exchange.tokens is not None:
            secrets = await store_tokens(vaults, vault, found, exchange)
            result = await probe(found.mcp_server_url, secrets.token, mask_secrets(secrets))
    return {
        "type": "vault_credential_validation",
        "credential_id": found.id,
        "vault_id": to_wire(PREFIX, vault),
        "has_refresh_token": bool(secrets.refresh_token),
        "status": "valid" if not result.method else "invalid" if result.was_refused else "unknown",
        "mcp_probe": _render_probe(result),
        "refresh": _render_refresh(exchange),
        "validated_at": format_iso(await read_now(request)),
    }


def _read_creation(body: CredentialCreation, now: int) -> tuple[Credential, Secrets]:
    auth = body.auth
    if isinstance(auth, VariableCreation):
        raise ApiProblem(_NO_VARIABLES)
    check_url("auth.mcp_server_url", auth.mcp_server_url)
    draft = Credential(
        id="",
        type="mcp_oauth" if isinstance(auth, OAuthCreation) else "static_bearer",
        mcp_server_url=auth.mcp_server_url,
        display_name=body.display_name,
        metadata=patch_metadata({}, body.metadata),
        created_at=now,
        updated_at=now,
    )
    if isinstance(auth, BearerCreation):
        check_secret("auth.token", auth.token)
        return draft, Secrets(auth.token)
    check_secret("auth.access_token", auth.access_token)
    settings, secrets = _read_refresh(auth.refresh, Secrets(auth.access_token))
    return replace(draft, expires_at=_read_expiry(auth.expires_at, now), refresh=settings), secrets


def _read_refresh(sent: RefreshCreation | None, secrets: Secrets) -> tuple[RefreshSettings | None, Secrets]:
    if sent is None:
        return None, secrets
    check_url("auth.refresh.token_endpoint", sent.token_endpoint)
    check_secret("auth.refresh.refresh_token", sent.refresh_token)
    auth, client_secret = sent.token_endpoint_auth, ""
    if not isinstance(auth, NoEndpointAuth):
        check_secret("auth.refresh.token_endpoint_auth.client_secret", client_secret := auth.client_secret)
    settings = RefreshSettings(
        client_id=sent.client_id,
        token_endpoint=sent.token_endpoint,
        endpoint_auth=auth.__struct_config__.tag,  # type: ignore[arg-type]  # the tag is one of its values
        resource=sent.resource,
        scope=sent.scope,
    )
    return settings, replace(secrets, refresh_token=sent.refresh_token, client_secret=client_secret)


def _revise_auth(
    found: Credential, secrets: Secrets, auth: BearerChange | OAuthChange | VariableChange, now: int
) -> tuple[Credential, Secrets]:
    if auth.__struct_config__.tag != found.type:
        raise ApiProblem(f"auth.type: the credential is {found.type}, and that cannot be changed.")
    if isinstance(auth, BearerChange):
        return found, _replace_secret(secrets, "token", "auth.token", auth.token)
    if isinstance(auth, VariableChange):
        _refuse_variables()
    if not isinstance(auth.expires_at, UnsetType):
        found = replace(found, expires_at=_read_expiry(auth.expires_at, now))
    secrets = _replace_secret(secrets, "token", "auth.access_token", auth.access_token)
    return (found, secrets) if auth.refresh is None else _revise_refresh(found, secrets, auth.refresh)


def _revise_refresh(found: Credential, secrets: Secrets, sent: RefreshChange) -> tuple[Credential, Secrets]:
    if found.refresh is None:
        raise ApiProblem("auth.refresh: the credential was created without it. Create another credential.")
    secrets = _replace_secret(secrets, "refresh_token", "auth.refresh.refresh_token", sent.refresh_token)
    scope = keep(sent.scope, found.refresh.scope, None) or None
    found = replace(found, refresh=replace(found.refresh, scope=scope))
    if sent.token_endpoint_auth is None:
        return found, secrets
    name = "auth.refresh.token_endpoint_auth"
    if found.refresh is not None and found.refresh.endpoint_auth == "none":
        raise ApiProblem(f"{name}: the token endpoint of the credential wants no client secret.")
    return found, _replace_secret(secrets, "client_secret", f"{name}.client_secret", sent.token_endpoint_auth.client_secret)


def _replace_secret(secrets: Secrets, key: str, name: str, value: str | None) -> Secrets:
    if value is None:
        return secrets
    check_secret(name, value)
    return replace(secrets, **{key: value})


def _refuse_variables() -> NoReturn:
    raise ApiProblem(_NO_VARIABLES)


def _read_expiry(moment: datetime | None, now: int) -> int:
    if moment is None:
        return 0
    if moment.tzinfo is None or moment.timestamp() * 1000 <= now:
        raise ApiProblem("auth.expires_at: use a time in the future, with an offset.")
    return int(moment.timestamp() * 1000)


def _render_credential(vault: str, found: Credential) -> dict[str, Any]:
    return {
        "id": found.id,
        "type": "vault_credential",
        "vault_id": to_wire(PREFIX, vault),
        "display_name": found.display_name,
        "metadata": found.metadata,
        "auth": _render_auth(found),
        "created_at": format_iso(found.created_at),
        "updated_at": format_iso(found.updated_at),
        "archived_at": render_time(found.archived_at),
    }


def _render_auth(found: Credential) -> dict[str, Any]:
    auth: dict[str, Any] = {"type": found.type, "mcp_server_url": found.mcp_server_url}
    if found.type == "static_bearer":
        return auth
    settings = found.refresh
    described = settings and {
        "client_id": settings.client_id,
        "token_endpoint": settings.token_endpoint,
        "token_endpoint_auth": {"type": settings.endpoint_auth},
        "resource": settings.resource,
        "scope": settings.scope,
    }
    return {**auth, "expires_at": render_time(found.expires_at), "refresh": described}


def _render_probe(result: ProbeResult) -> Mapping[str, Any] | None:
    return {"method": result.method, "http_response": _render_reply(result.reply)} if result.method else None


def _render_refresh(exchange: RefreshResult | None) -> Mapping[str, Any] | None:
    return None if exchange is None else {"status": exchange.status, "http_response": _render_reply(exchange.reply)}


def _render_reply(reply: ShownReply | None) -> Mapping[str, Any] | None:
    if reply is None:
        return None
    shown = {"body": reply.body, "body_truncated": reply.is_truncated, "content_type": reply.content_type}
    return {"status_code": reply.status, **shown}


_CREDENTIAL = f"{VAULT}/credentials/{{credential}}"
ROUTES = (
    ApiRoute(f"{VAULT}/credentials", {"GET": list_credentials, "POST": create_credential}),
    ApiRoute(_CREDENTIAL, {"GET": retrieve_credential, "POST": update_credential, "DELETE": delete_credential}),
    ApiRoute(f"{_CREDENTIAL}/archive", {"POST": archive_credential}),
    ApiRoute(f"{_CREDENTIAL}/mcp_oauth_validate", {"POST": validate_credential}),
)

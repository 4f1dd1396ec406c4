"""Vaults and credentials through the official SDK: secrets go in and never come out."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anthropic import AsyncAnthropic, BadRequestError, ConflictError, NotFoundError, PermissionDeniedError

from fidelio.app.application import Application
from fidelio.runtime.credentials.service import ProjectVaults
from fidelio.surfaces.http.v1.ids import to_session
from tests.runtime.credentials.servers import OAuthServer, read_basic, serve_oauth
from tests.support import proves
from tests.surfaces.v1.conftest import KEY
from tests.surfaces.v1.strict import check_object

TOKEN, OTHER, REFRESH, CLIENT = "tok-VERYPRIVATE-1", "tok-VERYPRIVATE-2", "ref-VERYPRIVATE-3", "cli-VERYPRIVATE-4"
SECRETS = (TOKEN, OTHER, REFRESH, CLIENT)
URL = "https://mcp.example.org/mcp"
OAUTH = {"type": "mcp_oauth", "access_token": TOKEN, "mcp_server_url": URL}


def bearer(token: str = TOKEN, url: str = URL) -> Any:
    return {"type": "static_bearer", "token": token, "mcp_server_url": url}


def oauth(server: OAuthServer, **more: Any) -> Any:
    refresh = {
        "client_id": "fidelio",
        "refresh_token": REFRESH,
        "token_endpoint": f"{server.base}/token",
        "token_endpoint_auth": {"type": "client_secret_basic", "client_secret": CLIENT},
        "scope": "read",
        "resource": "https://api.example.org",
    }
    auth = {"type": "mcp_oauth", "access_token": TOKEN, "mcp_server_url": f"{server.base}/mcp", "refresh": refresh}
    return {**auth, **more}


def find_secrets(directory: Path) -> list[str]:
    """Which secrets are in any file below a directory: database, write-ahead log, directories of sessions."""
    contents = [path.read_bytes() for path in directory.rglob("*") if path.is_file()]
    assert contents
    return [secret for secret in SECRETS if any(secret.encode() in content for content in contents)]


@proves("v1.vaults")
async def test_a_vault_is_created_changed_archived_and_deleted(sdk: AsyncAnthropic) -> None:
    vaults = sdk.beta.vaults
    created = await vaults.create(display_name="Alice", metadata={"user": "1"})
    changed = await vaults.update(created.id, display_name="Alice A.", metadata={"user": None, "team": "x"})
    archived = await vaults.archive(created.id)
    listed = [vault.id async for vault in vaults.list()]
    with_archived = [vault async for vault in vaults.list(include_archived=True)]
    deleted = await vaults.delete(created.id)

    for found in (created, changed, archived, deleted):
        check_object(found)
    assert (changed.display_name, changed.metadata, changed.archived_at) == ("Alice A.", {"team": "x"}, None)
    assert listed == []
    assert with_archived == [archived]
    assert deleted.type == "vault_deleted"
    with pytest.raises(NotFoundError):
        await vaults.retrieve(created.id)


@proves("v1.credentials", "v1.credential-secrets")
async def test_a_credential_never_shows_its_secrets(
    sdk: AsyncAnthropic, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve_oauth() as server:
        vault = (await sdk.beta.vaults.create(display_name="v")).id
        credentials = sdk.beta.vaults.credentials
        ends = datetime.now(UTC) + timedelta(hours=1)
        static = await credentials.create(vault, auth=bearer(), display_name="static")
        dynamic = await credentials.create(vault, auth=oauth(server, expires_at=ends.isoformat()), metadata={"a": "1"})
        shown = [static, dynamic, *[each async for each in credentials.list(vault, limit=1)]]
        shown.append(await credentials.retrieve(static.id, vault_id=vault))

    for found in shown:
        check_object(found)
        assert not any(secret in found.to_json() for secret in SECRETS)
    assert static.auth.to_dict() == {"type": "static_bearer", "mcp_server_url": URL}
    assert dynamic.auth.type == "mcp_oauth"
    assert dynamic.auth.refresh is not None
    assert dynamic.auth.refresh.token_endpoint_auth.type == "client_secret_basic"
    assert (dynamic.auth.refresh.client_id, dynamic.auth.refresh.scope) == ("fidelio", "read")
    assert dynamic.auth.expires_at is not None
    assert abs(dynamic.auth.expires_at - ends) < timedelta(seconds=1)
    assert find_secrets(tmp_path) == []
    assert not any(secret in caplog.text for secret in SECRETS)


@proves("v1.credential-secrets")
@pytest.mark.parametrize("end", ["replaced", "archived", "deleted", "vault archived", "vault deleted"])
async def test_replaced_and_deleted_secrets_leave_the_ledger_sealed_or_not(
    sdk: AsyncAnthropic, application: Application, tmp_path: Path, end: str
) -> None:
    vault = (await sdk.beta.vaults.create(display_name="v")).id
    credentials = sdk.beta.vaults.credentials
    created = await credentials.create(vault, auth=bearer())
    context = (await application.runtime()).context
    session = to_session("vlt", vault)
    (digest,) = [each.digest for each in (await context.unit.load(session)).record.credentials.entries.values()]
    sealed = await context.ledger.blob(digest)
    assert sealed is not None
    assert _is_stored(tmp_path, sealed)

    match end:
        case "replaced":
            await credentials.update(created.id, vault_id=vault, auth={"type": "static_bearer", "token": OTHER})
        case "archived":
            archived = await credentials.archive(created.id, vault_id=vault)
            check_object(archived)
            assert archived.archived_at is not None
        case "deleted":
            check_object(await credentials.delete(created.id, vault_id=vault))
        case "vault archived":
            await sdk.beta.vaults.archive(vault)
            assert (await credentials.retrieve(created.id, vault_id=vault)).archived_at is not None
        case _:
            await sdk.beta.vaults.delete(vault)

    assert await context.ledger.blob(digest) is None
    assert not await context.ledger.erasure_pending()
    assert not _is_stored(tmp_path, sealed)
    assert find_secrets(tmp_path) == []


@proves("v1.credentials")
async def test_a_vault_has_a_single_active_credential_for_a_server(sdk: AsyncAnthropic) -> None:
    vault = (await sdk.beta.vaults.create(display_name="v")).id
    credentials = sdk.beta.vaults.credentials
    first = await credentials.create(vault, auth=bearer())
    results = await asyncio.gather(
        *(credentials.create(vault, auth=bearer(url=f"{URL}/two")) for _ in range(4)), return_exceptions=True
    )

    assert sum(isinstance(result, ConflictError) for result in results) == 3
    with pytest.raises(ConflictError, match="for the same server"):
        await credentials.create(vault, auth=bearer(OTHER))
    await credentials.archive(first.id, vault_id=vault)
    assert (await credentials.create(vault, auth=bearer(OTHER))).id != first.id
    assert len((await credentials.list(vault)).data) == 2
    assert len((await credentials.list(vault, include_archived=True)).data) == 3


@proves("v1.credentials")
async def test_a_vault_takes_twenty_credentials(sdk: AsyncAnthropic) -> None:
    vault = (await sdk.beta.vaults.create(display_name="v")).id
    for number in range(20):
        await sdk.beta.vaults.credentials.create(vault, auth=bearer(url=f"{URL}/{number}"))

    with pytest.raises(BadRequestError, match="20 credentials"):
        await sdk.beta.vaults.credentials.create(vault, auth=bearer(url=f"{URL}/21"))


@proves("v1.credentials")
async def test_a_repeated_creation_with_a_key_makes_a_single_credential(sdk: AsyncAnthropic) -> None:
    vault = (await sdk.beta.vaults.create(display_name="v")).id
    headers = {"Idempotency-Key": "once"}
    first = await sdk.beta.vaults.credentials.create(vault, auth=bearer(), extra_headers=headers)
    second = await sdk.beta.vaults.credentials.create(vault, auth=bearer(), extra_headers=headers)

    assert first == second
    with pytest.raises(ConflictError):
        await sdk.beta.vaults.credentials.create(vault, auth=bearer(OTHER), extra_headers=headers)


@proves("v1.credentials")
async def test_an_update_replaces_what_it_names_and_keeps_the_rest(
    sdk: AsyncAnthropic, application: Application, project: Path
) -> None:
    async with serve_oauth() as server:
        vault = (await sdk.beta.vaults.create(display_name="v")).id
        credentials = sdk.beta.vaults.credentials
        created = await credentials.create(vault, auth=oauth(server), display_name="x", metadata={"a": "1"})
        updated = await credentials.update(
            created.id,
            vault_id=vault,
            display_name=None,
            metadata={"b": "2"},
            auth={"type": "mcp_oauth", "access_token": OTHER, "refresh": {"scope": ""}},
        )
        vaults = ProjectVaults((await application.runtime()).context, str(project))
        _, secrets = await vaults.open_secrets(to_session("vlt", vault), created.id)

    check_object(updated)
    assert (updated.display_name, updated.metadata) == (None, {"a": "1", "b": "2"})
    assert updated.auth.type == "mcp_oauth"
    assert updated.auth.refresh is not None
    assert updated.auth.refresh.scope is None
    assert updated.auth.refresh.resource == "https://api.example.org"
    assert (secrets.token, secrets.refresh_token, secrets.client_secret) == (OTHER, REFRESH, CLIENT)
    assert TOKEN not in repr(secrets)
    with pytest.raises(BadRequestError, match=r"auth\.type"):
        await credentials.update(created.id, vault_id=vault, auth={"type": "static_bearer", "token": OTHER})


@proves("v1.credential-variables")
async def test_a_variable_of_the_sandbox_is_refused_with_the_reason(sdk: AsyncAnthropic, tmp_path: Path) -> None:
    vault = (await sdk.beta.vaults.create(display_name="v")).id

    with pytest.raises(BadRequestError, match="environment_variable credentials are not offered") as raised:
        await sdk.beta.vaults.credentials.create(
            vault,
            auth={
                "type": "environment_variable",
                "secret_name": "GITHUB_TOKEN",
                "secret_value": TOKEN,
                "networking": {"type": "limited", "allowed_hosts": ["api.github.com"]},
                "injection_location": {"header": True},
            },
        )

    assert TOKEN not in str(raised.value.body)
    assert find_secrets(tmp_path) == []


@proves("v1.credential-secrets")
@pytest.mark.parametrize(
    ("auth", "named"),
    [
        (bearer(url="http://mcp.example.org/"), "mcp_server_url"),
        (bearer(url="https://user:pw@mcp.example.org/"), "mcp_server_url"),
        (bearer(url="https://mcp.example.org/#x"), "mcp_server_url"),
        (bearer(url="file:///etc/passwd"), "mcp_server_url"),
        (bearer(url="https://[::1"), "mcp_server_url"),
        (bearer(url="https://" + "a" * 3000), "mcp_server_url"),
        (bearer(""), "auth.token"),
        (bearer(TOKEN + "\r\nX-Evil: 1"), "auth.token"),
        (bearer(TOKEN + "é"), "auth.token"),
        (bearer(TOKEN * 5000), "auth.token"),
        ({**bearer(), "color": TOKEN}, "color"),
        ({"type": "static_bearer", "token": [TOKEN], "mcp_server_url": URL}, "auth.token"),
        ({"type": "other", "token": TOKEN}, "auth"),
        (
            {"type": "mcp_oauth", "access_token": TOKEN, "mcp_server_url": URL, "expires_at": "2001-01-01T00:00:00Z"},
            "expires_at",
        ),
        ({"type": "mcp_oauth", "access_token": TOKEN, "mcp_server_url": URL, "expires_at": TOKEN}, "expires_at"),
        (
            {
                "type": "mcp_oauth",
                "access_token": TOKEN,
                "mcp_server_url": URL,
                "refresh": {
                    "client_id": "c",
                    "refresh_token": REFRESH,
                    "token_endpoint": "http://evil.example.org/",
                    "token_endpoint_auth": {"type": "none"},
                },
            },
            "token_endpoint",
        ),
    ],
)
async def test_a_wrong_credential_is_refused_by_field_and_without_its_secret(
    sdk: AsyncAnthropic, url: str, auth: Any, named: str, tmp_path: Path
) -> None:
    vault = (await sdk.beta.vaults.create(display_name="v")).id
    async with httpx2.AsyncClient(headers=KEY) as client:
        response = await client.post(f"{url}/v1/vaults/{vault}/credentials", content=json.dumps({"auth": auth}))

    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")
    assert named in response.json()["error"]["message"]
    assert not any(secret in response.text for secret in SECRETS)
    assert find_secrets(tmp_path) == []


@proves("v1.vaults")
async def test_vaults_and_credentials_elsewhere_are_not_found(sdk: AsyncAnthropic, application: Application) -> None:
    vault = (await sdk.beta.vaults.create(display_name="v")).id
    other = (await sdk.beta.vaults.create(display_name="w")).id
    created = await sdk.beta.vaults.credentials.create(vault, auth=bearer())
    foreign = ProjectVaults((await application.runtime()).context, "/elsewhere")
    assert (await foreign.objects.list()).items == ()

    for wrong in (other, "vlt_000000000000", "vlt_", "memstore_000000000000"):
        with pytest.raises(NotFoundError):
            await sdk.beta.vaults.credentials.retrieve(created.id, vault_id=wrong)
        with pytest.raises(NotFoundError):
            await sdk.beta.vaults.credentials.archive("vcrd_x", vault_id=wrong)


@proves("v1.stores-only-by-a-person")
async def test_an_agent_that_found_the_key_defines_no_vault_and_no_credential(sdk: AsyncAnthropic, url: str) -> None:
    vault = (await sdk.beta.vaults.create(display_name="v")).id
    created = await sdk.beta.vaults.credentials.create(vault, auth=bearer())
    marked = {"Fidelio-Agent": "s_000000000000.1"}
    async with AsyncAnthropic(base_url=url, api_key=KEY["x-api-key"], max_retries=0, default_headers=marked) as agent:
        calls = (
            agent.beta.vaults.create(display_name="w"),
            agent.beta.vaults.update(vault, display_name="w"),
            agent.beta.vaults.archive(vault),
            agent.beta.vaults.delete(vault),
            agent.beta.vaults.credentials.create(vault, auth=bearer(url=f"{URL}/2")),
            agent.beta.vaults.credentials.update(created.id, vault_id=vault, display_name="w"),
            agent.beta.vaults.credentials.delete(created.id, vault_id=vault),
            agent.beta.vaults.credentials.mcp_oauth_validate(created.id, vault_id=vault),
        )
        for call in calls:
            with pytest.raises(PermissionDeniedError):
                await call


@proves("v1.credential-validation")
async def test_a_good_token_is_valid_and_nothing_is_refreshed(sdk: AsyncAnthropic) -> None:
    async with serve_oauth() as server:
        server.accepted.add(TOKEN)
        vault = (await sdk.beta.vaults.create(display_name="v")).id
        created = await sdk.beta.vaults.credentials.create(vault, auth=oauth(server))
        found = await sdk.beta.vaults.credentials.mcp_oauth_validate(created.id, vault_id=vault)

    check_object(found)
    assert (found.status, found.mcp_probe, found.refresh, found.has_refresh_token) == ("valid", None, None, True)
    assert server.forms == []


@proves("v1.credential-validation")
async def test_a_refused_token_is_refreshed_and_the_new_one_is_kept(sdk: AsyncAnthropic, tmp_path: Path) -> None:
    async with serve_oauth() as server:
        vault = (await sdk.beta.vaults.create(display_name="v")).id
        created = await sdk.beta.vaults.credentials.create(vault, auth=oauth(server))
        found = await sdk.beta.vaults.credentials.mcp_oauth_validate(created.id, vault_id=vault)
        again = await sdk.beta.vaults.credentials.mcp_oauth_validate(created.id, vault_id=vault)
        kept = await sdk.beta.vaults.credentials.retrieve(created.id, vault_id=vault)

    assert found.refresh is not None
    assert (found.status, found.refresh.status) == ("valid", "succeeded")
    assert (again.status, again.refresh) == ("valid", None)
    ((form, authorization),) = server.forms
    assert form == {
        "grant_type": "refresh_token",
        "refresh_token": REFRESH,
        "scope": "read",
        "resource": "https://api.example.org",
    }
    assert read_basic(authorization) == f"fidelio:{CLIENT}"
    assert kept.auth.type == "mcp_oauth"
    assert kept.auth.expires_at is not None
    assert not _is_stored(tmp_path, b"PRIVATE")


@proves("v1.credential-validation")
@pytest.mark.parametrize("mode", ["refuses", "redirects", "hostile-token", "endless"])
async def test_a_token_endpoint_that_gives_nothing_makes_the_credential_invalid(sdk: AsyncAnthropic, mode: str) -> None:
    async with serve_oauth() as server:
        server.mode = mode
        vault = (await sdk.beta.vaults.create(display_name="v")).id
        created = await sdk.beta.vaults.credentials.create(vault, auth=oauth(server))
        found = await sdk.beta.vaults.credentials.mcp_oauth_validate(created.id, vault_id=vault)

    check_object(found)
    assert found.refresh is not None
    assert (found.status, found.refresh.status) == ("invalid", "failed")
    assert found.mcp_probe is not None
    assert found.mcp_probe.http_response is not None
    assert (found.mcp_probe.method, found.mcp_probe.http_response.status_code) == ("initialize", 401)
    assert found.mcp_probe.http_response.body == "The token (secret) is not good."
    assert not any(secret in found.to_json() for secret in SECRETS)


@proves("v1.credential-validation")
async def test_a_server_that_is_not_there_leaves_the_credential_unknown(sdk: AsyncAnthropic) -> None:
    async with serve_oauth() as server:
        vault = (await sdk.beta.vaults.create(display_name="v")).id
        auth = oauth(server, mcp_server_url="http://127.0.0.1:1/mcp")
        created = await sdk.beta.vaults.credentials.create(vault, auth=auth)
        found = await sdk.beta.vaults.credentials.mcp_oauth_validate(created.id, vault_id=vault)

    assert found.mcp_probe is not None
    assert (found.status, found.refresh, found.mcp_probe.http_response) == ("unknown", None, None)


def _is_stored(directory: Path, content: bytes) -> bool:
    return any(content in path.read_bytes() for path in directory.rglob("ledger*") if path.is_file())

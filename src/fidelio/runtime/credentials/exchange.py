"""HTTP with the secrets of a credential: a new access token from a token endpoint, and a probe of an MCP server.

The other side may be hostile: replies are bounded, nothing is followed elsewhere, every step has a time limit, and what is
shown of a reply has no secret in it, also if the server repeats one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

import httpx2
import msgspec
from msgspec.structs import replace

from fidelio.errors import DocumentConflict, ToolRefused, VaultProblem
from fidelio.mcp_client.client import REVISION
from fidelio.runtime.credentials.model import EXPIRY_MARGIN_MS, Credential, RefreshSettings, Secrets, check_secret
from fidelio.runtime.credentials.service import ProjectVaults
from fidelio.runtime.servers.credentials import Masks
from fidelio.runtime.tools.model import RuntimeContext

SECONDS = 20.0
MAX_REPLY = 1 << 20
MAX_SHOWN = 2_000
_ATTEMPTS = 4
# A lifetime beyond this is no number of seconds that anybody means.
_LONGEST_SECONDS = 10 * 366 * 24 * 3600
_MCP_HEADERS = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "MCP-Protocol-Version": REVISION,
}
_INITIALIZE = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "fidelio", "version": "1"}}
_REFUSED = (401, 403)
_UNREACHABLE = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, TimeoutError)
_SESSION = "Mcp-Session-Id"


class ShownReply(msgspec.Struct, frozen=True):
    """What a server replied, without secrets and within a bound."""

    status: int
    content_type: str
    body: str
    is_truncated: bool


class RefreshResult(msgspec.Struct, frozen=True):
    """The outcome of an exchange. `tokens` are the secrets afterwards, with the moment at which the access token ends."""

    status: Literal["succeeded", "failed", "connect_error", "no_refresh_token"]
    reply: ShownReply | None = None
    tokens: tuple[Secrets, int] | None = None


class ProbeResult(msgspec.Struct, frozen=True):
    """The step of a probe that failed; no method if none did."""

    method: str = ""
    reply: ShownReply | None = None

    @property
    def was_refused(self) -> bool:
        return self.reply is not None and self.reply.status in _REFUSED


class _TokenReply(msgspec.Struct, frozen=True):
    """The reply of a token endpoint, as far as it is read."""

    access_token: str
    refresh_token: str | None = None
    expires_in: float | None = None


async def open_token(
    context: RuntimeContext, vaults: ProjectVaults, vault: str, credential: Credential, *, refused: str = ""
) -> str:
    """The token for the server of a credential; another if it has expired. Raises `ToolRefused` without a secret.

    `refused`: a token that the server does not accept any more, whenever it was to expire.
    """
    found, secrets = await vaults.open_secrets(vault, credential.id)
    if not found.needs_refresh(context.clock()) and secrets.token != refused:
        return secrets.token
    result = await refresh(found, secrets, context.clock())
    if result.tokens is None:
        # Another process may have been faster, and a refresh token is often good for a single use.
        found, secrets = await vaults.open_secrets(vault, credential.id)
        if not found.needs_refresh(context.clock()) and secrets.token != refused:
            return secrets.token
        status = f" ({result.reply.status})" if result.reply is not None else ""
        raise ToolRefused(
            f"The access token of the credential {credential.id} has expired, and its token endpoint gave no new one{status}.",
            remedy="The person has to authorize the server again.",
            reason="mcp_authentication_failed",
            retryable=result.status == "connect_error",
        )
    return (await store_tokens(vaults, vault, found, result)).token


async def store_tokens(vaults: ProjectVaults, vault: str, credential: Credential, result: RefreshResult) -> Secrets:
    """Store the tokens of an exchange that succeeded."""
    assert result.tokens is not None
    secrets, expires_at = result.tokens
    for attempt in range(_ATTEMPTS):
        try:
            await vaults.change(
                vault, credential.id, lambda found, _: (replace(found, expires_at=expires_at), secrets), by="vaults"
            )
        except DocumentConflict:
            # Somebody changed the credential meanwhile; the former refresh token may be used up, so the new one must be kept.
            if attempt + 1 == _ATTEMPTS:
                raise
            continue
        break
    return secrets


async def refresh(credential: Credential, secrets: Secrets, now: int) -> RefreshResult:
    """Exchange the refresh token for a new access token. Stores nothing."""
    settings = credential.refresh
    if settings is None or not secrets.refresh_token:
        return RefreshResult("no_refresh_token")
    masks = mask_secrets(secrets)
    try:
        async with asyncio.timeout(SECONDS), _client() as client:
            form, auth = _build_form(settings, secrets)
            request = client.build_request("POST", settings.token_endpoint, data=form, headers={"Accept": "application/json"})
            response = await client.send(request, auth=auth, stream=True)
            content = await _read(response)
    except _UNREACHABLE:
        return RefreshResult("connect_error")
    tokens = _read_tokens(content, secrets, now) if response.status_code == 200 else None  # the status of RFC 6749
    if tokens is None:
        return RefreshResult("failed", _describe(response, content, masks))
    return RefreshResult("succeeded", tokens=tokens)


async def probe(url: str, token: str, masks: Masks) -> ProbeResult:
    """Open a session with an MCP server and list its tools."""
    headers = {**_MCP_HEADERS, "Authorization": f"Bearer {token}"}
    try:
        async with asyncio.timeout(2 * SECONDS), _client() as client:
            failed = await _probe_step(client, url, headers, "initialize", _INITIALIZE, masks)
            return failed or await _probe_step(client, url, headers, "tools/list", {}, masks) or ProbeResult()
    except _UNREACHABLE:
        return ProbeResult("initialize")


async def _probe_step(
    client: httpx2.AsyncClient, url: str, headers: dict[str, str], method: str, params: Mapping[str, Any], masks: Masks
) -> ProbeResult | None:
    """Send a message; the failure if it is refused. The session of the server is used from then on."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": dict(params)}
    try:
        request = client.build_request("POST", url, content=msgspec.json.encode(message), headers=headers)
        response = await client.send(request, stream=True)
        # Of a stream of events the head is enough: the server has accepted the message.
        is_good = response.is_success
        content = b"" if is_good else await _read(response)
        await response.aclose()
    except _UNREACHABLE:
        return ProbeResult(method)
    if session := response.headers.get(_SESSION):
        headers[_SESSION] = session
    return None if is_good else ProbeResult(method, _describe(response, content, masks))


def mask_secrets(secrets: Secrets) -> Masks:
    """Masks for what a server says."""
    return Masks.of((secrets.token, secrets.refresh_token, secrets.client_secret))


def _client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(timeout=httpx2.Timeout(SECONDS), follow_redirects=False)


def _build_form(settings: RefreshSettings, secrets: Secrets) -> tuple[dict[str, str], httpx2.BasicAuth | None]:
    form = {"grant_type": "refresh_token", "refresh_token": secrets.refresh_token}
    form |= {name: value for name, value in (("scope", settings.scope), ("resource", settings.resource)) if value}
    if settings.endpoint_auth == "client_secret_basic":
        return form, httpx2.BasicAuth(settings.client_id, secrets.client_secret)
    form["client_id"] = settings.client_id
    if settings.endpoint_auth == "client_secret_post":
        form["client_secret"] = secrets.client_secret
    return form, None


async def _read(response: httpx2.Response) -> bytes:
    """The body, but only a little more of it than is read at most."""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > MAX_REPLY:
            break
    await response.aclose()
    return bytes(body)


def _read_tokens(content: bytes, before: Secrets, now: int) -> tuple[Secrets, int] | None:
    try:
        found = msgspec.json.decode(content, type=_TokenReply)
        for name, value in (("access_token", found.access_token), ("refresh_token", found.refresh_token or "-")):
            check_secret(name, value)
    except (msgspec.DecodeError, RecursionError, VaultProblem):
        return None
    lifetime = found.expires_in
    # Without a lifetime nobody knows when it ends, and it is used until the server refuses it.
    is_known = lifetime is not None and EXPIRY_MARGIN_MS / 1000 < lifetime < _LONGEST_SECONDS
    expires_at = now + int((lifetime or 0) * 1000) if is_known else 0
    return Secrets(found.access_token, found.refresh_token or before.refresh_token, before.client_secret), expires_at


def _describe(response: httpx2.Response, content: bytes, masks: Masks) -> ShownReply:
    text = masks.apply(content.decode(errors="replace"))
    kind = response.headers.get("content-type", "")[:200]
    return ShownReply(response.status_code, masks.apply(kind), text[:MAX_SHOWN], len(text) > MAX_SHOWN)

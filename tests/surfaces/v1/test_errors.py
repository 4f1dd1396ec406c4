"""Errors of the API have the shape that its clients read."""

from __future__ import annotations

import re
from itertools import chain

import httpx2
import pytest
from anthropic import AsyncAnthropic, AuthenticationError, NotFoundError

from fidelio.surfaces.http.v1.application import GROUPS
from tests.support import proves
from tests.surfaces.v1.conftest import KEY
from tests.surfaces.v1.requests import send
from tests.surfaces.v1.support import create_session


@proves("v1.not-offered")
async def test_what_is_not_offered_is_not_found_in_the_error_shape(sdk: AsyncAnthropic, url: str) -> None:
    async with httpx2.AsyncClient() as client:
        response = await client.get(f"{url}/v1/tunnels", headers=KEY)

    body = response.json()
    assert (response.status_code, body["type"], body["error"]["type"]) == (404, "error", "not_found_error")
    assert response.headers["request-id"] == body["request_id"]
    with pytest.raises(NotFoundError):
        await sdk.beta.models.list()


@proves("v1.key")
async def test_a_wrong_key_is_an_authentication_error(url: str) -> None:
    async with AsyncAnthropic(base_url=url, api_key="wrong", max_retries=0) as client:
        with pytest.raises(AuthenticationError) as raised:
            await client.beta.models.list()

    assert raised.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]  # the SDK types it as object


@proves("v1.own-ids")
@pytest.mark.parametrize(
    "path", ["vaults/vlt_", "memory_stores/memstore_", "environments/env_", "files/file_", "skills/skill_"]
)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_what_is_unknown_is_named_as_the_client_has_named_it(url: str, path: str, method: str) -> None:
    response = await send(method, f"{url}/v1/{path}000000000000")

    message = response.json()["error"]["message"]
    assert response.status_code == 404
    assert f"{path.partition('/')[2]}000000000000" in message
    assert "s_000000000000" not in message


@proves("v1.own-ids")
async def test_a_session_that_cannot_be_changed_is_named_as_the_client_has_named_it(sdk: AsyncAnthropic, url: str) -> None:
    session = await create_session(sdk)
    await sdk.beta.sessions.archive(session.id)

    for path in ("events", "resources"):
        body = (
            {"events": [{"type": "user.interrupt"}]} if path == "events" else {"type": "file", "file_id": "file_000000000000"}
        )
        response = await send("POST", f"{url}/v1/sessions/{session.id}/{path}", body)
        assert response.status_code in (400, 404)
        assert f"s_{session.id[5:]}" not in response.text


@proves("v1.only-messages-of-agents")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        (method, route.path)
        for route in chain(*GROUPS)
        for method in route.handlers
        # Messages may be sent to a session: see the events.
        if method != "GET" and route.path != "/v1/sessions/{session_id}/events"
    ],
)
async def test_an_agent_with_the_key_changes_nothing(url: str, method: str, path: str) -> None:
    environment = "env_default" if path.startswith("/v1/environments/") else "sesn_000000000000"
    address = url + re.sub(r"\{[a-z_]+\}", environment, path)

    response = await send(method, address, {}, key={**KEY, "Fidelio-Agent": "s_000000000000.1"})

    assert (response.status_code, response.json()["error"]["type"]) == (403, "permission_error")

"""Errors of the API have the shape that its clients read."""

from __future__ import annotations

import httpx2
import pytest
from anthropic import AsyncAnthropic, AuthenticationError, NotFoundError

from tests.support import proves
from tests.surfaces.v1.conftest import KEY


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

"""The group `/v1/environments`, driven by the official SDK over a socket."""

from __future__ import annotations

import pytest
from anthropic import AsyncAnthropic, NotFoundError

from fidelio.app.application import Application
from tests.support import proves


@proves("v1.environments.create")
async def test_a_created_environment_comes_back_in_full(sdk: AsyncAnthropic, application: Application) -> None:
    created = await sdk.beta.environments.create(
        name="Offline", config={"type": "cloud", "networking": {"type": "limited", "allowed_hosts": ["api.example.com"]}}
    )

    found = await sdk.beta.environments.retrieve(created.id)
    assert found == created
    assert found.config.to_dict() == {
        "type": "cloud",
        "networking": {
            "type": "limited",
            "allowed_hosts": ["api.example.com"],
            "allow_mcp_servers": False,
            "allow_package_managers": False,
        },
        "packages": {"type": "packages", "apt": [], "cargo": [], "gem": [], "go": [], "npm": [], "pip": []},
    }
    chosen = (await (await application.runtime()).environments.load(created.id)).environment
    assert (chosen.network, chosen.hosts, chosen.mcp_servers) == ("limited", ("api.example.com",), False)


@proves("v1.environments.named")
async def test_the_built_in_environment_can_be_read(sdk: AsyncAnthropic) -> None:
    found = await sdk.beta.environments.retrieve("env_default")

    assert (found.id, found.config.to_dict()["networking"]["allowed_hosts"]) == ("env_default", [])
    with pytest.raises(NotFoundError):
        await sdk.beta.environments.retrieve("env_missing")

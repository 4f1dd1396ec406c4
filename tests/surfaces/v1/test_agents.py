"""The group `/v1/agents`, driven by the official SDK over a socket."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic import AsyncAnthropic

from tests.support import proves

TOOLSET: dict[str, Any] = {"type": "agent_toolset_20260401"}


async def create(sdk: AsyncAnthropic, **fields: Any) -> Any:
    return await sdk.beta.agents.create(**{"name": "Coding Assistant", "model": "scripted:test", **fields})


@proves("v1.agents.create")
async def test_a_created_agent_comes_back_in_full(sdk: AsyncAnthropic) -> None:
    created = await create(sdk, description="Writes code.", system="Be brief.", tools=[TOOLSET], metadata={"team": "a"})

    found = await sdk.beta.agents.retrieve(created.id)
    assert found == created
    assert (found.name, found.version, found.model.id, found.metadata) == (
        "Coding Assistant",
        1,
        "scripted:test",
        {"team": "a"},
    )
    assert found.tools[0].to_dict() == {
        "type": "agent_toolset_20260401",
        "default_config": {"enabled": True, "permission_policy": {"type": "always_allow"}},
        "configs": [],
    }

"""What agents cannot have or be: rosters, wrong values, unknown ids, other projects, and agents as clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from anthropic import APIStatusError, AsyncAnthropic, NotFoundError

from fidelio.app.application import Application
from fidelio.runtime.agents.definition import parse_agent
from fidelio.runtime.agents.versions import define_agent
from tests.support import proves
from tests.surfaces.v1.requests import send
from tests.surfaces.v1.test_agents import CUSTOM, ISSUES, SERVER, TOOLSET, create


@proves("v1.agents-roster")
async def test_a_roster_of_three_parts_is_merged_by_updates(sdk: AsyncAnthropic) -> None:
    helper, other = await create(sdk, name="Helper"), await create(sdk, name="Other")
    first: Any = {"type": "multiagent_20261001", "subagents": {"type": "enabled", "predefined_agents": [helper.id]}}
    agent = await create(sdk, multiagent=first)

    kept: Any = {"type": "multiagent_20261001", "workflows": {"type": "disabled"}}
    replaced: Any = {"type": "multiagent_20261001", "subagents": {"type": "enabled", "predefined_agents": [other.id]}}

    assert (await sdk.beta.agents.update(agent.id, multiagent=kept)).version == 1
    changed = (await sdk.beta.agents.update(agent.id, multiagent=replaced)).multiagent
    assert changed is not None
    assert changed.to_dict() == {
        "type": "multiagent_20261001",
        "advisor": {"type": "disabled"},
        "workflows": {"type": "disabled"},
        "subagents": {
            "type": "enabled",
            "inline_agents": {"type": "disabled"},
            "predefined_agents": [{"type": "agent", "id": other.id, "version": 1}],
        },
    }
    assert (await sdk.beta.agents.update(agent.id, multiagent=None)).multiagent is None


@proves("v1.agents-roster")
async def test_a_roster_that_cannot_be_kept_is_refused(sdk: AsyncAnthropic) -> None:
    helper = await create(sdk, name="Helper")
    leader = await create(sdk, multiagent={"type": "coordinator", "agents": [helper.id]})
    archived = await create(sdk, name="Archived")
    await sdk.beta.agents.archive(archived.id)
    members = {"type": "multiagent_20261001"}
    named = {"type": "enabled", "predefined_agents": [helper.id]}
    refused: list[tuple[Any, str]] = [
        ({"type": "coordinator", "agents": []}, "agents"),
        ({"type": "coordinator", "agents": [helper.id, {"type": "agent", "id": helper.id}]}, "twice"),
        ({"type": "coordinator", "agents": [{"type": "self"}, {"type": "self"}]}, "twice"),
        ({"type": "coordinator", "agents": [leader.id]}, "roster of its own"),
        ({"type": "coordinator", "agents": [archived.id]}, "archived"),
        ({"type": "coordinator", "agents": ["agent_000000000000"]}, "not found"),
        ({"type": "coordinator", "agents": [{"type": "agent", "id": helper.id, "version": 9}]}, "version 9"),
        ({"type": "coordinator", "agents": [{"type": "advisor", "model": "claude-x"}]}, "advisor"),
        (members, "predefined_agents"),
        ({**members, "subagents": named, "workflows": {"type": "enabled"}}, "workflow runs"),
        ({**members, "subagents": {**named, "inline_agents": {"type": "enabled"}}}, "inline agents"),
        ({**members, "subagents": named, "advisor": {"type": "enabled", "model": "claude-x"}}, "advisor"),
    ]

    for multiagent, named_in_error in refused:
        with pytest.raises(APIStatusError, match=named_in_error) as raised:
            await create(sdk, multiagent=multiagent)
        assert raised.value.status_code in (400, 404)


@proves("v1.agents-refused")
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 257}, "name"),
        ({"name": 7}, "name"),
        ({"model": "nobody"}, "names no provider"),
        ({"model": {"id": "scripted:test", "speed": "fast"}}, "model.speed"),
        ({"model": {"id": "scripted:test", "inference_geo": "eu"}}, "inference_geo"),
        ({"model": {"id": "scripted:test", "effort": "huge"}}, "model.effort"),
        ({"system": "x" * 100_001}, "system"),
        ({"description": "x" * 2_049}, "description"),
        ({"extra_body": {"colour": "red"}}, "colour"),
        ({"metadata": {f"k{number}": "v" for number in range(17)}}, "metadata: 17 pairs"),
        ({"metadata": {"k" * 65: "v"}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata.k"),
        ({"metadata": {"k": 3}}, "metadata"),
        ({"execution_identity": {"type": "aws_role", "role_arn": "x"}}, "execution_identity"),
        ({"skills": [{"type": "anthropic", "skill_id": "xlsx"}]}, "xlsx"),
        ({"skills": [{"type": "custom", "skill_id": "skill_000000000000"}]}, "skill_000000000000"),
        ({"tools": [{"type": "browser"}]}, "tools"),
        ({"tools": [TOOLSET, {"type": "fidelio_toolset"}]}, "not both"),
        ({"tools": [TOOLSET, TOOLSET]}, "twice"),
        ({"tools": [{**TOOLSET, "configs": [{"name": "shell"}]}]}, "tools.0.configs.0.name"),
        ({"tools": [{**TOOLSET, "configs": [{"name": "bash"}, {"name": "bash"}]}]}, "two configs"),
        ({"tools": [{**TOOLSET, "configs": [{"name": "bash", "type": "read"}]}]}, "bash has the type"),
        ({"tools": [{**TOOLSET, "configs": [{"name": "bash", "allowed_domains": ["x.org"]}]}]}, "only web_fetch"),
        ({"tools": [{**TOOLSET, "configs": [{"name": "web_fetch", "allowed_domains": ["https://x.org"]}]}]}, "no host"),
        (
            {"tools": [{**TOOLSET, "configs": [{"name": "web_search", "user_location": {"type": "approximate"}}]}]},
            "user_location",
        ),
        (
            {"tools": [{**TOOLSET, "configs": [{"name": "web_fetch", "url_sources": {"user_input": "none"}}]}]},
            "url_sources",
        ),
        ({"tools": [{**TOOLSET, "default_config": {"permission_policy": {"type": "never"}}}]}, "permission_policy"),
        ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]}, "not in mcp_servers"),
        ({"mcp_servers": [SERVER]}, "no mcp_toolset"),
        (
            {
                "mcp_servers": [{**SERVER, "url": "file:///etc"}],
                "tools": [ISSUES],
            },
            "url",
        ),
        (
            {
                "mcp_servers": [{**SERVER, "url": "command:issues"}],
                "tools": [ISSUES],
            },
            "url",
        ),
        (
            {"mcp_servers": [{**SERVER, "name": "a b"}], "tools": [{**ISSUES, "mcp_server_name": "a b"}]},
            "mcp_servers",
        ),
        ({"tools": [{**CUSTOM, "name": "bash"}]}, "bash has the name of another tool"),
        ({"tools": [{**CUSTOM, "input_schema": {"type": "string"}}]}, "type: object"),
        ({"tools": [CUSTOM] * 257}, "tools"),
    ],
)
async def test_what_cannot_be_kept_is_refused_by_name(sdk: AsyncAnthropic, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(APIStatusError, match=named) as raised:
        await create(sdk, **fields)

    assert raised.value.status_code in (400, 404)
    assert [agent async for agent in sdk.beta.agents.list()] == []


@proves("v1.agents-refused")
async def test_unknown_ids_and_versions_are_not_found(sdk: AsyncAnthropic, url: str) -> None:
    agent = await create(sdk)

    for id_ in ("agent_000000000000", "agent_", "x" * 500, f"env_{agent.id.removeprefix('agent_')}"):
        with pytest.raises(NotFoundError):
            await sdk.beta.agents.retrieve(id_)
        with pytest.raises(NotFoundError):
            await sdk.beta.agents.update(id_, system="x")
        with pytest.raises(NotFoundError):
            await sdk.beta.agents.archive(id_)
    with pytest.raises(NotFoundError, match="version 2"):
        await sdk.beta.agents.retrieve(agent.id, version=2)
    for version in ("0", "-1", "x", "9" * 30):
        assert (await send("GET", f"{url}/v1/agents/{agent.id}?version={version}")).status_code == 400


@proves("v1.agents-project")
async def test_an_agent_of_another_project_is_unknown(
    sdk: AsyncAnthropic, url: str, application: Application, project: Path
) -> None:
    context = (await application.runtime()).context
    definition = parse_agent({"model": "scripted:echo"}, "The agent")
    await define_agent(context, str(project), "mine", definition, by="person:anna")
    (mine,) = [agent async for agent in sdk.beta.agents.list()]
    await define_agent(context, "/elsewhere", "secret-name", definition, by="person:anna")
    stores = await context.ledger.sessions(kind="runtime", namespace="runtime-store:substrate")
    (foreign,) = [f"agent_{store.id[2:]}" for store in stores.items if f"agent_{store.id[2:]}" != mine.id]

    for path in (foreign, f"{foreign}/versions"):
        answer = await send("GET", f"{url}/v1/agents/{path}")
        assert answer.status_code == 404
        assert "secret-name" not in answer.text
        assert "elsewhere" not in answer.text
    answer = await send("POST", f"{url}/v1/agents/{mine.id}", {"multiagent": {"type": "coordinator", "agents": [foreign]}})
    assert answer.status_code == 404
    assert [agent.id async for agent in sdk.beta.agents.list()] == [mine.id]


@proves("v1.agents-relayed")
async def test_an_agent_that_found_the_key_defines_nothing(sdk: AsyncAnthropic, url: str) -> None:
    agent = await create(sdk)
    relayed = {"x-api-key": "test-key-of-the-api", "Fidelio-Agent": "s_000000000000.1"}
    body = {"name": "Mine", "model": "scripted:test"}

    for path, sent in (("agents", body), (f"agents/{agent.id}", {"system": "x"}), (f"agents/{agent.id}/archive", None)):
        answer = await send("POST", f"{url}/v1/{path}", sent, key=relayed)
        assert (answer.status_code, answer.json()["error"]["type"]) == (403, "permission_error")
    assert (await send("GET", f"{url}/v1/agents/{agent.id}", key=relayed)).status_code == 200
    assert (await sdk.beta.agents.retrieve(agent.id)).version == 1

"""The group `/v1/agents`, driven by the official SDK over a socket."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic, BadRequestError, ConflictError
from anthropic.types.beta import BetaManagedAgentsAgent

from fidelio.app.application import Application
from fidelio.errors import AgentDefinitionProblem
from fidelio.runtime.agents.definition import parse_agent
from fidelio.runtime.agents.files import resolve_agent
from fidelio.runtime.agents.versions import define_agent, list_agents
from tests.support import proves
from tests.surfaces.v1.requests import send
from tests.surfaces.v1.strict import check_json

TOOLSET: Any = {"type": "agent_toolset_20260401"}
ALLOW, ASK = {"type": "always_allow"}, {"type": "always_ask"}
ISSUES = {"type": "mcp_toolset", "mcp_server_name": "issues"}
SERVER = {"type": "url", "name": "issues", "url": "https://mcp.example.com/mcp"}
CUSTOM = {
    "type": "custom",
    "name": "deploy",
    "description": "Deploy it.",
    "input_schema": {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]},
}


async def create(sdk: AsyncAnthropic, **fields: Any) -> Any:
    return await sdk.beta.agents.create(**{"name": "Coding Assistant", "model": "scripted:test", **fields})


@proves("v1.agents-create")
async def test_a_created_agent_comes_back_in_full(sdk: AsyncAnthropic) -> None:
    created = await create(sdk, description="Writes code.", system="Be brief.", tools=[TOOLSET], metadata={"team": "a"})

    found = await sdk.beta.agents.retrieve(created.id)
    assert found == created
    assert (found.name, found.version, found.model.id) == ("Coding Assistant", 1, "scripted:test")
    assert (found.description, found.system, found.metadata) == ("Writes code.", "Be brief.", {"team": "a"})
    assert found.tools[0].to_dict() == {
        "type": "agent_toolset_20260401",
        "default_config": {"enabled": True, "permission_policy": ALLOW},
        "configs": [],
    }


@proves("v1.agents-create")
async def test_an_agent_of_a_program_can_be_used_by_name(sdk: AsyncAnthropic, application: Application, project: Path) -> None:
    first, second = await create(sdk), await create(sdk)

    context = (await application.runtime()).context
    names = [agent.name for agent in await list_agents(context, str(project))]
    assert [name.rpartition("-")[0] for name in names] == ["coding-assistant"] * 2
    assert first.id != second.id
    assert (await resolve_agent(context, str(project), names[0])).definition.title == "Coding Assistant"


@proves("v1.agents-shape")
async def test_every_part_of_an_agent_has_the_shape_of_the_sdk(sdk: AsyncAnthropic, url: str) -> None:
    helper = await create(sdk, name="Helper")
    web = {"name": "web_fetch", "enabled": False, "allowed_domains": ["docs.example.com"], "max_content_tokens": 5_000}
    mcp = {"type": "mcp_toolset", "mcp_server_name": "issues", "configs": [{"name": "close", "permission_policy": ALLOW}]}
    body = {
        "name": "All",
        "model": {"id": "scripted:test", "effort": "low", "speed": "standard"},
        "tools": [{**TOOLSET, "configs": [{"name": "bash", "permission_policy": ASK}, web]}, mcp, CUSTOM],
        "mcp_servers": [SERVER],
        "multiagent": {"type": "coordinator", "agents": [helper.id, {"type": "self"}]},
        "execution_identity": {"type": "service_account"},
        "skills": [],
    }

    answer = (await send("POST", f"{url}/v1/agents", body)).json()

    check_json(BetaManagedAgentsAgent, answer)
    toolset, server, custom = answer["tools"]
    assert answer["model"] == {"id": "scripted:test", "effort": {"type": "low"}, "speed": "standard"}
    assert toolset["configs"] == [
        {"type": "bash", "name": "bash", "enabled": True, "permission_policy": ASK},
        {"type": "web_fetch", "permission_policy": ALLOW, **web},
    ]
    assert server["configs"] == [{"name": "close", "enabled": True, "permission_policy": ALLOW}]
    assert server["default_config"] == {"enabled": True, "permission_policy": ASK}
    assert (custom, answer["mcp_servers"]) == (CUSTOM, [SERVER])
    assert answer["multiagent"]["agents"] == [
        {"type": "agent", "id": helper.id, "version": 1},
        {"type": "agent", "id": answer["id"], "version": 1},
    ]


@proves("v1.agents-update")
async def test_each_change_is_a_version_and_the_same_content_is_none(sdk: AsyncAnthropic) -> None:
    agent = await create(sdk, description="First.", tools=[TOOLSET], metadata={"a": "1", "b": "2"})

    same = await sdk.beta.agents.update(agent.id, description="First.", tools=[TOOLSET])
    changed = await sdk.beta.agents.update(agent.id, version=1, system="New.", metadata={"a": None, "c": "3"})
    cleared = await sdk.beta.agents.update(agent.id, description=None, tools=[], name="Other")

    assert (same.version, changed.version, cleared.version) == (1, 2, 3)
    assert (changed.metadata, changed.description, len(changed.tools)) == ({"b": "2", "c": "3"}, "First.", 1)
    assert (cleared.description, cleared.tools, cleared.system, cleared.name) == (None, [], "New.", "Other")
    first = await sdk.beta.agents.retrieve(agent.id, version=1)
    assert (first.version, first.metadata, first.name) == (1, {"a": "1", "b": "2"}, "Coding Assistant")


@proves("v1.agents-update")
async def test_an_update_of_an_older_version_is_a_conflict(sdk: AsyncAnthropic) -> None:
    agent = await create(sdk)
    await sdk.beta.agents.update(agent.id, version=1, system="First.")

    with pytest.raises(ConflictError) as stale:
        await sdk.beta.agents.update(agent.id, version=1, system="Second.")

    assert stale.value.response.headers["x-should-retry"] == "false"
    assert (await sdk.beta.agents.retrieve(agent.id)).system == "First."


@proves("v1.agents-update")
async def test_of_two_updates_at_once_none_is_lost(sdk: AsyncAnthropic) -> None:
    agent = await create(sdk)

    await asyncio.gather(*(sdk.beta.agents.update(agent.id, metadata={f"k{number}": "v"}) for number in range(4)))

    found = await sdk.beta.agents.retrieve(agent.id)
    assert (found.version, sorted(found.metadata)) == (5, ["k0", "k1", "k2", "k3"])


@proves("v1.agents-update")
async def test_what_was_read_can_be_sent_back_unchanged(sdk: AsyncAnthropic, url: str) -> None:
    mcp = {"type": "mcp_toolset", "mcp_server_name": "issues", "default_config": {"enabled": False}}
    agent = await create(sdk, tools=[TOOLSET, mcp, CUSTOM], mcp_servers=[SERVER])
    read = (await send("GET", f"{url}/v1/agents/{agent.id}")).json()
    writable = ("name", "description", "model", "system", "tools", "mcp_servers", "skills", "multiagent", "metadata", "version")

    again = await send("POST", f"{url}/v1/agents/{agent.id}", {name: read[name] for name in writable})

    assert (again.status_code, again.json()["version"]) == (200, 1)


@proves("v1.agents-list")
async def test_lists_are_paged_filtered_and_newest_first(sdk: AsyncAnthropic) -> None:
    agents = [await create(sdk, name=f"Agent {number}") for number in range(5)]
    await sdk.beta.agents.archive(agents[1].id)

    listed = [agent.id async for agent in sdk.beta.agents.list(limit=2)]
    everything = [agent.id async for agent in sdk.beta.agents.list(limit=2, include_archived=True)]
    since = [agent.id async for agent in sdk.beta.agents.list(created_at_gte=agents[3].created_at, include_archived=True)]
    until = [agent.id async for agent in sdk.beta.agents.list(created_at_lte=agents[0].created_at, include_archived=True)]

    ids = [agent.id for agent in reversed(agents)]
    assert listed == [id_ for id_ in ids if id_ != agents[1].id]
    assert everything == ids
    assert since[-1] == agents[3].id
    assert until[0] == agents[0].id
    with pytest.raises(BadRequestError, match="created_at"):
        await sdk.beta.agents.list(created_at_gte="yesterday")


@proves("v1.agents-list")
async def test_versions_are_listed_newest_first(sdk: AsyncAnthropic) -> None:
    agent = await create(sdk)
    for number in range(4):
        await sdk.beta.agents.update(agent.id, system=f"Text {number}.")

    versions = [version async for version in sdk.beta.agents.versions.list(agent.id, limit=2)]

    assert [version.version for version in versions] == [5, 4, 3, 2, 1]
    assert [version.system for version in versions[:2]] == ["Text 3.", "Text 2."]
    assert versions[-1].system is None


@proves("v1.agents-archive")
async def test_an_archived_agent_is_kept_and_not_used(sdk: AsyncAnthropic, application: Application, project: Path) -> None:
    agent = await create(sdk)

    archived = await sdk.beta.agents.archive(agent.id)

    assert archived.archived_at is not None
    assert (await sdk.beta.agents.archive(agent.id)).archived_at == archived.archived_at
    with pytest.raises(BadRequestError, match="archived"):
        await sdk.beta.agents.update(agent.id, system="New.")
    context = (await application.runtime()).context
    (name,) = [agent.name for agent in await list_agents(context, str(project))]
    with pytest.raises(AgentDefinitionProblem, match="archived"):
        await resolve_agent(context, str(project), name)


@proves("v1.agents-files")
async def test_agents_of_files_and_commands_are_listed_and_belong_to_them(
    sdk: AsyncAnthropic, application: Application, project: Path
) -> None:
    context = (await application.runtime()).context
    directory = context.home.path / "agents"
    directory.mkdir()
    (directory / "reviewer.yaml").write_text("model: scripted:echo\nenvironment: default\n")
    definition = parse_agent({"model": "scripted:echo", "limits": {"usd": 1}}, "The agent")
    await define_agent(context, str(project), "helper", definition, by="person:anna")

    found = {agent.name: agent async for agent in sdk.beta.agents.list()}

    assert sorted(found) == ["helper", "reviewer"]
    assert str(found["reviewer"].tools[0].type) == "fidelio_toolset"
    with pytest.raises(BadRequestError, match="defined by a file"):
        await sdk.beta.agents.update(found["reviewer"].id, system="Mine.")
    await sdk.beta.agents.update(found["helper"].id, system="Mine.")
    kept = (await resolve_agent(context, str(project), "helper")).definition
    assert (kept.system, kept.limits.usd) == ("Mine.", 1)


@proves("v1.agents-files")
async def test_commands_and_headers_of_servers_are_not_shown_and_not_lost(
    url: str, application: Application, project: Path
) -> None:
    servers = {"local": {"command": "/opt/secret/server"}, "far": {"url": "https://x.example.com", "headers": {"A": "hush"}}}
    data = {"model": "scripted:echo", "tools": {"mcp_servers": servers}}
    context = (await application.runtime()).context
    await define_agent(context, str(project), "helper", parse_agent(data, "The agent"), by="person:anna")

    (agent,) = (await send("GET", f"{url}/v1/agents")).json()["data"]
    (local,) = [tool for tool in agent["tools"] if tool.get("mcp_server_name") == "local"]
    local["configs"] = [{"name": "look", "permission_policy": ALLOW}]
    sent = {"tools": agent["tools"], "mcp_servers": agent["mcp_servers"]}
    answer = await send("POST", f"{url}/v1/agents/{agent['id']}", sent)

    assert answer.status_code == 200
    assert "/opt" not in answer.text
    assert "hush" not in answer.text
    changed = (await resolve_agent(context, str(project), "helper")).definition.tools.mcp_servers
    assert (changed["local"].command, changed["local"].policies) == ("/opt/secret/server", {"look": "always_allow"})
    assert changed["far"].headers == {"A": "hush"}


@proves("v1.agents-toolset")
async def test_our_own_toolset_can_be_chosen_on_the_wire(url: str) -> None:
    configs = [{"name": "shell_run", "permission_policy": {"type": "auto"}}, {"name": "session_delegate", "enabled": False}]
    ours: Any = {"type": "fidelio_toolset", "all_tools": True, "configs": configs}

    answer = await send("POST", f"{url}/v1/agents", {"name": "Ours", "model": "scripted:test", "tools": [ours]})

    assert answer.json()["tools"][0] == {
        "type": "fidelio_toolset",
        "all_tools": True,
        "default_config": {"enabled": True, "permission_policy": None},
        "configs": [
            {"name": "session_delegate", "enabled": False, "permission_policy": None},
            {"name": "shell_run", "enabled": True, "permission_policy": {"type": "auto"}},
        ],
    }

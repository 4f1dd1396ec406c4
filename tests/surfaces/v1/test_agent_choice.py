"""Which agent and environment a session gets, and how the session shows its agent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anthropic import AsyncAnthropic
from anthropic.types.beta import BetaManagedAgentsSessionAgent, BetaManagedAgentsSessionThreadAgent
from starlette.requests import Request

from fidelio.app.application import Application
from fidelio.errors import AgentDefinitionProblem
from fidelio.ledger.audit import verify_all
from fidelio.ledger.chain import ChainVerdict
from fidelio.providers.model import ModelReply, ModelRequest, TextBlock
from fidelio.runtime.sessions import NewAgentSession
from fidelio.surfaces.http.v1 import agents, environments
from fidelio.surfaces.http.v1.endpoint import ApiRequest, ApiServices
from fidelio.surfaces.http.v1.errors import ApiProblem
from tests.support import proves
from tests.surfaces.v1.strict import check_json

CUSTOM = {"type": "custom", "name": "deploy", "description": "Deploy it.", "input_schema": {"type": "object"}}


@pytest.fixture
def request_(application: Application, project: Path) -> ApiRequest:
    raw = Request({"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b""})
    return ApiRequest(raw, ApiServices(application, str(project)), "req_test")


async def begin(application: Application, project: Path, chosen: agents.ChosenAgent) -> str:
    runtime = await application.runtime()
    new = NewAgentSession(project=str(project), agent=chosen.name, version=chosen.version, variant=chosen.variant)
    return await runtime.start_session(new)


@proves("v1.agents-variant")
async def test_a_session_can_differ_from_its_agent(
    sdk: AsyncAnthropic, request_: ApiRequest, application: Application, project: Path, script: Any
) -> None:
    seen: list[ModelRequest] = []

    def reply(sent: ModelRequest) -> ModelReply:
        seen.append(sent)
        return ModelReply(content=(TextBlock("Done."),), stop_reason="end_turn")

    script(reply)
    agent = await sdk.beta.agents.create(name="A", model="scripted:test", system="Own.")
    value = {"type": "agent_with_overrides", "id": agent.id, "system": "Other.", "tools": [CUSTOM]}

    chosen = await agents.choose_agent(request_, value)
    session = await begin(application, project, chosen)
    runtime = await application.runtime()
    message = {"type": "user.message", "content": [{"type": "text", "text": "Go."}]}
    await runtime.send(session, [message], by="api", channel="api")
    async with asyncio.timeout(30):
        async for event in runtime.follow(session):
            if event.type == "session.status_idle":
                break
    record = (await runtime.load(session)).record
    shown = await agents.render_snapshot(request_, chosen.name, chosen.version, record)

    assert "Other." in seen[0].system
    assert "Own." not in seen[0].system
    assert "deploy" in [tool.name for tool in seen[0].tools]
    check_json(BetaManagedAgentsSessionAgent, shown)
    assert (shown["id"], shown["version"], shown["system"], shown["tools"]) == (agent.id, 1, "Other.", [CUSTOM])
    assert (await sdk.beta.agents.retrieve(agent.id)).system == "Own."
    verdicts = [verdict async for verdict in verify_all(runtime.context.ledger)]
    assert [verdict for verdict in verdicts if not isinstance(verdict, ChainVerdict) or verdict.problems] == []


@proves("v1.agents-variant")
async def test_the_tools_of_a_session_can_be_changed_and_nothing_else(
    sdk: AsyncAnthropic, request_: ApiRequest, application: Application, project: Path
) -> None:
    agent = await sdk.beta.agents.create(name="A", model="scripted:test")
    plain = await agents.choose_agent(request_, agent.id)
    record = (await (await application.runtime()).load(await begin(application, project, plain))).record

    changed = await agents.change_session_agent(request_, record, msgspec.convert({"tools": [CUSTOM]}, agents.Configuration))
    same = await agents.change_session_agent(request_, record, msgspec.convert({"tools": []}, agents.Configuration))

    assert (plain.variant, same.variant) == ("", "")
    assert [tool.name for tool in changed.definition.tools.custom] == ["deploy"]
    later = msgspec.structs.replace(record, agent_variant=changed.variant)
    shown = await agents.render_snapshot(request_, changed.name, changed.version, later, thread=True)
    check_json(BetaManagedAgentsSessionThreadAgent, shown)
    assert shown["tools"] == [CUSTOM]
    with pytest.raises(ApiProblem, match="only tools and mcp_servers"):
        await agents.change_session_agent(request_, record, msgspec.convert({"system": "x"}, agents.Configuration))


@proves("v1.agents-variant")
async def test_a_session_shows_the_agents_of_its_roster_in_full(
    sdk: AsyncAnthropic, request_: ApiRequest, application: Application, project: Path
) -> None:
    helper = await sdk.beta.agents.create(name="Helper", model="scripted:test", system="Help.")
    leader = await sdk.beta.agents.create(
        name="Leader", model="scripted:test", multiagent={"type": "coordinator", "agents": [helper.id, {"type": "self"}]}
    )
    await sdk.beta.agents.update(helper.id, system="Later.")
    chosen = await agents.choose_agent(request_, {"type": "agent", "id": leader.id, "version": 1})
    record = (await (await application.runtime()).load(await begin(application, project, chosen))).record

    shown = await agents.render_snapshot(request_, chosen.name, chosen.version, record)

    check_json(BetaManagedAgentsSessionAgent, shown)
    members = [(member["name"], member["version"], member["system"]) for member in shown["multiagent"]["agents"]]
    assert members == [("Helper", 1, "Help."), ("Leader", 1, None)]


@proves("v1.agents-refused")
@pytest.mark.parametrize(
    "value",
    [
        "agent_000000000000",
        7,
        {"type": "agent"},
        {"type": "agent", "id": "x"},
        {"id": "agent_000000000000"},
        {"type": "agent_with_overrides", "id": "agent_000000000000", "name": "x"},
    ],
)
async def test_what_names_no_agent_begins_no_session(request_: ApiRequest, value: Any) -> None:
    with pytest.raises(ApiProblem) as raised:
        await agents.choose_agent(request_, value)

    assert raised.value.status in (400, 404)


@proves("v1.agents-archive")
async def test_an_archived_agent_begins_no_session(sdk: AsyncAnthropic, request_: ApiRequest) -> None:
    agent = await sdk.beta.agents.create(name="A", model="scripted:test")
    await sdk.beta.agents.archive(agent.id)

    with pytest.raises(AgentDefinitionProblem, match="archived"):
        await agents.choose_agent(request_, agent.id)
    with pytest.raises(AgentDefinitionProblem, match="archived"):
        await agents.choose_agent(request_, {"type": "agent", "id": agent.id, "version": 1})


@proves("v1.agents-files")
async def test_a_session_gets_what_the_file_of_its_agent_says_now(
    sdk: AsyncAnthropic, request_: ApiRequest, application: Application
) -> None:
    directory = (await application.runtime()).context.home.path / "agents"
    directory.mkdir()
    (directory / "reviewer.yaml").write_text("model: scripted:echo\nsystem: First.\n")
    (agent,) = [agent async for agent in sdk.beta.agents.list()]
    (directory / "reviewer.yaml").write_text("model: scripted:echo\nsystem: Second.\n")

    chosen = await agents.choose_agent(request_, agent.id)

    assert (chosen.version, chosen.definition.system) == (2, "Second.")


@proves("v1.environments-create")
async def test_a_session_keeps_the_version_of_its_environment(
    sdk: AsyncAnthropic, request_: ApiRequest, application: Application, project: Path
) -> None:
    runtime = await application.runtime()
    agent = await sdk.beta.agents.create(name="A", model="scripted:test")
    made = await sdk.beta.environments.create(name="E", config={"type": "cloud", "networking": {"type": "limited"}})
    chosen = await agents.choose_agent(request_, agent.id)

    environment = await environments.choose_environment(request_, made.id)
    new = NewAgentSession(project=str(project), agent=chosen.name, environment=environment)
    record = (await runtime.load(await runtime.start_session(new))).record
    await sdk.beta.environments.update(made.id, config={"type": "cloud", "networking": {"type": "unrestricted"}})

    assert environments.environment_id(record.environment) == made.id
    kept = await runtime.environments.load(record.environment, record.environment_version)
    assert kept.environment.network == "none"
    assert (await runtime.environments.load(record.environment)).environment.network == "unrestricted"


@proves("v1.environments-named")
async def test_a_session_can_name_a_named_environment_but_no_unknown_or_archived_one(
    sdk: AsyncAnthropic, request_: ApiRequest
) -> None:
    made = await sdk.beta.environments.create(name="E")
    await sdk.beta.environments.archive(made.id)

    assert await environments.choose_environment(request_, "env_default") == "default"
    assert environments.environment_id("default") == "env_default"
    for id_ in (made.id, "env_missing", "env_000000000000", "default"):
        with pytest.raises(ApiProblem):
            await environments.choose_environment(request_, id_)

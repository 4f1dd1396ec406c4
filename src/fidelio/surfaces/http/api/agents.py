"""Operations on agents: the blueprints and the agents of the runtime that can be started, and starting them."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from fidelio.runtime.agents.versions import list_agents as list_runtime_agents
from fidelio.surfaces.http.api.operations import (
    CHANNEL,
    ApiCall,
    ApiOperation,
    Created,
    CreatedReply,
    Listed,
    Name,
    NoQuery,
    Paging,
    cut_page,
    list_items,
)
from fidelio.surfaces.http.api.sessions import Message
from fidelio.surfaces.views.agents import blueprints_json

AgentKind = Literal["blueprint", "runtime"]


class StartableAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that can be started. `error`: why a blueprint cannot be used."""

    name: str
    kind: AgentKind
    description: str | UnsetType = UNSET
    permissions: str | UnsetType = UNSET
    version: int | UnsetType = UNSET
    model: str | UnsetType = UNSET
    error: str | UnsetType = UNSET


class FirstMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How an agent is started. `name` and `project` are for blueprints; an agent of the runtime belongs to a project."""

    message: Message
    kind: AgentKind = "blueprint"
    name: Annotated[str, Meta(max_length=60)] = ""
    project: Name = ""


async def list_agents(call: ApiCall[Paging, None]) -> Listed[StartableAgent]:
    services = call.services
    listing = blueprints_json(await asyncio.to_thread(services.application.blueprints().list, services.project))
    runtime = await list_runtime_agents((await services.application.runtime()).context, services.project)
    entries = [StartableAgent(kind="blueprint", **entry) for entry in (*listing["agents"], *listing.get("broken", ()))]
    for agent in runtime:
        described: dict[str, Any] = {"description": agent.definition.description, "model": agent.definition.model}
        entries.append(StartableAgent(name=agent.name, kind="runtime", version=agent.version, **described))
    return list_items(*cut_page(entries, _key, call.query))


def _key(entry: StartableAgent) -> str:
    return f"{entry.kind}/{entry.name}"


async def start_agent(call: ApiCall[NoQuery, FirstMessage]) -> CreatedReply:
    sender, wanted, actions, agent = call.sender, call.body, call.services.actions, call.path("agent")
    if wanted.kind == "runtime":
        session = await actions.start_runtime_agent(agent, wanted.message, by=sender.person, channel=CHANNEL)
    else:
        session = await actions.start_agent(agent, wanted.message, name=wanted.name, project=wanted.project)
    return CreatedReply(Created(session), {"location": f"/api/sessions/{session}"})


OPERATIONS = (
    ApiOperation(
        method="GET",
        path="/api/agents",
        name="listAgents",
        group="Agents",
        summary="List the blueprints and the agents of the runtime that can be started, with the errors of blueprints.",
        handler=list_agents,
        query=Paging,
        result=Listed[StartableAgent],
    ),
    ApiOperation(
        method="POST",
        path="/api/agents/{agent}/sessions",
        name="startAgent",
        group="Agents",
        summary="Start a session of an agent with a first message.",
        handler=start_agent,
        body=FirstMessage,
        result=Created,
        status=201,
        failures=(404, 409),
    ),
)

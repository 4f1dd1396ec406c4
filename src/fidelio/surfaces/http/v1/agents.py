"""The group `/v1/agents`: agents with numbered versions. Also which agent a session names, and how a session shows it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from fidelio.clock import format_iso
from fidelio.errors import SessionNotFound
from fidelio.providers.model import Effort
from fidelio.providers.names import parse_model_id
from fidelio.runtime.agents.definition import AgentDefinition, parse_agent
from fidelio.runtime.agents.entries import (
    AgentEntry,
    archive_agent,
    create_agent,
    list_entries,
    list_entry_versions,
    load_entry,
    load_named,
    load_usable,
    update_agent,
)
from fidelio.runtime.agents.files import define_files
from fidelio.runtime.agents.tools import AgentTools
from fidelio.runtime.agents.versions import define_variant, load_session_agent
from fidelio.runtime.record import RuntimeRecord
from fidelio.surfaces.http.v1.agent_references import (
    AgentReference,
    MultiagentParam,
    SkillParams,
    load_roster,
    read_multiagent,
    read_skills,
    render_multiagent,
    render_reference,
    render_skills,
)
from fidelio.surfaces.http.v1.agent_tools import ServerParams, ToolParams, change_tools, render_servers, render_tools
from fidelio.surfaces.http.v1.endpoint import API_ACTOR, ApiRequest, ApiRoute
from fidelio.surfaces.http.v1.errors import ApiProblem, not_found
from fidelio.surfaces.http.v1.ids import to_session, to_wire
from fidelio.surfaces.http.v1.values import keep, patch_metadata

SERVICE_ACCOUNT = {"type": "service_account"}
DisplayName = Annotated[str, Meta(min_length=1, max_length=256)]
Description = Annotated[str, Meta(max_length=2_048)]
System = Annotated[str, Meta(max_length=100_000)]
Level = Literal["low", "medium", "high", "xhigh", "max"]


class EffortParam(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An effort in its object form."""

    type: Level


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model with its configuration."""

    id: Annotated[str, Meta(min_length=1, max_length=200)]
    effort: Level | EffortParam | None = None
    inference_geo: str | None = None
    speed: Literal["standard", "fast"] | None = None


class ExecutionIdentity(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """As whom an agent runs."""

    type: Literal["service_account", "aws_role"]


Model: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)] | ModelConfig


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an update and a session may replace of an agent. An omitted field keeps its value."""

    model: Model | UnsetType = UNSET
    system: System | UnsetType | None = UNSET
    tools: ToolParams | UnsetType | None = UNSET
    mcp_servers: ServerParams | UnsetType | None = UNSET
    skills: SkillParams | UnsetType | None = UNSET


class UpdateAgent(Configuration, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of an update."""

    name: DisplayName | UnsetType = UNSET
    description: Description | UnsetType | None = UNSET
    metadata: dict[str, str | None] | UnsetType | None = UNSET
    multiagent: MultiagentParam | UnsetType | None = UNSET
    execution_identity: ExecutionIdentity | UnsetType | None = UNSET
    version: Annotated[int, Meta(ge=1)] | None = None


class CreateAgent(Configuration, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The body of a creation."""

    name: DisplayName
    model: Model
    description: Description | None = None
    metadata: dict[str, str] | None = None
    multiagent: MultiagentParam | None = None
    execution_identity: ExecutionIdentity | None = None


class AgentWithOverrides(
    Configuration, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="type", tag="agent_with_overrides"
):
    """An agent of which a session replaces a part."""

    id: str
    version: Annotated[int, Meta(ge=1)] | None = None


# Which agent a session has, as the body of a request names it.
AgentParam: TypeAlias = str | AgentReference | AgentWithOverrides


class ChosenAgent(msgspec.Struct, frozen=True):
    """An agent for a session. `variant`: a definition that replaces that of the version."""

    name: str
    version: int
    variant: str
    definition: AgentDefinition


async def choose_agent(request: ApiRequest, value: AgentParam | Any) -> ChosenAgent:
    """The agent that a body names. Raises 404 if it is unknown, and 400 if it is archived or cannot be used."""
    param = value if isinstance(value, str | AgentReference | AgentWithOverrides) else _read_param(value)
    id_, version = (param, None) if isinstance(param, str) else (param.id, param.version)
    entry = await _load(request, id_, version, usable=True)
    if not isinstance(param, AgentWithOverrides):
        return ChosenAgent(entry.name, entry.version, "", entry.definition)
    changed = await _configure(request, entry.definition, param)
    variant = await _store_variant(request, entry.name, entry.definition, changed)
    return ChosenAgent(entry.name, entry.version, variant, changed)


async def change_session_agent(request: ApiRequest, record: RuntimeRecord, change: Configuration) -> ChosenAgent:
    """The agent of a session after an update of the session. Only `tools` and `mcp_servers` may be in it."""
    if any(field is not UNSET for field in (change.model, change.system, change.skills)):
        raise ApiProblem("agent: only tools and mcp_servers can be changed in a session.")
    context = (await request.services.runtime()).context
    agent = await load_session_agent(context, record)
    changed = await _configure(request, agent.definition, change)
    variant = record.agent_variant
    if changed != agent.definition:
        variant = await _store_variant(request, agent.name, agent.definition, changed)
    return ChosenAgent(agent.name, agent.version, variant, changed)


async def render_snapshot(
    request: ApiRequest, name: str, version: int, record: RuntimeRecord, *, thread: bool = False
) -> dict[str, Any]:
    """The agent of a session as the session has it; that of a `thread` without its roster."""
    context = (await request.services.runtime()).context
    entry = await load_named(context, request.project, name, version)
    if record.agent_variant:
        entry = replace(entry, definition=(await load_session_agent(context, record)).definition)
    if record.model:
        entry = replace(entry, definition=replace(entry.definition, model=record.model))
    shown = _render_definition(entry)
    if thread:
        return shown
    members = [_render_definition(member) for member in await load_roster(request, entry)]
    return {**shown, "multiagent": render_multiagent(entry.definition.multiagent, members)}


async def render_agent(request: ApiRequest, entry: AgentEntry) -> dict[str, Any]:
    roster = [render_reference(member) for member in await load_roster(request, entry)]
    return {
        **_render_definition(entry),
        "multiagent": render_multiagent(entry.definition.multiagent, roster),
        "metadata": entry.definition.metadata,
        "created_at": format_iso(entry.created_at),
        "updated_at": format_iso(entry.updated_at),
        "archived_at": format_iso(entry.archived_at) if entry.archived_at else None,
    }


async def _create(request: ApiRequest) -> Any:
    await request.require_key_holder()
    body = await request.body(CreateAgent)
    _refuse_identity(body.execution_identity)
    blank = AgentDefinition(model="", title=body.name, description=body.description or "", tools=AgentTools(toolset="none"))
    definition = await _configure(request, replace(blank, metadata=patch_metadata({}, body.metadata)), body, check=False)
    if body.multiagent is not None:
        definition = replace(definition, multiagent=await read_multiagent(request, body.multiagent, None))
    if definition.tools.toolset != "fidelio_toolset":
        # Only these tools can read the skills of the project's files.
        definition = replace(definition, skills=replace(definition.skills, include=()))
    context = (await request.services.runtime()).context
    checked = _check(definition)
    return await render_agent(
        request, await create_agent(context, request.project, checked, by=API_ACTOR, key=request.idempotency_key)
    )


async def _retrieve(request: ApiRequest) -> Any:
    return await render_agent(request, await _load(request, request.path("agent_id"), _read_version(request)))


async def _update(request: ApiRequest) -> Any:
    await request.require_key_holder()
    body = await request.body(UpdateAgent)
    if body.execution_identity is not UNSET:
        _refuse_identity(body.execution_identity)
    context, id_ = (await request.services.runtime()).context, request.path("agent_id")

    async def change(entry: AgentEntry) -> AgentDefinition:
        return await _apply(request, entry, body)

    session = (await _load(request, id_)).id
    updated = await update_agent(context, request.project, session, change, by=API_ACTOR, version=body.version)
    return await render_agent(request, updated)


async def _archive(request: ApiRequest) -> Any:
    await request.require_key_holder()
    entry, context = await _load(request, request.path("agent_id")), (await request.services.runtime()).context
    return await render_agent(request, await archive_agent(context, request.project, entry.id, by=API_ACTOR))


async def _list(request: ApiRequest) -> Any:
    limit, times, archived = request.limit(), request.times("created_at"), request.flag("include_archived")
    list_ = f"agents:{times.first}:{times.last}:{archived}"
    cursor = request.cursor(list_)
    context = (await request.services.runtime()).context
    if cursor is None:
        await define_files(context, request.project)

    def accept(entry: AgentEntry) -> bool:
        return entry.created_at in times and (archived or not entry.archived_at)

    page = await list_entries(context, request.project, accept=accept, cursor=cursor, limit=limit)
    return request.page(list_, [await render_agent(request, entry) for entry in page.items], page.next)


async def _list_versions(request: ApiRequest) -> Any:
    entry, limit = await _load(request, request.path("agent_id")), request.limit()
    list_ = f"agent-versions:{entry.id}"
    context = (await request.services.runtime()).context
    found = await list_entry_versions(context, entry, before=request.cursor(list_), limit=limit)
    position = found[-1].version if found and found[-1].version > 1 else None
    return request.page(list_, [await render_agent(request, version) for version in found], position)


async def _load(request: ApiRequest, id_: str, version: int | None = None, *, usable: bool = False) -> AgentEntry:
    context = (await request.services.runtime()).context
    load = load_usable if usable else load_entry
    try:
        return await load(context, request.project, to_session("agent", id_), version)
    except SessionNotFound as error:
        raise not_found("Agent", f"{id_}, version {version}" if version else id_) from error


def _read_version(request: ApiRequest) -> int | None:
    text = request.query("version")
    if text and not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
        raise ApiProblem(f"version: {text!r:.80} is not a number from 1.")
    return int(text) if text else None


def _read_param(value: Any) -> AgentReference | AgentWithOverrides:
    try:
        return msgspec.convert(value, AgentReference | AgentWithOverrides)
    except msgspec.ValidationError as error:
        raise ApiProblem(f"agent: {error}") from error


async def _apply(request: ApiRequest, entry: AgentEntry, body: UpdateAgent) -> AgentDefinition:
    former = entry.definition
    definition = await _configure(request, former, body, check=False)
    multiagent = former.multiagent
    if body.multiagent is None:
        multiagent = None
    elif not isinstance(body.multiagent, UnsetType):
        multiagent = await read_multiagent(request, body.multiagent, former.multiagent, entry.id)
    changed = replace(
        definition,
        title=keep(body.name, former.title, ""),
        description=keep(body.description, former.description, ""),
        metadata=patch_metadata(former.metadata, body.metadata),
        multiagent=multiagent,
    )
    return former if changed == former else _check(changed)


async def _configure(
    request: ApiRequest, former: AgentDefinition, change: Configuration, *, check: bool = True
) -> AgentDefinition:
    """The definition with what a body replaces of it."""
    model, effort = _read_model(change.model, former)
    tools = keep(change.tools, None, ())
    servers = keep(change.mcp_servers, None, ())
    skills = former.skills
    if not isinstance(change.skills, UnsetType):
        skills = replace(skills, references=await read_skills(request, change.skills or ()))
    changed = replace(
        former,
        model=model,
        effort=effort,
        system=keep(change.system, former.system, ""),
        tools=change_tools(former.tools, tools, servers),
        skills=skills,
    )
    return _check(changed) if check and changed != former else changed


def _check(definition: AgentDefinition) -> AgentDefinition:
    """What holds for files holds here: names of tools, schemas, addresses, models."""
    return parse_agent(msgspec.to_builtins(definition), "The agent")


def _read_model(model: Model | UnsetType, former: AgentDefinition) -> tuple[str, Effort]:
    if isinstance(model, UnsetType):
        return former.model, former.effort
    if isinstance(model, str):
        return model, former.effort
    if model.speed == "fast":
        raise ApiProblem("model.speed: `fast` is not offered here. Leave it out.")
    if model.inference_geo is not None:
        raise ApiProblem("model.inference_geo is not offered here: the key of the model's vendor decides it. Leave it out.")
    if model.effort is None:
        return model.id, former.effort
    effort = model.effort if isinstance(model.effort, str) else model.effort.type
    # What was shown as the default of the model, sent back, does not make it a choice.
    is_default = not former.effort and model.id == former.model and effort == find_default_effort(model.id)
    return model.id, "" if is_default else effort


def find_default_effort(model: str) -> Level:
    """How hard a model thinks unless somebody chooses."""
    return "medium" if parse_model_id(model)[0] == "openai" else "high"


def _refuse_identity(identity: ExecutionIdentity | UnsetType | None) -> None:
    if isinstance(identity, ExecutionIdentity) and identity.type != "service_account":
        raise ApiProblem(f"execution_identity: {identity.type} is not offered here. Use service_account, or leave it out.")


async def _store_variant(request: ApiRequest, name: str, former: AgentDefinition, changed: AgentDefinition) -> str:
    if changed == former:
        return ""
    context = (await request.services.runtime()).context
    return await define_variant(context, request.project, name, changed, by=API_ACTOR)


def _render_definition(entry: AgentEntry) -> dict[str, Any]:
    """What an agent and its snapshot have in common."""
    definition = entry.definition
    effort = definition.effort or find_default_effort(definition.model)
    return {
        "id": to_wire("agent", entry.id),
        "type": "agent",
        "name": definition.title or entry.name,
        "version": entry.version,
        "description": definition.description or None,
        "model": {"id": definition.model, "effort": {"type": effort}, "speed": "standard"},
        "system": definition.system or None,
        "tools": render_tools(definition.tools),
        "mcp_servers": render_servers(definition.tools),
        "skills": render_skills(definition.skills.references),
        "execution_identity": SERVICE_ACCOUNT,
    }


ROUTES = (
    ApiRoute("/v1/agents", {"GET": _list, "POST": _create}),
    ApiRoute("/v1/agents/{agent_id}", {"GET": _retrieve, "POST": _update}),
    ApiRoute("/v1/agents/{agent_id}/archive", {"POST": _archive}),
    ApiRoute("/v1/agents/{agent_id}/versions", {"GET": _list_versions}),
)

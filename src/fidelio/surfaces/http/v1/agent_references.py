"""What an agent refers to, on the wire: the agents of its roster (`multiagent`) and its skills.

An agent may delegate to saved agents of its project, each in a fixed version, and to itself. An advisor, workflow runs and
inline agents are not offered here: what would enable one is refused, and they come back as disabled. Skills are those that
programs have uploaded to the project.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from fidelio.errors import SessionNotFound
from fidelio.runtime.agents.definition import SELF, Multiagent, RosterEntry, SkillReference
from fidelio.runtime.agents.entries import AgentEntry, load_entry, load_named
from fidelio.runtime.skills.uploaded import StoredVersion
from fidelio.surfaces.http.v1.endpoint import ApiRequest
from fidelio.surfaces.http.v1.errors import ApiProblem, not_found
from fidelio.surfaces.http.v1.ids import to_session, to_wire
from fidelio.surfaces.http.v1.skills import find_skill

COORDINATOR: Literal["coordinator"] = "coordinator"
MEMBERS: Literal["multiagent_20261001"] = "multiagent_20261001"
DISABLED = {"type": "disabled"}


class AgentReference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="agent"):
    """A version of an agent; the newest without a number."""

    id: str
    version: Annotated[int, Meta(ge=1)] | None = None


class SelfReference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="self"):
    """The agent that owns the roster."""


class AdvisorReference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="advisor"):
    """A model that may be consulted."""

    model: str


class Switch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part that is enabled or not. `model`: that of an advisor."""

    type: Literal["enabled", "disabled"]
    model: str | None = None


RosterItem: TypeAlias = str | AgentReference | SelfReference
Items: TypeAlias = Annotated[tuple[RosterItem, ...], Meta(max_length=20)]


class Subagents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who may be spawned as a thread."""

    type: Literal["enabled", "disabled"]
    inline_agents: Switch | UnsetType | None = UNSET
    predefined_agents: Items | UnsetType | None = UNSET


class Coordinator(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag=COORDINATOR):
    """A roster."""

    agents: Annotated[tuple[RosterItem | AdvisorReference, ...], Meta(min_length=1, max_length=20)]


class Members(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag=MEMBERS):
    """Advisor, subagents and workflows, each enabled or not."""

    advisor: Switch | UnsetType | None = UNSET
    subagents: Subagents | UnsetType | None = UNSET
    workflows: Subagents | UnsetType | None = UNSET


MultiagentParam: TypeAlias = Coordinator | Members


class SkillParam(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A skill of an agent; its newest version without a version."""

    type: Literal["custom", "anthropic"]
    skill_id: Annotated[str, Meta(min_length=1, max_length=100)]
    version: Annotated[str, Meta(min_length=1, max_length=100)] | None = None


SkillParams: TypeAlias = Annotated[tuple[SkillParam, ...], Meta(max_length=64)]


async def read_multiagent(request: ApiRequest, param: MultiagentParam, former: Multiagent | None, own: str = "") -> Multiagent:
    """The roster of a definition. `own`: the id of the agent that is changed. Raises 400, or 404 for an unknown agent."""
    if isinstance(param, Coordinator):
        if any(isinstance(item, AdvisorReference) for item in param.agents):
            raise _refuse("agents", "an advisor")
        items = [item for item in param.agents if not isinstance(item, AdvisorReference)]
        return Multiagent(agents=await _read_items(request, items, own))
    _refuse_members(param)
    former_agents = former.agents if former is not None and former.form == MEMBERS else ()
    return Multiagent(agents=await _read_subagents(request, param, former_agents, own), form=MEMBERS)


def _refuse_members(param: Members) -> None:
    if isinstance(param.advisor, Switch) and param.advisor.type == "enabled":
        raise _refuse("advisor", "an advisor")
    if isinstance(param.workflows, Subagents) and param.workflows.type == "enabled":
        raise _refuse("workflows", "workflow runs are")
    subagents = param.subagents
    inline = subagents.inline_agents if isinstance(subagents, Subagents) else UNSET
    if isinstance(inline, Switch) and inline.type == "enabled":
        raise _refuse("subagents.inline_agents", "inline agents are")


async def _read_subagents(
    request: ApiRequest, param: Members, former_agents: tuple[RosterEntry, ...], own: str
) -> tuple[RosterEntry, ...]:
    subagents = param.subagents
    if isinstance(subagents, Subagents) and subagents.type == "disabled":
        return ()
    sent = subagents.predefined_agents if isinstance(subagents, Subagents) else UNSET
    if sent is not UNSET:
        former_agents = await _read_items(request, sent or (), own)
    if not former_agents:
        message = "multiagent.subagents: name at least one agent in predefined_agents: inline agents are not offered here."
        raise ApiProblem(message)
    return former_agents


async def _read_items(request: ApiRequest, items: Sequence[RosterItem], own: str) -> tuple[RosterEntry, ...]:
    entries = [await _read_item(request, item, own) for item in items]
    names = [entry.agent for entry in entries]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ApiProblem(f"multiagent: the agent {twice!r:.80} is there twice. Name each once.")
    return tuple(entries)


async def _read_item(request: ApiRequest, item: RosterItem, own: str) -> RosterEntry:
    if isinstance(item, SelfReference):
        return RosterEntry(agent=SELF)
    id_, version = (item, None) if isinstance(item, str) else (item.id, item.version)
    session = to_session("agent", id_)
    if session == own:
        return RosterEntry(agent=SELF)
    context = (await request.services.runtime()).context
    try:
        entry = await load_entry(context, request.project, session, version)
    except SessionNotFound as error:
        raise not_found("Agent", f"{id_}, version {version}" if version else id_) from error
    if entry.archived_at:
        raise ApiProblem(f"multiagent: the agent {id_} is archived. Name another one.")
    if entry.definition.multiagent is not None:
        raise ApiProblem(f"multiagent: the agent {id_} has a roster of its own, so it cannot be in another.")
    return RosterEntry(agent=entry.name, version=entry.version)


async def load_roster(request: ApiRequest, owner: AgentEntry) -> list[AgentEntry]:
    """The agents of a roster, each in its version."""
    multiagent, context = owner.definition.multiagent, (await request.services.runtime()).context
    return [
        owner if entry.agent == SELF else await load_named(context, request.project, entry.agent, entry.version or None)
        for entry in (multiagent.agents if multiagent else ())
    ]


def render_reference(entry: AgentEntry) -> dict[str, Any]:
    return {"type": "agent", "id": to_wire("agent", entry.id), "version": entry.version}


def render_multiagent(multiagent: Multiagent | None, agents: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """`agents`: those of the roster, as references or in full."""
    if multiagent is None:
        return None
    listed = list(agents)
    if multiagent.form == COORDINATOR:
        return {"type": COORDINATOR, "agents": listed}
    enabled = {"type": "enabled", "inline_agents": DISABLED, "predefined_agents": listed}
    return {"type": MEMBERS, "advisor": DISABLED, "subagents": enabled if listed else DISABLED, "workflows": DISABLED}


def _refuse(field: str, what: str) -> ApiProblem:
    verb = what if what.endswith(" are") else f"{what} is"
    return ApiProblem(f"multiagent.{field}: {verb} not offered here. Disable it, or leave it out.")


async def read_skills(request: ApiRequest, params: Sequence[SkillParam]) -> tuple[SkillReference, ...]:
    """The skills of a definition. Raises 400 for what is no uploaded skill, and 404 if it is unknown."""
    ids = [param.skill_id for param in params]
    if twice := next((id_ for id_ in ids if ids.count(id_) > 1), ""):
        raise ApiProblem(f"skills: {twice!r:.80} is there twice. Name each once.")
    found = [await _read_skill(request, param) for param in params]
    names = [version.content.name for version in found]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise ApiProblem(f"skills: two of them are called {doubled}. An agent has one of each name.")
    return tuple(SkillReference(id=version.content.skill, version=version.id) for version in found)


async def _read_skill(request: ApiRequest, param: SkillParam) -> StoredVersion:
    if param.type != "custom":
        raise ApiProblem(f"skills: {param.skill_id!r:.80} is a skill of the vendor. Upload it with /v1/skills, and use its id.")
    return await find_skill(request, param.skill_id, param.version)


def render_skills(skills: Iterable[SkillReference]) -> list[dict[str, Any]]:
    return [
        {"type": "custom", "skill_id": to_wire("skill", skill.id), "version": to_wire("skillver", skill.version)}
        for skill in skills
    ]

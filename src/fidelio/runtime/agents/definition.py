"""The definition of an agent: what a person writes into `.fidelio/agents/NAME.yaml`, or a program sends. Pure.

Every different content of a name is an immutable numbered version. A session keeps the version that it began with.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fidelio.errors import AgentDefinitionProblem
from fidelio.providers.model import Effort, ModelProblem
from fidelio.providers.names import parse_model_id
from fidelio.runtime.agents.tools import (
    MAX_SCHEMA_BYTES,
    VAULT,
    AgentTools,
    CustomTool,
    Name,
    ServerDefinition,
    describe_server,
    find_tool_problems,
    list_unasked,
)

__all__ = [
    "DEFAULT_USD",
    "MAX_SCHEMA_BYTES",
    "NO_GRADER",
    "SELF",
    "VAULT",
    "AgentDefinition",
    "AgentSkills",
    "AgentTools",
    "AgentVersion",
    "Budget",
    "CustomTool",
    "Multiagent",
    "RosterEntry",
    "ServerDefinition",
    "SkillReference",
    "check_agent_name",
    "decode_agent",
    "describe_effect",
    "parse_agent",
]

# A grader that is switched off: criteria without a check stay unverified.
NO_GRADER = "none"
NAME_RULE = "Use 1 to 60 letters, digits, dashes and underscores."
# In a roster: the agent itself.
SELF = "self"
_AGENT_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")


class SkillReference(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A skill that a program has uploaded, in the version that the agent was defined with: the ids of their objects."""

    id: Annotated[str, Meta(min_length=1, max_length=100)]
    version: Annotated[str, Meta(min_length=1, max_length=100)]


class AgentSkills(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Which skills the agent sees: of those in files all, or those of `include`, and the uploaded ones of `references`."""

    enabled: bool = True
    include: tuple[str, ...] | None = None
    references: Annotated[tuple[SkillReference, ...], Meta(max_length=64)] = ()


class RosterEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """An agent to which another may delegate: a name, or `self`. Version 0: the newest when the work begins."""

    agent: Name
    version: Annotated[int, Meta(ge=0)] = 0


class Multiagent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The agents to which an agent may delegate. `form` is that of the program that has defined it, which gets it back."""

    agents: Annotated[tuple[RosterEntry, ...], Meta(max_length=20)] = ()
    form: Literal["coordinator", "multiagent_20261001"] = "coordinator"


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Limits of a session. 0 switches a limit off. `usd` None: the default of 5, which an unknown price switches off."""

    tokens: Annotated[int, Meta(ge=0)] = 1_000_000
    usd: Annotated[float, Meta(ge=0)] | None = None
    wakes_per_day: Annotated[int, Meta(ge=0)] = 50
    wall_seconds: Annotated[int, Meta(ge=0)] = 0


DEFAULT_USD = 5.0


class AgentDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The content of an agent."""

    model: Annotated[str, Meta(min_length=1, max_length=200)]
    # The name for people; empty: that of the agent.
    title: Annotated[str, Meta(max_length=256)] = ""
    description: Annotated[str, Meta(max_length=2_048)] = ""
    system: Annotated[str, Meta(max_length=100_000)] = ""
    tools: AgentTools = AgentTools()
    skills: AgentSkills = AgentSkills()
    limits: Budget = Budget()
    environment: Annotated[str, Meta(min_length=1, max_length=60)] = "default"
    # The model that grades criteria without a check; empty: the agent's own.
    grader: Annotated[str, Meta(max_length=200)] = ""
    max_output_tokens: Annotated[int, Meta(ge=256, le=200_000)] = 8_192
    # How hard the model thinks, where the model has such a setting; empty: the default of the model.
    effort: Effort = ""
    multiagent: Multiagent | None = None
    # What a program keeps with the agent. It is no part of any prompt.
    metadata: Annotated[
        dict[Annotated[str, Meta(min_length=1, max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)
    ] = {}


class AgentVersion(msgspec.Struct, frozen=True):
    """An immutable version of an agent in a project."""

    name: str
    version: int
    definition: AgentDefinition


def parse_agent(data: Any, where: str) -> AgentDefinition:
    """Check the content of an agent. Raises `AgentDefinitionProblem`, which names the key."""
    try:
        definition = msgspec.convert(data, AgentDefinition)
    except msgspec.ValidationError as error:
        remedy = f"The keys are {', '.join(AgentDefinition.__struct_fields__)}; model is required."
        raise AgentDefinitionProblem(f"{where} is no agent: {error}.", remedy=remedy) from error
    if problem := next(_find_problems(definition), ""):
        raise AgentDefinitionProblem(f"{where} cannot be used: {problem}")
    return definition


def decode_agent(text: str, where: str) -> AgentDefinition:
    """Read a stored version, which was checked when it was defined. A tool that was removed since then is no error here."""
    try:
        return _DECODER.decode(text)
    except msgspec.MsgspecError as error:
        raise AgentDefinitionProblem(f"{where} cannot be read: {error}.", remedy="Define it again.") from error


def check_agent_name(name: str) -> str:
    if not _AGENT_NAME.fullmatch(name):
        raise AgentDefinitionProblem(f"{name!r:.80} is not a name of an agent.", remedy=NAME_RULE)
    return name


def describe_effect(definition: AgentDefinition) -> str:
    """What an agent has and may do without asking, in words for the person who decides whether to trust it."""
    tools = definition.tools
    unasked = list_unasked(tools)
    words = [f"model {definition.model}", f"environment {definition.environment}"]
    words += [f"does not ask for {', '.join(unasked)}"] if unasked else []
    words += [f"MCP server {name}: {describe_server(server):.300}" for name, server in sorted(tools.mcp_servers.items())]
    return ", ".join(words)


def _find_problems(definition: AgentDefinition) -> Iterator[str]:
    yield from _find_model_problems("model", definition.model)
    if definition.grader not in ("", NO_GRADER):
        yield from _find_model_problems("grader", definition.grader)
    yield from find_tool_problems(definition.tools)
    if definition.multiagent is not None:
        yield from _find_roster_problems(definition.multiagent)


def _find_model_problems(key: str, model: str) -> Iterator[str]:
    try:
        parse_model_id(model)
    except ModelProblem as problem:
        yield f"{key}: {problem}"


def _find_roster_problems(multiagent: Multiagent) -> Iterator[str]:
    if not multiagent.agents and multiagent.form == "coordinator":
        yield "multiagent names no agent. Name 1 to 20 in multiagent.agents, or leave it out."
    for name, count in Counter(entry.agent for entry in multiagent.agents).items():
        if count > 1:
            yield f"multiagent names the agent {name} {count} times. Name each once."


_DECODER = msgspec.json.Decoder(AgentDefinition)

"""The definition of an agent: what a person writes into `.fidelio/agents/NAME.yaml`, or a program sends. Pure.

Every different content of a name is an immutable numbered version. A session keeps the version that it began with.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fidelio.errors import AgentDefinitionProblem
from fidelio.runtime.tools.model import Policy

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Toolset = Literal["fidelio_toolset"]
# A grader that is switched off: criteria without a check stay unverified.
NO_GRADER = "none"


class CustomTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A tool that the caller carries out: the session pauses until its result arrives."""

    name: Name
    description: Annotated[str, Meta(min_length=1, max_length=2_000)]
    input_schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})


class ServerDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """An MCP server of the user whose tools the agent gets. It needs a command or a URL.

    `headers` and `env` may hold `vault:VAULT/NAME`, which only our own client replaces by the secret value.
    """

    command: str = ""
    args: tuple[str, ...] = ()
    url: str = ""
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    # Policies by tool; the others ask.
    policies: dict[str, Policy] = {}


class AgentTools(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The tools of an agent. `only` names all that it has, `without` those that it has not."""

    toolset: Toolset = "fidelio_toolset"
    only: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    # Declare every tool to the model, in place of the core tools and `tools_open`.
    all_tools: bool = False
    policies: dict[str, Policy] = {}
    custom: Annotated[tuple[CustomTool, ...], Meta(max_length=50)] = ()
    mcp_servers: Annotated[dict[Name, ServerDefinition], Meta(max_length=20)] = {}


class AgentSkills(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Which skills the agent sees; `include` None means all."""

    enabled: bool = True
    include: tuple[str, ...] | None = None


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
    description: Annotated[str, Meta(max_length=1_000)] = ""
    system: Annotated[str, Meta(max_length=100_000)] = ""
    tools: AgentTools = AgentTools()
    skills: AgentSkills = AgentSkills()
    limits: Budget = Budget()
    environment: Annotated[str, Meta(min_length=1, max_length=60)] = "default"
    # The model that grades criteria without a check; empty: the agent's own.
    grader: Annotated[str, Meta(max_length=200)] = ""
    max_output_tokens: Annotated[int, Meta(ge=256, le=200_000)] = 8_192


class AgentVersion(msgspec.Struct, frozen=True):
    """An immutable version of an agent in a project."""

    name: str
    version: int
    definition: AgentDefinition


def parse_agent(data: Any, where: str) -> AgentDefinition:
    """Check the content of an agent. Raises `AgentDefinitionProblem`, which names the key."""
    try:
        return msgspec.convert(data, AgentDefinition)
    except msgspec.ValidationError as error:
        remedy = f"The keys are {', '.join(AgentDefinition.__struct_fields__)}; model is required."
        raise AgentDefinitionProblem(f"{where} is no agent: {error}.", remedy=remedy) from error

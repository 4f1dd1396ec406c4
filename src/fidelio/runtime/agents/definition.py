"""The definition of an agent: what a person writes into `.fidelio/agents/NAME.yaml`, or a program sends. Pure.

Every different content of a name is an immutable numbered version. A session keeps the version that it began with.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fidelio.errors import AgentDefinitionProblem
from fidelio.providers.model import ModelProblem
from fidelio.providers.names import parse_model_id
from fidelio.runtime.tools.definitions import DEFINITIONS, TOOL_OF_ACTION
from fidelio.runtime.tools.model import Policy
from fidelio.sandbox.actions import ACTIONS
from fidelio.validation import find_schema_problem

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Toolset = Literal["fidelio_toolset"]
# A grader that is switched off: criteria without a check stay unverified.
NO_GRADER = "none"
NAME_RULE = "Use 1 to 60 letters, digits, dashes and underscores."
MAX_SCHEMA_BYTES = 20_000
VAULT = "vault:"
_AGENT_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
_VAULT_VALUE = re.compile(r"vault:[A-Za-z0-9_-]{1,60}(/[A-Za-z0-9_.-]{1,100})?")


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
    unasked = sorted(name for name, policy in tools.policies.items() if policy != "always_ask")
    unasked += sorted(f"{name}: {tool}" for name, tool in _list_unasked(tools))
    words = [f"model {definition.model}", f"environment {definition.environment}"]
    words += [f"does not ask for {', '.join(unasked)}"] if unasked else []
    words += [f"MCP server {name}: {_describe_server(server):.300}" for name, server in sorted(tools.mcp_servers.items())]
    return ", ".join(words)


def _list_unasked(tools: AgentTools) -> Iterator[tuple[str, str]]:
    for name, server in tools.mcp_servers.items():
        yield from ((name, tool) for tool, policy in server.policies.items() if policy != "always_ask")


def _describe_server(server: ServerDefinition) -> str:
    return server.url or " ".join((server.command, *server.args))


def _find_problems(definition: AgentDefinition) -> Iterator[str]:
    yield from _find_model_problems("model", definition.model)
    if definition.grader not in ("", NO_GRADER):
        yield from _find_model_problems("grader", definition.grader)
    yield from _find_tool_problems(definition.tools)
    yield from _find_custom_problems(definition.tools.custom)
    for name, server in definition.tools.mcp_servers.items():
        yield from (f"the MCP server {name} {problem}" for problem in _find_server_problems(server))


def _find_model_problems(key: str, model: str) -> Iterator[str]:
    try:
        parse_model_id(model)
    except ModelProblem as problem:
        yield f"{key}: {problem}"


def _find_tool_problems(tools: AgentTools) -> Iterator[str]:
    own = {tool.name for tool in tools.custom}
    named = (("only", tools.only or ()), ("without", tools.without))
    for key, names in named:
        for name in names:
            if name not in DEFINITIONS and name not in own:
                yield f"{name!r:.80} in tools.{key} is not a tool. The tools are {_join({*DEFINITIONS, *own})}."
    known = {*DEFINITIONS, *ACTIONS, *TOOL_OF_ACTION}
    for name in tools.policies:
        if name not in known:
            yield f"{name!r:.80} in tools.policies is neither a tool nor an action. Use one of {_join(known)}."


def _find_custom_problems(custom: Iterable[CustomTool]) -> Iterator[str]:
    tools = tuple(custom)
    for name, count in Counter(tool.name for tool in tools).items():
        if count > 1 or name in DEFINITIONS:
            yield f"the custom tool {name} has the name of another tool. Choose another name."
    for tool in tools:
        if problem := _find_input_problem(tool.input_schema):
            yield f"the input_schema of the custom tool {tool.name} {problem}"


def _find_input_problem(schema: dict[str, Any]) -> str:
    if schema.get("type") != "object":
        return "must have `type: object`."
    if len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
        return f"has more than {MAX_SCHEMA_BYTES} bytes. Every request to the model carries it, so shorten it."
    problem = find_schema_problem(schema)
    return f"is not a valid JSON Schema: {problem}" if problem else ""


def _find_server_problems(server: ServerDefinition) -> Iterator[str]:
    if bool(server.command) == bool(server.url):
        yield "needs a command or a url, and not both."
    if server.url and not server.url.startswith(("http://", "https://")):
        yield f"has the url {server.url!r:.80}. Write one that begins with https:// or http://."
    if server.url and (server.args or server.env):
        yield "has a url, so it takes headers; args and env belong to a command."
    if server.command and server.headers:
        yield "has a command, so it takes args and env; headers belong to a url."
    for key, value in (*server.env.items(), *server.headers.items()):
        if value.startswith(VAULT) and not _VAULT_VALUE.fullmatch(value):
            yield f"has the value {value!r:.80} of {key}. Write vault:NAME."


def _join(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


_DECODER = msgspec.json.Decoder(AgentDefinition)

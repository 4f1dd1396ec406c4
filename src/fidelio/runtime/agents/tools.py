"""The tools of an agent as its definition names them: a toolset, the caller's own tools, and MCP servers. Pure.

An agent has the tools of one toolset: those of Fidelio, or those of `agent_toolset_20260401`, whose names other agent servers
share, or none. Some names are in both with other inputs, so no agent has both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fidelio.runtime.tools.definitions import DEFINITIONS, TOOL_OF_ACTION
from fidelio.runtime.tools.model import Policy
from fidelio.sandbox.actions import ACTIONS
from fidelio.validation import find_schema_problem

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
ToolName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,128}$")]
Toolset = Literal["fidelio_toolset", "agent_toolset_20260401", "none"]
AGENT_TOOLSET: Toolset = "agent_toolset_20260401"
AGENT_TOOLS = ("bash", "edit", "read", "write", "glob", "grep", "web_fetch", "web_search")
# The name by which a policy is set for all other tools of a toolset or of an MCP server.
ANY_TOOL = "*"
# The policies that ask for every call.
_ASKING: frozenset[Policy] = frozenset({"always_ask", "proven"})
MAX_SCHEMA_BYTES = 20_000
MAX_CUSTOM_TOOLS = 256
VAULT = "vault:"
_VAULT_VALUE = re.compile(r"vault:[A-Za-z0-9_-]{1,60}(/[A-Za-z0-9_.-]{1,100})?")
_DOMAIN = re.compile(r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}", re.IGNORECASE)


class CustomTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A tool that the caller carries out: the session pauses until its result arrives."""

    name: ToolName
    description: Annotated[str, Meta(min_length=1, max_length=2_000)]
    input_schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})


class ServerDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """An MCP server of the user whose tools the agent gets. It needs a command or a URL.

    `headers` and `env` may hold `vault:VAULT/NAME`, which only our own client replaces by the secret value. `only` names all
    tools that the agent has of it, `without` those that it has not.
    """

    command: str = ""
    args: tuple[str, ...] = ()
    url: str = ""
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    # Policies by tool, `*` for all others, which otherwise ask.
    policies: dict[str, Policy] = {}
    only: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()

    def offers(self, tool: str) -> bool:
        """Whether the agent has a tool that the server lists."""
        return tool not in self.without and (self.only is None or tool in self.only)


class WebOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Which hosts a tool for the web may use, with their subdomains; at most a single list. 0 tokens: its own limit."""

    allowed_domains: Annotated[tuple[str, ...], Meta(max_length=64)] = ()
    blocked_domains: Annotated[tuple[str, ...], Meta(max_length=64)] = ()
    max_content_tokens: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


class AgentTools(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The tools of an agent. `only` names all that it has of its toolset, `without` those that it has not."""

    toolset: Toolset = "fidelio_toolset"
    only: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    # Declare every tool to the model, in place of the core tools and `tools_open`.
    all_tools: bool = False
    policies: dict[str, Policy] = {}
    custom: Annotated[tuple[CustomTool, ...], Meta(max_length=MAX_CUSTOM_TOOLS)] = ()
    mcp_servers: Annotated[dict[Name, ServerDefinition], Meta(max_length=20)] = {}
    web_fetch: WebOptions = WebOptions()
    web_search: WebOptions = WebOptions()

    def offers(self, tool: str) -> bool:
        """Whether the agent has a tool of its toolset."""
        return tool not in self.without and (self.only is None or tool in self.only)

    def find_policy(self, tool: str) -> Policy:
        """The policy of a tool of `agent_toolset_20260401`: its own, else that of all (`*`), else it does not ask."""
        return self.policies.get(tool) or self.policies.get(ANY_TOOL, "always_allow")

    def list_policies(self) -> dict[str, Policy]:
        """The policies that a session begins with, by tool and action."""
        if self.toolset != AGENT_TOOLSET:
            return self.policies
        return {tool: self.find_policy(tool) for tool in AGENT_TOOLS}


def find_tool_problems(tools: AgentTools) -> Iterator[str]:
    yield from _find_name_problems(tools)
    yield from _find_custom_problems(tools.custom)
    for key, options in (("web_fetch", tools.web_fetch), ("web_search", tools.web_search)):
        yield from (f"tools.{key} {problem}" for problem in _find_web_problems(options))
    for name, server in tools.mcp_servers.items():
        yield from (f"the MCP server {name} {problem}" for problem in _find_server_problems(server))


def describe_server(server: ServerDefinition) -> str:
    return server.url or " ".join((server.command, *server.args))


def list_unasked(tools: AgentTools) -> list[str]:
    """The tools and actions that the definition lets run without asking."""
    own = sorted(name for name, policy in tools.policies.items() if policy not in _ASKING)
    servers = sorted(
        f"{name}: {tool}"
        for name, server in tools.mcp_servers.items()
        for tool, policy in server.policies.items()
        if policy not in _ASKING
    )
    if tools.toolset == AGENT_TOOLSET:
        own = [tool for tool in AGENT_TOOLS if tools.offers(tool) and tools.find_policy(tool) not in _ASKING]
    return own + servers


def _find_name_problems(tools: AgentTools) -> Iterator[str]:
    own = {tool.name for tool in tools.custom}
    known = {"fidelio_toolset": set(DEFINITIONS), AGENT_TOOLSET: set(AGENT_TOOLS), "none": set[str]()}[tools.toolset] | own
    for key, names in (("only", tools.only or ()), ("without", tools.without)):
        for name in names:
            if name not in known:
                yield f"{name!r:.80} in tools.{key} is not a tool. The tools are {_join(known)}."
    governed = {*known, *ACTIONS, *TOOL_OF_ACTION} if tools.toolset == "fidelio_toolset" else {*known, ANY_TOOL}
    for name in tools.policies:
        if name not in governed:
            yield f"{name!r:.80} in tools.policies is neither a tool nor an action. Use one of {_join(governed)}."


def _find_custom_problems(custom: Iterable[CustomTool]) -> Iterator[str]:
    tools = tuple(custom)
    for name, count in Counter(tool.name for tool in tools).items():
        if count > 1 or name in DEFINITIONS or name in AGENT_TOOLS:
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


def _find_web_problems(options: WebOptions) -> Iterator[str]:
    if options.allowed_domains and options.blocked_domains:
        yield "has allowed_domains and blocked_domains. Name one of the two lists."
    for domain in (*options.allowed_domains, *options.blocked_domains):
        if not _DOMAIN.fullmatch(domain) or len(domain) > 253:
            yield f"names {domain!r:.80}, which is no host. Write a plain name such as docs.example.com."


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

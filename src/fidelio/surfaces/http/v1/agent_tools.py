"""Tools of agents on the wire: translation between the lists `tools` and `mcp_servers` and the tools of a definition. Pure.

Reading a rendered list gives the same tools again, so a program can change a list that it has got and send it back. That holds
for MCP servers of files too, whose commands and headers are no part of the wire: they are rendered under the address
`command:NAME`, or without their headers, and are kept as long as name and address stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from fidelio.inbox import PROVEN
from fidelio.runtime.agents.tools import (
    AGENT_TOOLS,
    AGENT_TOOLSET,
    ANY_TOOL,
    AgentTools,
    CustomTool,
    ServerDefinition,
    WebOptions,
)
from fidelio.runtime.tools.definitions import DEFINITIONS
from fidelio.runtime.tools.model import Policy
from fidelio.surfaces.http.v1.errors import ApiProblem

MAX_TOOLS = 256
COMMAND = "command:"
AgentToolName = Literal["bash", "edit", "read", "write", "glob", "grep", "web_fetch", "web_search"]
# Sources of addresses for web_fetch are not told apart here, so only what allows all of them is taken.
_ALL_SOURCES: tuple[Any, ...] = (None, "all", {"type": "all"})


class PermissionPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a tool asks, and whether the yes must be signed with a registered key."""

    type: Literal["always_allow", "always_ask", "auto"]
    answered_by: Literal["person", "proven"] = "person"


class DefaultConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What holds for all tools of a set without a config of their own."""

    enabled: bool | None = None
    permission_policy: PermissionPolicy | None = None


class ToolConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What holds for a tool of `fidelio_toolset` or of an MCP server."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    enabled: bool | None = None
    permission_policy: PermissionPolicy | None = None


class AgentToolConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What holds for a tool of `agent_toolset_20260401`. The last five fields are those of the tools for the web."""

    name: AgentToolName
    type: str | None = None
    enabled: bool | None = None
    permission_policy: PermissionPolicy | None = None
    allowed_domains: Annotated[tuple[str, ...], Meta(min_length=1, max_length=64)] | None = None
    blocked_domains: Annotated[tuple[str, ...], Meta(min_length=1, max_length=64)] | None = None
    max_content_tokens: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    url_sources: dict[str, Any] | None = None
    user_location: dict[str, Any] | None = None

    @property
    def has_web_fields(self) -> bool:
        fields = (self.allowed_domains, self.blocked_domains, self.max_content_tokens, self.url_sources, self.user_location)
        return any(field is not None for field in fields)


Configs: TypeAlias = Annotated[tuple[ToolConfig, ...], Meta(max_length=MAX_TOOLS)]


class AgentToolset(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="agent_toolset_20260401"):
    """The tools whose names other agent servers share."""

    configs: Annotated[tuple[AgentToolConfig, ...], Meta(max_length=8)] | None = None
    default_config: DefaultConfig | None = None


class FidelioToolset(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="fidelio_toolset"):
    """The tools of Fidelio. `all_tools`: each is declared to the model."""

    configs: Configs | None = None
    default_config: DefaultConfig | None = None
    all_tools: bool = False


class McpToolset(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="mcp_toolset"):
    """The tools of an MCP server."""

    mcp_server_name: str
    configs: Configs | None = None
    default_config: DefaultConfig | None = None


class CustomToolParam(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="custom"):
    """A tool that the client carries out."""

    name: str
    description: str
    input_schema: dict[str, Any]


class UrlServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="url"):
    """An MCP server."""

    name: str
    url: Annotated[str, Meta(min_length=1, max_length=2_000)]


ToolParam: TypeAlias = AgentToolset | FidelioToolset | McpToolset | CustomToolParam
ToolParams: TypeAlias = Annotated[tuple[ToolParam, ...], Meta(max_length=MAX_TOOLS)]
ServerParams: TypeAlias = Annotated[tuple[UrlServer, ...], Meta(max_length=20)]
_TOOLS = msgspec.json.Decoder(tuple[ToolParam, ...])
_SERVERS = msgspec.json.Decoder(tuple[UrlServer, ...])


def change_tools(former: AgentTools, tools: Sequence[ToolParam] | None, servers: Sequence[UrlServer] | None) -> AgentTools:
    """The tools after an update. None keeps a list. Raises 400; names and schemas are checked with the whole definition."""
    if tools is None and servers is None:
        return former
    tools = _TOOLS.decode(msgspec.json.encode(render_tools(former))) if tools is None else tools
    servers = _SERVERS.decode(msgspec.json.encode(render_servers(former))) if servers is None else servers
    changed = replace(
        _read_toolset(tools),
        custom=tuple(_read_custom(tool) for tool in tools if isinstance(tool, CustomToolParam)),
        mcp_servers=_read_servers(tools, servers, former.mcp_servers),
    )
    # A file may say the same in another way, which is no change.
    is_same = render_tools(changed) == render_tools(former) and render_servers(changed) == render_servers(former)
    return former if is_same else changed


def render_tools(tools: AgentTools) -> list[dict[str, Any]]:
    """The tools in full: each config with everything that holds for its tool."""
    custom = [{"type": "custom", **msgspec.to_builtins(tool)} for tool in tools.custom]
    servers = [_render_server_tools(name, server) for name, server in tools.mcp_servers.items()]
    return [*_render_toolset(tools), *servers, *custom]


def render_servers(tools: AgentTools) -> list[dict[str, Any]]:
    return [
        {"type": "url", "name": name, "url": server.url or f"{COMMAND}{name}"} for name, server in tools.mcp_servers.items()
    ]


def _read_toolset(tools: Iterable[ToolParam]) -> AgentTools:
    found = [tool for tool in tools if isinstance(tool, AgentToolset | FidelioToolset)]
    if len({type(tool) for tool in found}) > 1:
        raise ApiProblem("tools: an agent has agent_toolset_20260401 or fidelio_toolset, and not both: they share names.")
    if len(found) > 1:
        raise ApiProblem("tools: a toolset is there twice. Put all its configs into one.")
    if not found:
        return AgentTools(toolset="none")
    toolset = found[0]
    return _read_agent_toolset(toolset) if isinstance(toolset, AgentToolset) else _read_fidelio_toolset(toolset)


def _read_agent_toolset(toolset: AgentToolset) -> AgentTools:
    default, configs = toolset.default_config or DefaultConfig(), toolset.configs or ()
    own = _read_policy(default.permission_policy, "always_allow")
    for config in configs:
        _check_agent_config(config)
    web = {config.name: _read_web(config) for config in configs}
    narrowed = _read_configs(default, configs, own, AGENT_TOOLSET)
    policies = narrowed.policies if own == "always_allow" else {ANY_TOOL: own, **narrowed.policies}
    return AgentTools(
        toolset=AGENT_TOOLSET,
        only=narrowed.only,
        without=narrowed.without,
        policies=policies,
        web_fetch=web.get("web_fetch", WebOptions()),
        web_search=web.get("web_search", WebOptions()),
    )


def _check_agent_config(config: AgentToolConfig) -> None:
    where = f"tools: the config of {config.name}"
    if config.type not in (None, config.name):
        raise ApiProblem(f"{where} has the type {config.type!r:.80}. Its type is its name.")
    if config.has_web_fields and not config.name.startswith("web_"):
        raise ApiProblem(f"{where} has fields that only web_fetch and web_search have.")
    if config.name == "web_search" and (config.max_content_tokens, config.url_sources) != (None, None):
        raise ApiProblem(f"{where} has fields that only web_fetch has.")
    if config.user_location is not None:
        raise ApiProblem(f"{where} has user_location, which is not offered here. Leave it out.")
    if any(source not in _ALL_SOURCES for source in (config.url_sources or {}).values()):
        raise ApiProblem(f"{where} has url_sources, of which only `all` is offered here. Use allowed_domains.")


def _read_web(config: AgentToolConfig) -> WebOptions:
    return WebOptions(
        allowed_domains=config.allowed_domains or (),
        blocked_domains=config.blocked_domains or (),
        max_content_tokens=config.max_content_tokens or 0,
    )


def _read_fidelio_toolset(toolset: FidelioToolset) -> AgentTools:
    default, configs = toolset.default_config or DefaultConfig(), toolset.configs or ()
    if default.permission_policy is not None:
        message = "tools: the tools of fidelio_toolset have policies of their own. Set permission_policy in configs."
        raise ApiProblem(message)
    narrowed = _read_configs(default, configs, None, "fidelio_toolset")
    # A policy may be that of an action, which is no tool.
    return AgentTools(
        only=None if narrowed.only is None else tuple(name for name in narrowed.only if name in DEFINITIONS),
        without=narrowed.without,
        policies=narrowed.policies,
        all_tools=toolset.all_tools,
    )


class _Narrowed(msgspec.Struct, frozen=True):
    """Which tools of a set are there, and their policies."""

    only: tuple[str, ...] | None
    without: tuple[str, ...]
    policies: dict[str, Policy]


def _read_configs(
    default: DefaultConfig, configs: Sequence[ToolConfig | AgentToolConfig], policy: Policy | None, where: str
) -> _Narrowed:
    """`policy`: that of a config without its own; None leaves it to the tool."""
    names = [config.name for config in configs]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ApiProblem(f"tools: {where} has two configs of {twice!r:.80}.")
    is_enabled = default.enabled is not False
    differing = tuple(sorted(config.name for config in configs if config.enabled not in (None, is_enabled)))
    chosen = {config.name: _read_policy(config.permission_policy, policy) for config in configs}
    policies = {name: each for name, each in chosen.items() if each is not None}
    return _Narrowed(None, differing, policies) if is_enabled else _Narrowed(differing, (), policies)


def _read_policy(policy: PermissionPolicy | None, default: Any) -> Any:
    if policy is None:
        return default
    if policy.answered_by == PROVEN and policy.type != "always_ask":
        raise ApiProblem(f"tools: a permission_policy of the type {policy.type} takes no answered_by. Use always_ask.")
    return PROVEN if policy.answered_by == PROVEN else policy.type


def _render_policy(policy: Policy) -> dict[str, Any]:
    """A policy in words that every client of the wire knows, with ours added."""
    return {"type": "always_ask", "answered_by": PROVEN} if policy == PROVEN else {"type": policy}


def _read_custom(tool: CustomToolParam) -> CustomTool:
    try:
        return msgspec.convert(msgspec.structs.asdict(tool), CustomTool)
    except msgspec.ValidationError as error:
        raise ApiProblem(f"tools: the custom tool {tool.name!r:.80}: {error}") from error


def _read_servers(
    tools: Iterable[ToolParam], servers: Sequence[UrlServer], former: Mapping[str, ServerDefinition]
) -> dict[str, ServerDefinition]:
    toolsets: dict[str, McpToolset] = {}
    for tool in tools:
        if isinstance(tool, McpToolset) and tool.mcp_server_name in toolsets:
            raise ApiProblem(f"tools: the MCP server {tool.mcp_server_name!r:.80} has two toolsets.")
        if isinstance(tool, McpToolset):
            toolsets[tool.mcp_server_name] = tool
    names = [server.name for server in servers]
    _check_server_names(names, toolsets)
    return {server.name: _read_server(server, toolsets[server.name], former.get(server.name)) for server in servers}


def _check_server_names(names: Sequence[str], toolsets: Mapping[str, McpToolset]) -> None:
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ApiProblem(f"mcp_servers: two servers are called {twice!r:.80}.")
    if unknown := next((name for name in toolsets if name not in names), ""):
        raise ApiProblem(f"tools: mcp_toolset names {unknown!r:.80}, which is not in mcp_servers.")
    if unused := next((name for name in names if name not in toolsets), ""):
        raise ApiProblem(f"mcp_servers: no mcp_toolset in tools names {unused!r:.80}.")


def _read_server(server: UrlServer, toolset: McpToolset, former: ServerDefinition | None) -> ServerDefinition:
    default = toolset.default_config or DefaultConfig()
    own = _read_policy(default.permission_policy, "always_ask")
    narrowed = _read_configs(default, toolset.configs or (), own, f"the toolset of {server.name:.80}")
    policies = narrowed.policies if own == "always_ask" else {ANY_TOOL: own, **narrowed.policies}
    is_same = former is not None and server.url == (former.url or f"{COMMAND}{server.name}")
    base = former if former is not None and is_same else ServerDefinition(url=server.url)
    return replace(base, only=narrowed.only, without=narrowed.without, policies=policies)


def _render_toolset(tools: AgentTools) -> Iterator[dict[str, Any]]:
    is_enabled = tools.only is None
    if tools.toolset == AGENT_TOOLSET:
        named = (*tools.policies, *tools.without, *(tools.only or ()), *_list_web(tools))
        configs = [_render_agent_tool(tools, name) for name in AGENT_TOOLS if name in named]
        default = {"enabled": is_enabled, "permission_policy": _render_policy(tools.find_policy(ANY_TOOL))}
        yield {"type": AGENT_TOOLSET, "default_config": default, "configs": configs}
    elif tools.toolset == "fidelio_toolset":
        listed = [_render_fidelio_tool(tools, name) for name in sorted({*tools.policies, *tools.without, *(tools.only or ())})]
        default = {"enabled": is_enabled, "permission_policy": None}
        yield {"type": "fidelio_toolset", "default_config": default, "configs": listed, "all_tools": tools.all_tools}


def _list_web(tools: AgentTools) -> Iterator[str]:
    found = (("web_fetch", tools.web_fetch), ("web_search", tools.web_search))
    return (name for name, options in found if options != WebOptions())


def _render_agent_tool(tools: AgentTools, name: str) -> dict[str, Any]:
    web = {"web_fetch": tools.web_fetch, "web_search": tools.web_search}.get(name, WebOptions())
    extra = {key: value for key, value in msgspec.to_builtins(web).items() if value}
    policy = _render_policy(tools.find_policy(name))
    return {"type": name, "name": name, "enabled": tools.offers(name), "permission_policy": policy, **extra}


def _render_fidelio_tool(tools: AgentTools, name: str) -> dict[str, Any]:
    policy = tools.policies.get(name)
    # An action is there as long as a tool uses it.
    is_enabled = tools.offers(name) if name in DEFINITIONS else tools.only is None
    return {"name": name, "enabled": is_enabled, "permission_policy": _render_policy(policy) if policy else None}


def _render_server_tools(name: str, server: ServerDefinition) -> dict[str, Any]:
    own = server.policies.get(ANY_TOOL, "always_ask")
    named = dict.fromkeys((*server.policies, *server.without, *(server.only or ())))
    configs = [
        {
            "name": tool,
            "enabled": server.offers(tool),
            "permission_policy": _render_policy(server.policies.get(tool, own)),
        }
        for tool in sorted(named)
        if tool != ANY_TOOL
    ]
    default = {"enabled": server.only is None, "permission_policy": _render_policy(own)}
    return {"type": "mcp_toolset", "mcp_server_name": name, "default_config": default, "configs": configs}

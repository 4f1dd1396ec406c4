"""The translation between tools on the wire and tools of a definition."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.runtime.agents.tools import AGENT_TOOLS, AgentTools, ServerDefinition, find_tool_problems
from fidelio.runtime.tools.definitions import DEFINITIONS
from fidelio.surfaces.http.v1.agent_tools import (
    AgentToolName,
    ServerParams,
    ToolParams,
    change_tools,
    render_servers,
    render_tools,
)
from fidelio.surfaces.http.v1.errors import ApiProblem
from tests.support import proves

POLICIES = st.sampled_from(("always_allow", "always_ask", "auto"))
NONE = AgentTools(toolset="none")


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


SIGNED = {"type": "always_ask", "answered_by": "proven"}
POLICY = POLICIES.map(lambda type_: {"type": type_}) | st.just(SIGNED) | st.none()
STATE = {"enabled": st.booleans() | st.none(), "permission_policy": POLICY}


def configs(names: st.SearchStrategy[str]) -> st.SearchStrategy[list[dict[str, Any]]]:
    config = st.tuples(names, optional(**STATE)).map(lambda pair: {"name": pair[0], **pair[1]})
    return st.lists(config, max_size=6, unique_by=lambda made: made["name"])


AGENT_TOOLSET = optional(default_config=optional(**STATE), configs=configs(st.sampled_from(AGENT_TOOLS))).map(
    lambda made: {"type": "agent_toolset_20260401", **made}
)
OURS = optional(
    default_config=optional(enabled=st.booleans()),
    configs=configs(st.sampled_from(sorted(DEFINITIONS))),
    all_tools=st.booleans(),
).map(lambda made: {"type": "fidelio_toolset", **made})
TOOL_NAMES = st.text("abc-._ /", min_size=1, max_size=8)
SERVER_TOOLSET = optional(default_config=optional(**STATE), configs=configs(TOOL_NAMES))


@st.composite
def wires(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    toolset = draw(st.none() | AGENT_TOOLSET | OURS)
    names = draw(st.lists(st.text("abc_-", min_size=1, max_size=5), max_size=3, unique=True))
    toolsets = [{"type": "mcp_toolset", "mcp_server_name": name, **draw(SERVER_TOOLSET)} for name in names]
    servers = [{"type": "url", "name": name, "url": f"https://{name}.example.com"} for name in names]
    custom = {"type": "custom", "name": "deploy", "description": "Deploy.", "input_schema": {"type": "object"}}
    return [*([toolset] if toolset else []), *toolsets, *draw(st.sampled_from(([], [custom])))], servers


def read(tools: Any, servers: Any, former: AgentTools = NONE) -> AgentTools:
    return change_tools(former, msgspec.convert(tools, ToolParams), msgspec.convert(servers, ServerParams))


@proves("v1.agents-toolset")
@given(wires())
def test_what_is_rendered_reads_as_the_same_tools(wire: tuple[Any, Any]) -> None:
    tools = read(*wire)

    again = read(render_tools(tools), render_servers(tools))

    assert render_tools(again) == render_tools(tools)
    assert render_servers(again) == render_servers(tools)
    assert again == tools
    assert list(find_tool_problems(tools)) == []


@proves("v1.agents-toolset")
@given(AGENT_TOOLSET)
def test_a_tool_is_what_its_config_says_else_what_the_default_says(toolset: dict[str, Any]) -> None:
    tools, default = read([toolset], []), toolset.get("default_config", {})
    sent = {config["name"]: config for config in toolset.get("configs", [])}

    for name in AGENT_TOOLS:
        own = sent.get(name, {})
        enabled = next((value for value in (own.get("enabled"), default.get("enabled")) if value is not None), True)
        policy = own.get("permission_policy") or default.get("permission_policy") or {"type": "always_allow"}
        assert (tools.offers(name), tools.find_policy(name)) == (enabled, "proven" if policy == SIGNED else policy["type"])
    assert tools.list_policies() == {name: tools.find_policy(name) for name in AGENT_TOOLS}


@proves("v1.agents-toolset")
@given(SERVER_TOOLSET, TOOL_NAMES)
def test_a_tool_of_a_server_asks_unless_its_toolset_says_otherwise(toolset: dict[str, Any], tool: str) -> None:
    wire = {"type": "mcp_toolset", "mcp_server_name": "a", **toolset}
    server = read([wire], [{"type": "url", "name": "a", "url": "https://a.example.com"}]).mcp_servers["a"]
    own: dict[str, Any] = next((config for config in toolset.get("configs", []) if config["name"] == tool), {})
    default = toolset.get("default_config", {})

    enabled = next((value for value in (own.get("enabled"), default.get("enabled")) if value is not None), True)

    policy = own.get("permission_policy") or default.get("permission_policy") or {"type": "always_ask"}
    assert server.offers(tool) == enabled
    expected = "proven" if policy == SIGNED else policy["type"]
    assert server.policies.get(tool, server.policies.get("*", "always_ask")) == expected


@proves("v1.proven")
def test_a_signed_yes_is_demanded_only_where_the_tool_asks() -> None:
    def configure(policy: dict[str, str]) -> list[dict[str, Any]]:
        return [{"type": "fidelio_toolset", "configs": [{"name": "shell_run", "permission_policy": policy}]}]

    tools = read(configure(SIGNED), [])

    assert tools.policies == {"shell_run": "proven"}
    assert render_tools(tools)[0]["configs"][0]["permission_policy"] == SIGNED
    with pytest.raises(ApiProblem, match="always_ask"):
        read(configure({**SIGNED, "type": "auto"}), [])


@proves("v1.agents-update")
def test_what_a_file_says_in_another_way_is_no_change() -> None:
    former = AgentTools(without=("write", "read"), policies={"shell_run": "auto", "run_command": "always_ask"})

    assert read(render_tools(former), [], former) is former
    assert read([{"type": "fidelio_toolset"}], [], former) == AgentTools()


@proves("v1.agents-toolset")
def test_a_list_that_an_update_leaves_out_is_kept() -> None:
    tools = [{"type": "agent_toolset_20260401"}, {"type": "mcp_toolset", "mcp_server_name": "a"}]
    former = read(tools, [{"type": "url", "name": "a", "url": "https://a.example.com"}])
    moved = msgspec.convert([{"type": "url", "name": "a", "url": "https://b.example.com"}], ServerParams)

    changed = change_tools(former, None, moved)

    assert change_tools(former, None, None) is former
    assert (changed.toolset, changed.mcp_servers["a"].url) == ("agent_toolset_20260401", "https://b.example.com")


@proves("v1.agents-files")
@pytest.mark.parametrize("url", ["https://a.example.com", "https://b.example.com"])
def test_the_headers_of_a_server_stay_with_its_address(url: str) -> None:
    known = ServerDefinition(url="https://a.example.com", headers={"X": "vault:a"})
    former = AgentTools(toolset="none", mcp_servers={"a": known})

    changed = read([{"type": "mcp_toolset", "mcp_server_name": "a"}], [{"type": "url", "name": "a", "url": url}], former)

    assert changed.mcp_servers["a"].headers == (known.headers if url == known.url else {})


@proves("v1.agents-toolset")
def test_the_wire_names_every_tool_of_the_shared_toolset() -> None:
    assert set(get_args(AgentToolName)) == set(AGENT_TOOLS)

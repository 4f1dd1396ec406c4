"""The definition of an agent: what is accepted, and what is refused with the key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.errors import AgentDefinitionProblem
from fidelio.runtime.agents.definition import (
    MAX_SCHEMA_BYTES,
    AgentDefinition,
    check_agent_name,
    decode_agent,
    describe_effect,
    parse_agent,
)
from fidelio.runtime.tools.definitions import DEFINITIONS
from tests.support import proves

MODEL = "scripted:echo"
WHOLE: dict[str, Any] = {
    "model": "claude-opus-4-5",
    "description": "Reviews.",
    "system": "You review code.",
    "tools": {
        "only": ["read", "grep", "shell_run", "deploy"],
        "without": ["grep"],
        "all_tools": True,
        "policies": {"shell_run": "auto", "list_dir": "always_ask", "run_shell": "always_ask"},
        "custom": [{"name": "deploy", "description": "Deploys.", "input_schema": {"type": "object", "properties": {}}}],
        "mcp_servers": {
            "issues": {"url": "https://example.org/mcp", "headers": {"Authorization": "vault:issues"}},
            "local": {"command": "server", "args": ["--stdio"], "policies": {"search": "always_allow"}},
        },
    },
    "skills": {"include": ["review"]},
    "limits": {"tokens": 1000, "usd": 0.5},
    "environment": "build",
    "grader": "none",
}


@proves("agents.definition")
def test_a_definition_with_every_key_is_read() -> None:
    agent = parse_agent(WHOLE, "The file x")

    assert (agent.model, agent.environment, agent.grader) == ("claude-opus-4-5", "build", "none")
    assert agent.tools.custom[0].name == "deploy"
    assert (agent.limits.tokens, agent.limits.usd, agent.limits.wakes_per_day) == (1000, 0.5, 50)


@proves("agents.definition")
def test_only_the_model_is_required_and_the_budgets_have_their_defaults() -> None:
    limits = parse_agent({"model": MODEL}, "x").limits

    assert (limits.tokens, limits.usd, limits.wakes_per_day, limits.wall_seconds) == (1_000_000, None, 50, 0)


def tools(**keys: Any) -> dict[str, Any]:
    return {"model": MODEL, "tools": keys}


def custom(**keys: Any) -> dict[str, Any]:
    return tools(custom=[{"name": "deploy", "description": "Deploys.", **keys}])


def server(**keys: Any) -> dict[str, Any]:
    return tools(mcp_servers={"issues": keys})


@proves("agents.definition")
@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({}, "model"),
        ([], "object"),
        ({"model": ""}, "model"),
        ({"model": MODEL, "sytem": "x"}, "sytem"),
        ({"model": "llama"}, "names no provider. Use one of: claude-"),
        ({"model": MODEL, "grader": "somebody"}, "grader: The model id 'somebody'"),
        ({"model": MODEL, "limits": {"tokens": -1}}, "limits.tokens"),
        ({"model": MODEL, "environment": ""}, "environment"),
        (tools(toolset="browser_toolset"), "toolset"),
        (tools(toolset="agent_toolset_20260401", only=["shell_run"]), "'shell_run' in tools.only is not a tool"),
        (tools(only=["reed"]), "'reed' in tools.only is not a tool. The tools are "),
        (tools(without=["reed"]), "tools.without"),
        (tools(policies={"reed": "auto"}), "'reed' in tools.policies"),
        (tools(policies={"read": "maybe"}), "policies"),
        (custom(name="shell_run"), "custom tool shell_run has the name of another"),
        (custom(name="a b"), "custom"),
        (custom(input_schema={"type": "array"}), "custom tool deploy must have `type: object`"),
        (custom(input_schema={"type": "object", "properties": 3}), "custom tool deploy is not a valid JSON Schema"),
        (custom(input_schema={"type": "object", "title": "x" * MAX_SCHEMA_BYTES}), "more than"),
        (tools(custom=[{"name": "a", "description": "A."}] * 2), "custom tool a has the name of another"),
        (server(), "MCP server issues needs a command or a url"),
        (server(url="https://x", command="y"), "not both"),
        (server(url="ftp://x"), "ftp://x"),
        (server(url="https://x", args=["y"]), "args"),
        (server(command="x", headers={"A": "b"}), "headers"),
        (server(command="x", env={"TOKEN": "vault:a b"}), "vault:a b"),
    ],
)
def test_a_wrong_value_is_refused_with_the_key(data: Any, named: str) -> None:
    with pytest.raises(AgentDefinitionProblem) as refused:
        parse_agent(data, "The file x")

    assert named in str(refused.value)
    assert str(refused.value).startswith("The file x")


@proves("agents.definition")
@given(st.lists(st.sampled_from(sorted(DEFINITIONS)), unique=True), st.text(max_size=12))
def test_a_list_of_tools_is_accepted_exactly_if_all_of_them_exist(names: list[str], other: str) -> None:
    parse_agent(tools(only=names), "x")

    if other not in DEFINITIONS:
        with pytest.raises(AgentDefinitionProblem):
            parse_agent(tools(only=[*names, other]), "x")


@proves("agents.versions")
def test_a_stored_version_is_read_although_a_tool_of_it_is_gone() -> None:
    assert decode_agent('{"model":"scripted:echo","tools":{"only":["gone"]}}', "x").tools.only == ("gone",)

    with pytest.raises(AgentDefinitionProblem, match="Version 3 cannot be read"):
        decode_agent('{"model":3}', "Version 3")


@proves("agents.definition")
@pytest.mark.parametrize("name", ["", "a b", "../a", "x" * 61, "ä"])
def test_a_name_that_no_file_may_have_is_refused(name: str) -> None:
    with pytest.raises(AgentDefinitionProblem, match="60 letters"):
        check_agent_name(name)


@proves("agents.files")
def test_a_person_reads_what_an_agent_brings_and_does_not_ask_for() -> None:
    assert describe_effect(AgentDefinition(model=MODEL)) == "model scripted:echo, environment default"
    assert describe_effect(parse_agent(WHOLE, "x")) == (
        "model claude-opus-4-5, environment build, does not ask for shell_run, local: search, "
        "MCP server issues: https://example.org/mcp, MCP server local: server --stdio"
    )

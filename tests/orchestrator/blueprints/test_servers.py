"""The MCP servers of a blueprint, and the secrets that they need and nobody else may see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fidelio.errors import ExecutorUnavailable
from fidelio.orchestrator.blueprints.servers import fill_placeholders
from tests.orchestrator.blueprints.files import AGENTS, open_catalogue, write_folder
from tests.support import proves

SECRET = "hunter2${OTHER}"


def served(project: Path, servers: Any, inherit: list[str] | None = None) -> None:
    write_folder(project / AGENTS, "helper", {"inherit": inherit or []}, mcp=json.dumps({"mcpServers": servers}, indent=1))


@proves("blueprints.servers", "blueprints.broken")
@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({}, "neither a command nor an address"),
        ({"command": "a", "url": "https://x"}, "a command and an address"),
        ({"type": "http", "command": "a"}, "of the type http, but has the keys of stdio"),
        ({"type": "stdio", "url": "https://x"}, "of the type stdio, but has the keys of http"),
        ({"url": "https://x", "args": ["a"]}, "mixes keys"),
        ({"command": "a", "headers": {"A": "b"}}, "mixes keys"),
        ({"comand": "a"}, "Did you mean command?"),
        ({"command": ["a"]}, "`mcpServers.web.command`: Expected `str"),
        ({"command": ""}, "`mcpServers.web.command`: Expected `str` of length >= 1"),
        ({"command": "a", "args": ["b", 1]}, "`mcpServers.web.args.1`: Expected `str`, got `int`"),
        ({"type": "sse", "url": "https://x"}, "sse"),
        ("a", "`mcpServers.web`: Expected `object`"),
    ],
)
def test_a_server_is_a_command_or_an_address(tmp_path: Path, server: Any, words: str) -> None:
    served(tmp_path, {"web": server})

    (broken,) = open_catalogue().list(tmp_path).broken

    assert broken.file.endswith("agent.mcp.json")
    assert broken.line >= 1
    assert words in broken.error


@proves("blueprints.servers")
@pytest.mark.parametrize("text", ['{"servers": {}}', "[]", '{"mcpServers": []}', '{"mcpServers": {"a b": {"command": "x"}}}'])
def test_a_servers_file_of_another_shape_is_broken(tmp_path: Path, text: str) -> None:
    write_folder(tmp_path / AGENTS, "helper", mcp=text)

    listing = open_catalogue().list(tmp_path)

    assert [one.name for one in listing.broken] == ["helper"]


@proves("blueprints.secrets")
def test_placeholders_are_filled_in_for_a_run_and_nowhere_else(tmp_path: Path) -> None:
    stdio = {"command": "run-${NAME}", "args": ["--key=${NAME}", "$NAME", "${NAME"], "env": {"KEY": "${NAME}${NAME}"}}
    http = {"url": "https://x/${NAME}", "headers": {"Authorization": "Bearer ${NAME}"}}
    served(tmp_path, {"local": stdio, "web": http}, inherit=["NAME"])
    blueprint = open_catalogue().get("helper", tmp_path)

    filled = fill_placeholders(blueprint, {"NAME": SECRET, "OTHER": "never"})

    local, web = filled.mcp_servers["local"], filled.mcp_servers["web"]
    assert (local.command, local.env) == (f"run-{SECRET}", {"KEY": SECRET + SECRET})
    assert local.args == (f"--key={SECRET}", "$NAME", "${NAME")
    assert (web.url, web.headers) == (f"https://x/{SECRET}", {"Authorization": f"Bearer {SECRET}"})
    assert SECRET not in repr(blueprint)
    assert filled.hash == blueprint.hash


@proves("blueprints.secrets")
def test_a_variable_that_is_not_inherited_makes_the_blueprint_broken(tmp_path: Path) -> None:
    served(tmp_path, {"web": {"url": "https://x/${OTHER}"}}, inherit=["NAME"])

    (broken,) = open_catalogue().list(tmp_path).broken

    assert "`mcpServers.web` needs the environment variable OTHER" in broken.error
    assert "Add OTHER to `inherit`" in broken.remedy


@proves("blueprints.secrets")
def test_a_variable_that_is_not_set_is_named_before_anything_runs(tmp_path: Path) -> None:
    served(tmp_path, {"web": {"url": "https://x/${NAME}"}}, inherit=["NAME"])

    with pytest.raises(ExecutorUnavailable, match="needs the environment variable NAME, which is not set"):
        fill_placeholders(open_catalogue().get("helper", tmp_path), {})

"""What a blueprint's files say, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Blueprint, Limits, Permissions
from tests.orchestrator.blueprints.files import AGENTS, open_catalogue, write_folder, write_page
from tests.support import proves

EVERYTHING: dict[str, Any] = {
    "executor": "claude",
    "model": "large",
    "permissions": {"mode": "edit", "allow": ["Bash"], "deny": ["WebFetch"]},
    "limits": {"wall_seconds": 60, "turns": 3, "output_bytes": 1000, "tokens": 5000, "cost_usd": 0.5},
    "input_schema": {"type": "object"},
    "output_schema": {"type": "string"},
    "tags": ["one", "two"],
    "environment": {"LEVEL": "debug"},
    "inherit": ["TOKEN"],
    "worktree": True,
    "resume_lost": True,
    "options": {"deep": {"er": [1]}},
}


def only(project: Path) -> Blueprint:
    listing = open_catalogue().list(project)
    assert listing.broken == ()
    (found,) = listing.agents
    return found


def complaint(project: Path) -> tuple[str, int, str]:
    """Name of the file, line, and the whole text of the only broken blueprint."""
    listing = open_catalogue().list(project)
    assert listing.agents == ()
    (broken,) = listing.broken
    assert broken.sentence
    assert broken.remedy
    return Path(broken.file).name, broken.line, broken.error


@proves("blueprints.folder")
def test_a_folder_is_read_with_all_its_files(tmp_path: Path) -> None:
    servers = {
        "files": {"command": "npx", "args": ["-y", "files"], "env": {"ROOT": "/data"}},
        "bare": {"command": "bare"},
        "web": {"type": "http", "url": "https://web.example/mcp"},
    }
    place = write_folder(
        tmp_path / AGENTS,
        "helper",
        {"skills": ["pdf"]},
        prompt="# You help\n\n---\n\nAlways.\n",
        mcp=json.dumps({"mcpServers": servers}),
    )

    found = only(tmp_path)

    assert (found.name, found.description, found.source) == ("helper", "Is good for helper.", str(place))
    assert found.system_prompt == "# You help\n\n---\n\nAlways.\n"
    assert found.mcp_servers == {
        "files": McpServer(command="npx", args=("-y", "files"), env={"ROOT": "/data"}),
        "bare": McpServer(command="bare"),
        "web": McpServer(url="https://web.example/mcp"),
    }


@proves("blueprints.folder")
def test_only_the_first_file_has_to_be_there(tmp_path: Path) -> None:
    write_folder(tmp_path / AGENTS, "helper")

    found = only(tmp_path)

    assert (found.system_prompt, found.mcp_servers, found.executor) == ("", {}, None)
    assert (found.permissions, found.limits) == (Permissions(), Limits())


@proves("blueprints.keys", "blueprints.folder", "blueprints.page")
@pytest.mark.parametrize("form", ["folder", "page"])
def test_every_key_is_taken_in_both_forms(tmp_path: Path, form: str) -> None:
    if form == "folder":
        write_folder(tmp_path / AGENTS, "helper", EVERYTHING)
    else:
        write_page(tmp_path / AGENTS, "helper", "".join(f"{key}: {json.dumps(value)}\n" for key, value in EVERYTHING.items()))

    found = only(tmp_path)

    assert found.permissions == Permissions(mode="edit", allow=("Bash",), deny=("WebFetch",))
    assert found.limits == Limits(wall_seconds=60, turns=3, output_bytes=1000, tokens=5000, cost_usd=0.5)
    assert (found.executor, found.model, found.tags) == ("claude", "large", ("one", "two"))
    assert (found.environment, found.inherit) == ({"LEVEL": "debug"}, ("TOKEN",))
    assert (found.worktree, found.resume_lost, found.options) == (True, True, {"deep": {"er": [1]}})
    assert (found.input_schema, found.output_schema) == ({"type": "object"}, {"type": "string"})


@proves("blueprints.page")
def test_a_page_has_its_prompt_and_its_servers_in_one_file(tmp_path: Path) -> None:
    front = 'mcp_servers:\n  web:\n    url: "https://web.example"\n    headers: {X-One: "1"}\n'
    place = write_page(tmp_path / AGENTS, "helper", front, "# You help\n\n---\n\nAlways.")

    found = only(tmp_path)

    assert (found.system_prompt, found.source) == ("# You help\n\n---\n\nAlways.", str(place))
    assert found.mcp_servers == {"web": McpServer(url="https://web.example", headers={"X-One": "1"})}


@proves("blueprints.broken", "blueprints.keys")
@pytest.mark.parametrize(
    ("more", "line", "words"),
    [
        ({"exekutor": "claude"}, 4, ["`exekutor` means nothing here. Did you mean executor?"]),
        ({"limits": {"turn": 3}}, 5, ["`limits.turn`", "Did you mean turns?"]),
        ({"permissions": {"modus": "ask"}}, 5, ["`permissions.modus`", "Did you mean mode?"]),
        ({"zzz": 1}, 4, ["The keys are name, description, executor"]),
        ({"limits": {"turns": 0}}, 5, ["`limits.turns`: Expected `int` >= 1"]),
        ({"limits": {"output_bytes": 64_000_001}}, 5, ["`limits.output_bytes`: Expected `int` <= 64000000"]),
        ({"permissions": {"mode": "all"}}, 5, ["`permissions.mode`", "all"]),
        ({"tags": "one"}, 4, ["`tags`: Expected `array`, got `str`"]),
        ({"tags": ["one", 2]}, 6, ["`tags.1`: Expected `str`, got `int`"]),
        ({"worktree": "yes"}, 4, ["`worktree`: Expected `bool`"]),
        ({"description": ""}, 3, ["`description`"]),
        ({"description": " "}, 3, ["`description` is empty"]),
        ({"name": "other"}, 2, ["`name` is 'other', but on disk the blueprint is called helper"]),
        ({"inherit": ["A-B"]}, 4, ["'A-B', which is not a variable name"]),
        ({"environment": {"": "x"}}, 4, ["'', which is not a variable name"]),
        ({"environment": {"A": "\0"}}, 5, ["`environment.A` holds the character NUL"]),
        ({"mcp_servers": {}}, 4, ["`mcp_servers` means nothing here"]),
    ],
)
def test_a_problem_is_reported_with_its_line(tmp_path: Path, more: dict[str, Any], line: int, words: list[str]) -> None:
    write_folder(tmp_path / AGENTS, "helper", more)

    file, at, said = complaint(tmp_path)

    assert (file, at) == ("agent.json", line)
    assert [word for word in words if word not in said] == []


@proves("blueprints.broken", "blueprints.page")
def test_a_problem_in_front_matter_is_reported_with_its_line_in_the_page(tmp_path: Path) -> None:
    write_page(tmp_path / AGENTS, "helper", "tags: [one]\nlimits:\n  turn: 3\n")

    assert complaint(tmp_path)[:2] == ("helper.md", 6)


@proves("blueprints.broken")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "This is not JSON"),
        ("[]", "has to hold an object"),
        ("{}", "missing required field `name`"),
        ('{"name": "helper"}', "missing required field `description`"),
        ('{"name": "helper", "name": "helper"}', "for the second time"),
        ("", "This is not JSON"),
        ("null", "has to hold an object"),
    ],
)
def test_a_head_that_is_not_an_object_is_reported(tmp_path: Path, text: str, words: str) -> None:
    (write_folder(tmp_path / AGENTS, "helper") / "agent.json").write_text(text)

    assert words in complaint(tmp_path)[2]


@proves("blueprints.broken")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("You help.", "no front matter"),
        ("---\n---\nYou help.", "no front matter"),
        ("---\nname: helper\n---\nYou help.", "missing required field `description`"),
        ("---\nname: [\n---\n", "This is not YAML"),
    ],
)
def test_a_page_without_front_matter_is_reported(tmp_path: Path, text: str, words: str) -> None:
    write_page(tmp_path / AGENTS, "helper").write_text(text)

    assert words in complaint(tmp_path)[2]


@proves("blueprints.broken", "blueprints.folder")
def test_a_folder_without_its_first_file_is_named(tmp_path: Path) -> None:
    (tmp_path / AGENTS / "helper").mkdir(parents=True)

    assert "has no agent.json" in complaint(tmp_path)[2]

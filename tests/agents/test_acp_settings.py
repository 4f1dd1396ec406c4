"""Home directories and settings of the ACP agents, without a program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fidelio.orchestrator.blueprints.model import Blueprint, Permissions
from fidelio.orchestrator.executors.acp.agents import AGENTS, prepare_home, session_home
from fidelio.orchestrator.executors.acp.executor import AcpExecutor
from tests.orchestrator.executors.recording import make_turn
from tests.support import proves

SETTINGS = {
    "gemini": (".gemini/settings.json", ".gemini/GEMINI.md"),
    "opencode": ("config/opencode/opencode.json", "config/opencode/AGENTS.md"),
    "qwen": ("settings.json", "QWEN.md"),
}
LOGINS = {
    "gemini": (".gemini/oauth_creds.json", ".gemini/oauth_creds.json"),
    "opencode": (".local/share/opencode/auth.json", "data/opencode/auth.json"),
    "qwen": (".qwen/oauth_creds.json", "oauth_creds.json"),
}
CONVERSATION = "12345678-0000-4000-8000-000000000000"


def blueprint(**changes: Any) -> Blueprint:
    return Blueprint(**{"name": "b", "description": "d", "system_prompt": "Be brief.", **changes})


@proves("agents.acp-settings")
@pytest.mark.parametrize("name", AGENTS)
def test_the_home_has_what_the_blueprint_says_and_nothing_else(name: str, tmp_path: Path) -> None:
    options = {"config": {"ours": {"a": 1}}}
    turn = make_turn(tmp_path, blueprint=blueprint(model="m1", options=options), keep=tmp_path / "keep")

    environment = prepare_home(AGENTS[name], turn)

    home = tmp_path / "keep" / f"{name}-home"
    settings, memory = SETTINGS[name]
    written = json.loads((home / settings).read_text("utf-8"))
    assert session_home(AGENTS[name], turn) == home
    assert (written["ours"], "m1" in json.dumps(written["model"])) == ({"a": 1}, True)
    assert (home / memory).read_text("utf-8") == "Be brief."
    assert any(value.startswith(str(home)) for value in environment.values())


@proves("agents.acp-settings")
@pytest.mark.parametrize("name", AGENTS)
def test_the_login_of_the_user_is_one_file_with_ours(name: str, tmp_path: Path) -> None:
    users, ours = LOGINS[name]
    (tmp_path / users).parent.mkdir(parents=True)
    (tmp_path / users).write_text("{}", "utf-8")
    turn = make_turn(tmp_path, environment={"HOME": str(tmp_path)})

    prepare_home(AGENTS[name], turn)

    assert (session_home(AGENTS[name], turn) / ours).resolve() == (tmp_path / users).resolve()


@proves("agents.acp-settings")
@pytest.mark.parametrize("name", AGENTS)
def test_denied_tools_are_in_the_settings(name: str, tmp_path: Path) -> None:
    turn = make_turn(tmp_path, blueprint=blueprint(permissions=Permissions(deny=("shell_of_theirs",))))

    prepare_home(AGENTS[name], turn)

    assert "shell_of_theirs" in (session_home(AGENTS[name], turn) / SETTINGS[name][0]).read_text("utf-8")


@proves("agents.acp-kept")
def test_a_conversation_file_of_gemini_is_renamed_so_that_it_is_not_truncated(tmp_path: Path) -> None:
    turn = make_turn(tmp_path, conversation=CONVERSATION)
    chats = session_home(AGENTS["gemini"], turn) / ".gemini" / "tmp" / "project" / "chats"
    chats.mkdir(parents=True)
    (chats / "session-2026-01-02T03-04-12345678.jsonl").write_text("all that was said", "utf-8")

    prepare_home(AGENTS["gemini"], turn)
    (chats / "session-2026-01-02T03-04-12345678.jsonl").write_text("empty", "utf-8")
    prepare_home(AGENTS["gemini"], turn)

    assert (chats / "session-kept-2026-01-02T03-04-12345678.jsonl").read_text("utf-8") == "all that was said"


@proves("agents.acp-availability")
@pytest.mark.parametrize("name", AGENTS)
async def test_an_agent_that_is_not_installed_says_how_it_is(name: str, tmp_path: Path) -> None:
    found = await AcpExecutor(name, {"PATH": str(tmp_path)}).availability()

    assert not found.works
    assert f"npm install -g {AGENTS[name].package}" in found.why


@proves("agents.acp-availability")
@pytest.mark.parametrize(
    ("name", "environment", "works"),
    [
        ("gemini", {}, False),
        ("gemini", {"GEMINI_API_KEY": "k"}, True),
        ("qwen", {}, False),
        ("qwen", {"OPENAI_API_KEY": "k"}, True),
        ("opencode", {}, True),
    ],
)
async def test_an_agent_says_whether_it_is_logged_in(
    name: str, environment: dict[str, str], works: bool, tmp_path: Path
) -> None:
    (tmp_path / "package.json").write_text('{"version": "9.8.7"}', "utf-8")
    (tmp_path / name).write_text("#!/bin/sh\n", "utf-8")
    (tmp_path / name).chmod(0o755)

    found = await AcpExecutor(name, {"PATH": str(tmp_path), "HOME": str(tmp_path), **environment}).availability()

    assert (found.works, found.version) == (works, "9.8.7")
    assert works or AGENTS[name].how_to_log_in in found.why


@proves("agents.acp-problems")
@pytest.mark.parametrize("options", [{"colour": 1}, {"config": "none"}])
def test_unknown_options_are_reported_beforehand(options: dict[str, Any]) -> None:
    (problem,) = AcpExecutor("gemini").problems(blueprint(options=options))

    assert "Gemini CLI" in problem
    assert AcpExecutor("gemini").problems(blueprint(options={"config": {}})) == ()

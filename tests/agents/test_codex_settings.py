"""Home directory, settings and options of Codex, without a program."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Blueprint, Permissions
from fidelio.orchestrator.executors.codex.executor import CodexExecutor
from fidelio.orchestrator.executors.codex.home import (
    LOGIN,
    build_settings,
    encode_toml,
    find_api_key,
    is_toml_value,
    prepare_home,
    session_home,
)
from tests.orchestrator.executors.recording import make_turn
from tests.support import proves

SERVERS = {"ours": McpServer(command="serve", args=("--all",), env={"A": "b"}), "far": McpServer(url="http://127.0.0.1/mcp")}
texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    texts | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def blueprint(**changes: Any) -> Blueprint:
    return Blueprint(**{"name": "b", "description": "d", "mcp_servers": SERVERS, **changes})


@proves("agents.codex-settings")
@given(st.dictionaries(texts, values, max_size=4))
def test_settings_are_read_as_they_were_written(written: dict[str, Any]) -> None:
    assert is_toml_value(written)
    assert tomllib.loads(encode_toml(written)) == written


@proves("agents.codex-settings")
@pytest.mark.parametrize(
    ("mode", "sandbox"),
    [("ask", "read-only"), ("read", "read-only"), ("edit", "workspace-write"), ("full", "danger-full-access")],
)
def test_the_sandbox_does_what_the_permissions_promise(mode: Any, sandbox: str) -> None:
    made = build_settings(blueprint(permissions=Permissions(mode=mode)), asks=False)

    assert (made["sandbox_mode"], made["approval_policy"]) == (sandbox, "never")
    assert made["mcp_servers"]["ours"]["default_tools_approval_mode"] == ("approve" if mode == "full" else "writes")


@proves("agents.codex-settings")
def test_tools_of_servers_are_allowed_and_denied_by_name() -> None:
    permissions = Permissions(allow=("mcp__ours__read", "mcp__far"), deny=("mcp__ours__burn", "shell", "web_search"))
    made = build_settings(blueprint(permissions=permissions), asks=True)

    assert made["mcp_servers"]["ours"]["tools"] == {"read": {"approval_mode": "approve"}}
    assert made["mcp_servers"]["ours"]["disabled_tools"] == ["burn"]
    assert made["mcp_servers"]["far"]["default_tools_approval_mode"] == "approve"
    assert (made["features"]["shell_tool"], made["web_search"]) == (False, "disabled")


@proves("agents.codex-settings")
def test_the_home_is_one_of_the_session_and_its_settings_are_written_anew(tmp_path: Path) -> None:
    options = {"config": {"model_providers": {"mine": {"name": "Mine"}}, "features": {"goals": False}}}
    first = make_turn(tmp_path, blueprint=blueprint(options=options, system_prompt='Say "yes".\n'), keep=tmp_path / "keep")
    second = make_turn(tmp_path, blueprint=blueprint(model="other"), keep=tmp_path / "keep")

    made = tomllib.loads((prepare_home(first, asks=True) / "config.toml").read_text("utf-8"))
    again = tomllib.loads((prepare_home(second, asks=True) / "config.toml").read_text("utf-8"))

    assert session_home(first) == session_home(second) == tmp_path / "keep" / "codex-home"
    assert (made["developer_instructions"], made["model_providers"]["mine"]["name"]) == ('Say "yes".\n', "Mine")
    assert (made["features"]["goals"], made["features"]["plugins"]) == (False, False)
    assert (again["model"], "developer_instructions" in again) == ("other", False)


@proves("agents.codex-login")
def test_the_login_of_the_user_is_one_file_with_ours(tmp_path: Path) -> None:
    user = tmp_path / "user"
    user.mkdir()
    (user / LOGIN).write_text("{}", "utf-8")
    turn = make_turn(tmp_path, environment={"CODEX_HOME": str(user), "OPENAI_API_KEY": "unused"})

    home = prepare_home(turn, asks=True)

    assert (home / LOGIN).resolve() == (user / LOGIN).resolve()
    assert find_api_key(home, turn.environment) is None


@proves("agents.codex-login")
def test_a_key_from_the_environment_reaches_no_file(tmp_path: Path) -> None:
    turn = make_turn(tmp_path, environment={"HOME": str(tmp_path), "OPENAI_API_KEY": "secret-key"})

    home = prepare_home(turn, asks=True)

    assert find_api_key(home, turn.environment) == "secret-key"
    assert "ephemeral" in (home / "config.toml").read_text("utf-8")
    assert not any("secret-key" in file.read_text("utf-8") for file in tmp_path.rglob("*") if file.is_file())


@proves("agents.codex-availability")
@pytest.mark.parametrize(
    ("has_program", "key", "works", "says"),
    [(False, "", False, "npm install"), (True, "", False, "codex login"), (True, "k", True, "installed at")],
)
async def test_the_executor_says_whether_it_works(tmp_path: Path, has_program: bool, key: str, works: bool, says: str) -> None:
    if has_program:
        (tmp_path / "package.json").write_text('{"version": "9.8.7"}', "utf-8")
        (tmp_path / "codex").write_text("#!/bin/sh\n", "utf-8")
        (tmp_path / "codex").chmod(0o755)
    found = await CodexExecutor({"PATH": str(tmp_path), "HOME": str(tmp_path), "OPENAI_API_KEY": key}).availability()

    assert (found.works, found.version) == (works, "9.8.7" if has_program else "")
    assert says in found.why


@proves("agents.codex-problems", "agents.codex-ways")
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"options": {"colour": 1}}, "no option 'colour'"),
        ({"options": {"mode": "tui"}}, "`mode` of Codex must be one of"),
        ({"options": {"mode": "exec"}}, "cannot ask a person"),
        ({"options": {"config": [1]}}, "table of settings"),
        ({"options": {"config": {"sandbox_mode": "none"}}}, "in the blueprint itself"),
        ({"mcp_servers": {"a b": McpServer(command="x")}}, "'a b'"),
    ],
)
def test_unknown_options_of_codex_are_reported_beforehand(changes: dict[str, Any], says: str) -> None:
    (problem,) = CodexExecutor({}).problems(blueprint(**changes))

    assert says in problem


@proves("agents.codex-problems", "agents.codex-ways")
@pytest.mark.parametrize("options", [{}, {"mode": "server"}, {"config": {"model_provider": "mine"}}])
def test_what_codex_has_is_no_problem(options: dict[str, Any]) -> None:
    assert CodexExecutor({}).problems(blueprint(options=options)) == ()

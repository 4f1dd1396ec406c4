"""Availability of an executor is checked with the environment of the blueprint, in which the agent will run."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.errors import ExecutorUnavailable
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors import registry
from fidelio.orchestrator.executors.acp.executor import AcpExecutor
from fidelio.orchestrator.executors.claude import executor as claude
from fidelio.orchestrator.executors.claude.executor import ClaudeExecutor
from fidelio.orchestrator.executors.codex.executor import CodexExecutor
from fidelio.orchestrator.executors.contract import Executor
from fidelio.orchestrator.executors.registry import find_working_executor
from tests.support import proves

CLAUDE = """#!/bin/sh
place="${CLAUDE_CONFIG_DIR:-$HOME/.claude}"
if [ -d "$place" ]; then : > "$place/seen"; else : > "$HOME/.claude.json"; fi
case $1 in --version) echo "2.0.0 (Claude Code)" ;; *) echo '{"loggedIn": false}' ;; esac
"""
KEYS = {"claude": "ANTHROPIC_API_KEY", "codex": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY", "qwen": "OPENAI_API_KEY"}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with programs under the names of the agents, into which nobody is logged in."""
    for name in KEYS:
        program = tmp_path / name
        program.write_text(CLAUDE, "utf-8")
        program.chmod(0o755)
    monkeypatch.setattr(claude, "find_claude", lambda path: str(tmp_path / "claude") if path == str(tmp_path) else None)
    return tmp_path


def executor_of(name: str, path: Path) -> Executor:
    environment = {"PATH": str(path), "HOME": str(path)}
    if name == "claude":
        return ClaudeExecutor(environment)
    return CodexExecutor(environment) if name == "codex" else AcpExecutor(name, environment)


@proves("executors.availability")
@pytest.mark.parametrize("name", KEYS)
async def test_a_key_that_only_the_blueprint_sets_is_enough(installed: Path, name: str) -> None:
    executor = executor_of(name, installed)

    assert not (await executor.availability()).works
    assert not (await executor.availability({KEYS[name]: ""})).works
    assert (await executor.availability({KEYS[name]: "secret"})).works


@proves("executors.availability")
async def test_a_check_writes_no_files_of_claude_code_into_a_home_without_them(installed: Path) -> None:
    await executor_of("claude", installed).availability()
    unused = list_files(installed)
    make_directory(installed / ".claude")
    await executor_of("claude", installed).availability()

    assert unused == []
    # Its login is there.
    assert list_files(installed) == [".claude", ".claude/seen"]


def list_files(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if str(path.relative_to(home)).startswith("."))


def make_directory(path: Path) -> None:
    path.mkdir()


@proves("executors.availability")
@pytest.mark.parametrize("name", KEYS)
async def test_an_agent_is_looked_for_on_the_path_of_the_blueprint(installed: Path, name: str) -> None:
    executor = executor_of(name, installed / "nowhere")

    assert not (await executor.availability({KEYS[name]: "secret"})).works
    assert (await executor.availability({KEYS[name]: "secret", "PATH": str(installed)})).works


@proves("executors.availability", "executors.first-working")
async def test_the_first_that_works_may_work_because_of_the_blueprint(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_load_executor", lambda name: executor_of(name, installed))
    monkeypatch.setattr(registry, "_ORDER", ("codex", "gemini"))

    with pytest.raises(ExecutorUnavailable):
        await find_working_executor()
    blueprint = Blueprint(name="a", description="", environment={"GEMINI_API_KEY": "secret"})
    assert (await find_working_executor(blueprint)).name == "gemini"

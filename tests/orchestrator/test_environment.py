"""What agents see of our environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.home import Home
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.environment import environment_for
from tests.support import proves

HOME = Home(Path("/h"))
OURS = {
    "PATH": "/bin",
    "HOME": "/home/anna",
    "LC_ALL": "C",
    "XDG_CONFIG_HOME": "/c",
    "HTTPS_PROXY": "http://proxy",
    "GITHUB_TOKEN": "secret",
    "ANTHROPIC_API_KEY": "a",
    "OPENAI_API_KEY": "o",
    "DATABASE_URL": "secret",
    "FIDELIO_LEDGER": "postgresql://secret",
    "FIDELIO_AGENT": "of our own",
}


def seen(executor: str, **more: object) -> dict[str, str]:
    blueprint = Blueprint(name="b", description="", **more)  # type: ignore[arg-type]  # any field of a blueprint
    return environment_for(blueprint, executor, "s_a.1", OURS, HOME)


@proves("orchestrator.environment")
def test_only_what_is_on_the_list_is_passed_on() -> None:
    assert seen("command") == {
        "PATH": "/bin",
        "HOME": "/home/anna",
        "LC_ALL": "C",
        "XDG_CONFIG_HOME": "/c",
        "HTTPS_PROXY": "http://proxy",
        "FIDELIO_HOME": "/h",
        "FIDELIO_AGENT": "s_a.1",
    }


@proves("orchestrator.environment")
@pytest.mark.parametrize(
    ("executor", "own", "not_own"),
    [("claude", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"), ("codex", "OPENAI_API_KEY", "ANTHROPIC_API_KEY")],
)
def test_an_agent_gets_its_own_key_and_no_other(executor: str, own: str, not_own: str) -> None:
    found = seen(executor)

    assert own in found
    assert not_own not in found


@proves("orchestrator.environment")
def test_a_blueprint_names_what_else_is_needed() -> None:
    found = seen("command", environment={"TEMPO": "3", "PATH": "/own"}, inherit=("DATABASE_URL", "NOT_THERE"))

    assert (found["TEMPO"], found["PATH"], found["DATABASE_URL"]) == ("3", "/own", "secret")
    assert "GITHUB_TOKEN" not in found


@proves("orchestrator.environment")
def test_nothing_takes_the_mark_of_the_run_away() -> None:
    found = seen("command", environment={"FIDELIO_AGENT": "", "FIDELIO_HOME": "/elsewhere"}, inherit=("FIDELIO_AGENT",))

    assert (found["FIDELIO_AGENT"], found["FIDELIO_HOME"]) == ("s_a.1", "/h")

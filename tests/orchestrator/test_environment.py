"""What agents see of our environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.home import Home
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.runs.environment import add_fidelio_environment, build_agent_environment, build_fidelio_environment
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
    "FIDELIO_LEDGER": "postgresql://anna:secret@host:5433/record?sslmode=require&password=secret",
    "FIDELIO_AGENTS_DEPTH": "1",
    "FIDELIO_KEY": "secret",
    "FIDELIO_TOKEN": "secret",
    "FIDELIO_AGENT": "of our own",
}
WITHOUT_PASSWORD = "postgresql://anna@host:5433/record?sslmode=require"


def seen(executor: str, **more: object) -> dict[str, str]:
    blueprint = Blueprint(name="b", description="", **more)  # type: ignore[arg-type]  # any field of a blueprint
    return build_agent_environment(blueprint, executor, "s_a.1", OURS, HOME)


@proves("orchestrator.environment")
def test_only_what_is_on_the_list_is_passed_on() -> None:
    assert seen("command") == {
        "PATH": "/bin",
        "HOME": "/home/anna",
        "LC_ALL": "C",
        "XDG_CONFIG_HOME": "/c",
        "HTTPS_PROXY": "http://proxy",
        "FIDELIO_HOME": "/h",
        "FIDELIO_LEDGER": WITHOUT_PASSWORD,
        "FIDELIO_AGENTS_DEPTH": "1",
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


@proves("orchestrator.house")
@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://anna@host/record", "postgresql://anna@host/record"),
        ("postgres://:secret@/record", "postgres://@/record"),
        ("postgresql:///record?host=/run&user=anna", "postgresql:///record?host=%2Frun&user=anna"),
        ("/elsewhere/record.db", "/elsewhere/record.db"),
    ],
)
def test_an_agent_gets_the_address_of_the_ledger_without_its_password(address: str, shown: str) -> None:
    blueprint = Blueprint(name="b", description="", environment={"FIDELIO_LEDGER": "/other"}, inherit=("FIDELIO_LEDGER",))
    found = build_agent_environment(blueprint, "command", "s_a.1", {"FIDELIO_LEDGER": address}, HOME)

    assert found["FIDELIO_LEDGER"] == shown


@proves("orchestrator.house")
def test_a_relative_ledger_path_is_passed_on_as_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert build_fidelio_environment({"FIDELIO_LEDGER": "record.db"}, HOME)["FIDELIO_LEDGER"] == str(tmp_path / "record.db")
    assert "FIDELIO_LEDGER" not in build_fidelio_environment({"FIDELIO_LEDGER": ""}, HOME)


@proves("orchestrator.house")
@pytest.mark.parametrize(
    ("command", "args", "is_ours"),
    [
        ("/venv/bin/fidelio", ("mcp",), True),
        ("python", ("-m", "fidelio", "mcp", "--toolset", "orchestrator"), True),
        ("uvx", ("--from", "fidelio-agents", "fidelio", "mcp"), True),
        ("fidelio", ("doctor",), False),
        ("npx", ("server", "--for", "fidelio"), False),
    ],
)
def test_only_a_fidelio_server_gets_the_whole_fidelio_environment(command: str, args: tuple[str, ...], is_ours: bool) -> None:
    server = McpServer(command=command, args=args, env={"FIDELIO_AGENTS_DEPTH": "0"})
    blueprint = Blueprint(name="b", description="", mcp_servers={"one": server, "web": McpServer(url="http://fidelio/mcp")})

    found = add_fidelio_environment(blueprint, build_fidelio_environment(OURS, HOME)).mcp_servers

    told = {"FIDELIO_HOME": "/h", "FIDELIO_LEDGER": OURS["FIDELIO_LEDGER"]} if is_ours else {}
    assert found["one"].env == {**told, "FIDELIO_AGENTS_DEPTH": "0"}
    assert found["web"] == blueprint.mcp_servers["web"]

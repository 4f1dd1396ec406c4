"""What agents see of our environment."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from fidelio.app.application import Application
from fidelio.home import Home
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.runs.environment import add_fidelio_environment, build_agent_environment, build_fidelio_environment
from fidelio.settings import load_settings
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


AWS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SOMETHING_NEW": "secret"}
GOOGLE = {"GOOGLE_APPLICATION_CREDENTIALS": "/key.json"}


def passed_on(executor: str, ours: dict[str, str], **more: object) -> set[str]:
    blueprint = Blueprint(name="b", description="", **more)  # type: ignore[arg-type]  # any field of a blueprint
    return set(build_agent_environment(blueprint, executor, "s_a.1", ours, HOME)) & set(ours)


@proves("orchestrator.credentials")
@pytest.mark.parametrize(
    ("executor", "switch", "value", "passed"),
    [
        ("claude", "NOTHING", "1", set()),
        ("claude", "CLAUDE_CODE_USE_BEDROCK", "0", set()),
        ("claude", "CLAUDE_CODE_USE_BEDROCK", "1", {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}),
        ("claude", "CLAUDE_CODE_USE_VERTEX", "1", {"GOOGLE_APPLICATION_CREDENTIALS"}),
        ("gemini", "GOOGLE_GENAI_USE_VERTEXAI", "true", {"GOOGLE_APPLICATION_CREDENTIALS"}),
        ("gemini", "GOOGLE_GENAI_USE_VERTEXAI", "false", set()),
        ("codex", "CLAUDE_CODE_USE_BEDROCK", "1", set()),
    ],
)
def test_the_credentials_of_a_provider_go_only_where_it_is_selected(
    executor: str, switch: str, value: str, passed: set[str]
) -> None:
    ours = {**AWS, **GOOGLE, switch: value}

    assert passed_on(executor, ours) - {switch} == passed
    assert passed_on(executor, {**AWS, **GOOGLE}, environment={switch: value}) == passed


@proves("orchestrator.credentials")
@pytest.mark.parametrize("executor", ["command", "claude", "codex", "gemini", "opencode", "qwen", "local-model", "scripted"])
def test_a_variable_is_passed_on_by_its_whole_name_only(executor: str) -> None:
    prefixes = ("LC", "XDG", "ANTHROPIC", "CLAUDE_CODE", "OPENAI", "CODEX", "GEMINI", "GOOGLE", "OPENCODE", "QWEN", "DASHSCOPE")

    assert passed_on(executor, {f"{prefix}_MADE_UP": "secret" for prefix in prefixes}) == set()


@proves("orchestrator.credentials")
@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://anna:secret@proxy:3128", "http://proxy:3128"),
        ("anna:se@cret@proxy:3128", "proxy:3128"),
        ("socks5h://anna@proxy", "socks5h://proxy"),
        ("http://proxy:3128/", "http://proxy:3128/"),
    ],
)
def test_the_password_of_a_proxy_goes_only_to_agents_that_need_it(address: str, shown: str) -> None:
    def proxy(executor: str, **more: object) -> str:
        blueprint = Blueprint(name="b", description="", **more)  # type: ignore[arg-type]  # any field of a blueprint
        return build_agent_environment(blueprint, executor, "s_a.1", {"HTTPS_PROXY": address}, HOME)["HTTPS_PROXY"]

    assert proxy("command") == proxy("scripted") == proxy("local-model") == shown
    assert proxy("claude") == proxy("command", inherit=("HTTPS_PROXY",)) == address


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


@proves("orchestrator.stored-server")
@pytest.mark.parametrize("address", [OURS["FIDELIO_LEDGER"], "postgres://anna:secret@host/record"])
def test_the_server_of_a_worker_is_stored_without_the_address_of_a_database_and_still_gets_it(address: str) -> None:
    environ = {"FIDELIO_HOME": "/h", "FIDELIO_LEDGER": address}
    server = Application(load_settings(environ=environ))._workflow_server()
    blueprint = Blueprint(name="b", description="", mcp_servers={"fidelio": server})

    started = add_fidelio_environment(blueprint, build_fidelio_environment(environ, HOME)).mcp_servers["fidelio"]

    assert b"secret" not in msgspec.json.encode(server)
    assert started.env["FIDELIO_LEDGER"] == address


@proves("orchestrator.stored-server")
def test_the_server_of_a_worker_keeps_the_path_of_another_ledger() -> None:
    server = Application(load_settings(environ={"FIDELIO_HOME": "/h", "FIDELIO_LEDGER": "/other/record.db"}))._workflow_server()

    assert server.env == {"FIDELIO_LEDGER": "/other/record.db"}


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

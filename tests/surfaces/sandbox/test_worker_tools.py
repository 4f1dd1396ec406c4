"""Blueprints with `tools: sandbox`: the agent gets the tools of a sandbox instead of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fidelio.conductor.plan import Plan
from fidelio.conductor.workers import Workers
from fidelio.engine.record import Record
from fidelio.errors import FidelioError
from fidelio.home import Home
from fidelio.ledger import open_ledger
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Blueprint, Permissions
from fidelio.orchestrator.blueprints.servers import add_sandbox_server
from fidelio.orchestrator.executors.claude.executor import build_command
from fidelio.orchestrator.executors.registry import get_executors
from fidelio.orchestrator.record.model import StartAgent
from fidelio.orchestrator.record.record import AgentRecord, RunRecord
from tests.orchestrator.blueprints.files import AGENTS, open_catalogue, write_page
from tests.orchestrator.executors.recording import make_turn
from tests.orchestrator.fakes import OrchestratorHarness
from tests.support import proves


def closed(**more: object) -> Blueprint:
    return Blueprint(name="closed", description="Works in a sandbox.", tools="sandbox", **more)  # type: ignore[arg-type]  # any fields


@proves("blueprints.sandbox-tools")
def test_a_blueprint_says_that_its_agent_works_in_a_sandbox(tmp_path: Path) -> None:
    write_page(tmp_path / AGENTS, "closed", "tools: sandbox\nexecutor: claude\n")
    write_page(tmp_path / AGENTS, "usual")

    catalogue = open_catalogue()

    assert catalogue.get("closed", tmp_path).tools == "sandbox"
    assert catalogue.get("usual", tmp_path).tools == "own"


@proves("blueprints.sandbox-tools")
@pytest.mark.parametrize(
    ("front", "said"),
    [
        ("tools: everything\n", "Invalid enum value 'everything'"),
        ("tools: sandbox\nworktree: true\n", "contradicts `tools: sandbox`"),
        ("tools: sandbox\nmcp_servers: {sandbox: {command: x}}\n", "has the name of the server that `tools: sandbox` adds"),
    ],
)
def test_a_contradiction_in_a_blueprint_is_named(tmp_path: Path, front: str, said: str) -> None:
    write_page(tmp_path / AGENTS, "closed", front)

    with pytest.raises(FidelioError, match=said):
        open_catalogue().get("closed", tmp_path)


@proves("blueprints.sandbox-tools")
def test_the_agent_gets_the_server_of_its_session_with_a_copy_of_the_project() -> None:
    found = add_sandbox_server(closed(), home="/home/me/.fidelio", project="/src/a:b", session="workflow-s_1")

    server = found.mcp_servers["sandbox"]
    assert server.command == sys.executable
    assert server.args == (
        *("-m", "fidelio", "mcp", "--toolset", "sandbox", "--home", "/home/me/.fidelio"),
        *("--session", "workflow-s_1", "--mount", "/src/a:b:copy"),
    )
    # The gate of the session decides, where the effect happens.
    assert found.permissions == Permissions(allow=("mcp__sandbox",))
    usual = Blueprint(name="usual", description="")
    assert add_sandbox_server(usual, home="h", project="p", session="s") is usual


@proves("blueprints.sandbox-tools")
def test_claude_code_has_none_of_its_own_tools(tmp_path: Path) -> None:
    blueprint = add_sandbox_server(closed(), home=str(tmp_path), project=str(tmp_path), session="agent-s_1")
    argv = build_command(make_turn(tmp_path, blueprint=blueprint))

    assert "--tools=" in argv
    written = next(Path(part.partition("=")[2]) for part in argv if part.startswith("--mcp-config="))
    assert '"--toolset","sandbox"' in written.read_text()
    assert "--tools=" not in build_command(make_turn(tmp_path, blueprint=Blueprint(name="usual", description="")))


@proves("blueprints.sandbox-tools")
def test_claude_code_reads_no_settings_that_could_run_hooks_outside() -> None:
    problems = get_executors()["claude"].problems(closed(options={"setting_sources": ["user"]}))

    assert problems == (
        "setting_sources contradicts `tools: sandbox`: settings may contain hooks, which run outside. Remove one.",
    )


@proves("blueprints.sandbox-tools")
@pytest.mark.parametrize(
    ("executor", "why"),
    [
        ("codex", "Codex cannot switch its own shell and patch tools off."),
        ("gemini", "Gemini CLI has no switch over ACP that turns its own tools off."),
        ("opencode", "OpenCode has no switch over ACP that turns its own tools off."),
        ("command", "a program of the executor command runs on this machine as it is."),
        ("local-model", "the local model calls no tools."),
    ],
)
def test_an_executor_that_keeps_tools_of_its_own_is_refused_with_the_reason(executor: str, why: str) -> None:
    options = {"command": ["true"]} if executor == "command" else {}
    found = get_executors()[executor].problems(closed(options=options))

    assert found[-1] == f"`tools: sandbox` is refused: {why} Use the executor claude, or remove the key."
    assert not [said for said in get_executors()["scripted"].problems(closed()) if "sandbox" in said]


class _Agents:
    """Records what the conductor starts."""

    def __init__(self) -> None:
        self.started: list[StartAgent] = []

    async def start(self, request: StartAgent) -> None:
        self.started.append(request)


@proves("blueprints.sandbox-tools")
async def test_all_workers_of_a_workflow_share_one_sandbox_session(tmp_path: Path) -> None:
    agents = _Agents()
    workers = Workers(agents, McpServer(command="fidelio"))  # type: ignore[arg-type]  # a part of the service is enough
    plan = Plan(workflow="w", project=str(tmp_path), agent="closed")
    for segment in ("1", "2"):
        await workers.start("s_abc", Record(), plan, "Do it.", segment)

    assert [request.sandbox for request in agents.started] == ["workflow-s_abc", "workflow-s_abc"]


@proves("blueprints.sandbox-tools")
@pytest.mark.parametrize(("shared", "name"), [("workflow-s_1", "workflow-s_1"), ("", "agent-s_2")])
async def test_the_server_names_the_shared_session_or_that_of_the_agent(tmp_path: Path, shared: str, name: str) -> None:
    home = Home(tmp_path / "home").ensure()
    async with await open_ledger(home.ledger) as ledger:
        harness = OrchestratorHarness(ledger, home, tmp_path)
        harness.blueprints.add("closed", tools="sandbox")
        record = AgentRecord(blueprint="closed", project=str(tmp_path), sandbox=shared, run=RunRecord(id="s_2.1"))

        found = await harness.service().context.load_session_blueprint(record)

    assert found.mcp_servers["sandbox"].args[-4:] == ("--session", name, "--mount", f"{tmp_path}:copy")

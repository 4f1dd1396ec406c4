"""What is checked before a start is acknowledged, beyond names and directories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fidelio.conductor.workers import Workers
from fidelio.errors import BlueprintNotFound, ExecutorUnavailable, UsageProblem
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.executors.command import CommandExecutor
from fidelio.orchestrator.executors.contract import Availability
from fidelio.orchestrator.service.service import AgentService
from fidelio.processes.table import AGENT_MARKER
from tests.orchestrator.fakes import FakeExecutor, OrchestratorHarness, start, wait_until_finished
from tests.orchestrator.worktrees.test_worktrees import git, repository
from tests.support import proves

SERVER = McpServer(command="serve", env={"KEY": "${SINGING_KEY}"})


@dataclass
class Counting(FakeExecutor):
    """Counts how often it is asked whether it works, and uses no tools."""

    asked: list[Mapping[str, str] | None] = field(default_factory=list)

    async def availability(self, added: Mapping[str, str] | None = None, /) -> Availability:
        self.asked.append(added)
        return await super().availability(added)

    def problems(self, blueprint: Blueprint) -> tuple[str, ...]:
        return ("It uses no tools.",) if blueprint.mcp_servers else ()


async def refused(service: AgentService, problem: type[Exception], words: str, **more: Any) -> None:
    with pytest.raises(problem, match=words):
        await start(service, "aria", **more)
    assert (await service.list()).items == ()


@proves("orchestrator.checked-start")
async def test_a_program_that_is_not_on_the_path_is_reported_at_the_start(harness: OrchestratorHarness) -> None:
    harness.others["command"] = CommandExecutor()
    harness.blueprints.add("stranger", options={"command": ["no-such-agent"]})

    await refused(
        harness.service(), BlueprintNotFound, "No program called no-such-agent", blueprint="stranger", executor="command"
    )


@proves("orchestrator.checked-start")
async def test_a_missing_variable_of_a_server_is_reported_at_the_start(
    harness: OrchestratorHarness, hosted: AgentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.blueprints.add("keyed", mcp_servers={"own": SERVER}, inherit=("SINGING_KEY",))
    monkeypatch.delenv("SINGING_KEY", raising=False)
    await refused(hosted, ExecutorUnavailable, "SINGING_KEY, which is not set", blueprint="keyed")

    monkeypatch.setenv("SINGING_KEY", "la")
    await start(hosted, "aria", blueprint="keyed")
    await wait_until_finished(hosted, "aria")
    monkeypatch.delenv("SINGING_KEY")
    with pytest.raises(ExecutorUnavailable, match="SINGING_KEY"):
        await hosted.resume("aria", "Again.")


@proves("orchestrator.checked-start")
async def test_below_an_agent_the_variables_of_servers_are_not_checked(
    harness: OrchestratorHarness, service: AgentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.blueprints.add("keyed", mcp_servers={"own": SERVER}, inherit=("SINGING_KEY",))
    monkeypatch.delenv("SINGING_KEY", raising=False)
    monkeypatch.setenv(AGENT_MARKER, "s_nobody.1")

    assert (await start(service, "aria", blueprint="keyed")).run.state == "queued"


@proves("orchestrator.checked-start", "orchestrator.worktree")
async def test_a_project_that_is_in_no_commit_is_reported_at_the_start(
    harness: OrchestratorHarness, service: AgentService
) -> None:
    repository(harness.project)
    new = harness.project / "new place"
    new.mkdir()

    await refused(service, UsageProblem, "new place/ is not in the last commit", worktree=True, project=str(new))

    (new / "score.txt").write_text("la\n", "utf-8")
    git(harness.project, "add", ".")
    git(harness.project, "commit", "--quiet", "-m", "More")
    assert (await start(service, "aria", worktree=True, project=str(new))).run.state == "queued"


@proves("orchestrator.checked-start", "orchestrator.worktree")
async def test_a_branch_with_a_conflicting_name_is_reported_at_the_start(
    harness: OrchestratorHarness, service: AgentService
) -> None:
    repository(harness.project)
    git(harness.project, "branch", "fidelio")

    await refused(service, UsageProblem, r"has one that is called fidelio\. Rename it", worktree=True)


@proves("orchestrator.worktree")
async def test_branches_below_the_name_of_a_session_are_left_alone(harness: OrchestratorHarness, hosted: AgentService) -> None:
    repository(harness.project)
    git(harness.project, "branch", "fidelio/aria/second")
    session = await start(hosted, "aria", worktree=True)
    (found,) = await wait_until_finished(hosted, "aria")

    assert found.run.state == "succeeded"
    assert git(Path(found.worktree or ""), "branch", "--show-current") == f"fidelio/aria-{session.id.removeprefix('s_')}"


@proves("orchestrator.worktree-kept", "orchestrator.vanished")
async def test_a_worktree_of_a_repository_that_does_not_answer_is_kept(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    repository(harness.project)
    for name in ("aria", "duo"):
        await start(hosted, name, worktree=True)
    aria, duo = await wait_until_finished(hosted, "aria", "duo")
    git(harness.project, "worktree", "remove", duo.worktree or "")
    (harness.project / ".git" / "HEAD").unlink()

    assert (await hosted.delete("aria")).retained_worktrees == (aria.worktree,)
    assert (await hosted.delete("duo")).retained_worktrees == ()
    assert list(harness.home.worktrees.iterdir()) == [Path(aria.worktree or "")]


@proves("conductor.checks-plans", "orchestrator.checked-start")
async def test_a_worker_that_cannot_use_the_workflow_tools_is_reported_before_the_workflow_begins(
    harness: OrchestratorHarness,
) -> None:
    harness.actor = Counting()
    harness.blueprints.add("worker")
    workers = Workers(harness.service(), McpServer(command="fidelio", args=("mcp",)))

    with pytest.raises(ExecutorUnavailable, match="the executor actor gives its agents no MCP servers"):
        await workers.check("worker", str(harness.project))


@proves("executors.availability")
async def test_an_agent_is_asked_once_whether_it_works(harness: OrchestratorHarness) -> None:
    harness.actor = actor = Counting()
    harness.blueprints.known["worker"] = Blueprint(name="worker", description="", environment={"KEY": "la"})
    service = harness.service()

    await start(service, "aria", blueprint="worker")
    await service.context.check_executor(msgspec.structs.replace(harness.blueprints.known["worker"], executor="actor"))

    assert actor.asked == [{"KEY": "la"}, {"KEY": "la"}]

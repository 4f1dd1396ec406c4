"""Failures of Claude Code are reported with their reason, and a host that dies loses nothing."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from fidelio.errors import ExecutorFailure, LimitReached
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Blueprint, Limits
from fidelio.orchestrator.executors.claude import executor as claude_command
from fidelio.orchestrator.executors.claude.executor import ClaudeExecutor
from fidelio.processes.ending import wait_until_ended
from tests.agents.bench import bench
from tests.agents.harness_claude import ClaudeHarness
from tests.agents.model import SECONDS, Held, ModelCall, ModelText, Refuse, Spent
from tests.agents.programs import require_claude
from tests.agents.watcher import left_behind
from tests.orchestrator.executors.recording import RecordingReporter
from tests.support import proves

CLAUDE = ClaudeHarness()


@dataclass(frozen=True)
class WithoutKey(ClaudeHarness):
    def environment(self, home: Path, model: str) -> dict[str, str]:
        environment = super().environment(home, model)
        del environment["ANTHROPIC_API_KEY"]
        return environment


@proves("agents.claude-failures")
async def test_without_a_key_it_says_that_it_is_not_logged_in(tmp_path: Path) -> None:
    async with bench(WithoutKey(), tmp_path, [ModelText("Never.")]) as place:
        with pytest.raises(ExecutorFailure, match="not logged in") as failure:
            await place.carry_out(place.turn("Hello."), RecordingReporter())

    assert failure.value.reason == "not-logged-in"
    assert "ANTHROPIC_API_KEY" in str(failure.value)


@proves("agents.claude-failures")
async def test_a_key_that_is_not_accepted_is_not_tried_for_minutes(tmp_path: Path) -> None:
    async with bench(CLAUDE, tmp_path, lambda _: Refuse(401, "invalid x-api-key")) as place:
        with pytest.raises(ExecutorFailure, match="does not accept") as failure:
            await place.carry_out(place.turn("Hello."), RecordingReporter())

    assert failure.value.reason == "not-logged-in"
    assert len(place.model.heard) <= 4


@proves("agents.claude-failures")
async def test_an_error_of_the_model_is_reported_with_the_messages_before(tmp_path: Path) -> None:
    script = [ModelCall("list_workflows"), Refuse(400, "That is too odd.")]
    async with bench(CLAUDE, tmp_path, lambda heard: script[min(len(heard.seen), 1)]) as place:
        with pytest.raises(ExecutorFailure, match=r"That is too odd\.") as failure:
            await place.carry_out(place.turn("Hello."), RecordingReporter())

    assert failure.value.reason == "model.400"


@proves("agents.claude-failures")
async def test_an_agent_that_does_not_get_its_tools_does_not_work_without_them(tmp_path: Path) -> None:
    async with bench(CLAUDE, tmp_path, [ModelText("Then I shall guess.")]) as place:
        turn = place.turn("Hello.", mcp_servers={"tools": McpServer(command="/bin/false")})
        with pytest.raises(ExecutorFailure, match="cannot reach the MCP server tools") as failure:
            await place.carry_out(turn, RecordingReporter())

    assert failure.value.reason == "mcp-server"


@proves("agents.claude-cost")
async def test_a_run_that_has_spent_what_it_may_is_ended(tmp_path: Path) -> None:
    reporter = RecordingReporter()
    script = [ModelCall("list_workflows", spent=Spent(1_000_000, 100_000)), ModelText("Never.")]
    async with bench(CLAUDE, tmp_path, script) as place:
        with pytest.raises(LimitReached) as failure:
            await place.carry_out(place.turn("Spend.", limits=Limits(cost_usd=0.01)), reporter)

    assert (failure.value.reason, len(place.model.heard)) == ("limit.cost_usd", 1)
    assert reporter.usages[-1].cost_usd > 0.01


@proves("agents.adopted")
async def test_an_agent_is_read_to_its_end_by_a_second_host_and_again_by_a_third(tmp_path: Path) -> None:
    reporter, held = RecordingReporter(), Held(ModelText("All done."))
    async with bench(CLAUDE, tmp_path, [ModelCall("list_workflows"), held]) as place:
        turn = place.turn("Do it.")
        process = await left_behind(CLAUDE, turn, until="called")
        held.release()
        adopted = await place.adopt(turn, process, reporter)
        await wait_until_ended([process], SECONDS)
        again = await place.adopt(turn, process, RecordingReporter())

    assert adopted == again
    assert adopted is not None
    assert (adopted.text, len(reporter.calls), len(reporter.returns)) == ("All done.", 1, 1)


@proves("agents.claude-program")
async def test_the_program_inside_the_package_is_used_else_the_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = require_claude()
    (tmp_path / "claude").symlink_to(bundled)
    assert claude_command.find_claude(str(tmp_path)) == str(bundled)

    monkeypatch.setattr(claude_command, "_package_directory", lambda: None)
    assert claude_command.find_claude(str(tmp_path)) == str(tmp_path / "claude")
    assert claude_command.find_claude(str(tmp_path / "elsewhere")) is None


@proves("agents.claude-availability")
async def test_it_says_whether_it_works_here_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_claude()
    environment = {"HOME": str(tmp_path), "PATH": os.defpath}
    with_key = await ClaudeExecutor({**environment, "ANTHROPIC_API_KEY": "test"}).availability()
    without = await ClaudeExecutor(environment).availability()
    monkeypatch.setattr(claude_command, "_package_directory", lambda: None)
    missing = await ClaudeExecutor({**environment, "PATH": str(tmp_path)}).availability()

    written = await asyncio.to_thread(lambda: list(tmp_path.iterdir()))
    assert written == []
    assert (with_key.works, with_key.version[:2]) == (True, "2.")
    assert (without.works, "not logged in" in without.why, "ANTHROPIC_API_KEY" in without.why) == (False, True, True)
    assert (missing.works, "not installed" in missing.why, "claude-agent-sdk" in missing.why) == (False, True, True)


@proves("agents.claude-problems")
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"options": {"tools": []}}, "The executor claude has no option tools; it has setting_sources."),
        ({"options": {"setting_sources": ["mine"]}}, "The option setting_sources must be a list of user, project, local."),
        ({"options": {"setting_sources": [{}]}}, "The option setting_sources must be a list of user, project, local."),
        ({"options": {"setting_sources": "user"}}, "The option setting_sources must be a list of user, project, local."),
        ({"output_schema": {"description": "x" * 200_000}}, "Claude Code takes an output schema of at most 100000 characters."),
    ],
)
def test_what_it_cannot_do_is_said_before_a_session_begins(changes: dict[str, object], sentence: str) -> None:
    blueprint = Blueprint(name="x", description="x", **changes)  # type: ignore[arg-type]  # each case sets one field

    assert ClaudeExecutor().problems(blueprint) == (sentence,)
    assert ClaudeExecutor().problems(Blueprint(name="x", description="x")) == ()

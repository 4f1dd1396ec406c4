"""Replies to agents that would end themselves, and to starts that are queued."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from fidelio.app.application import Application
from fidelio.orchestrator.record.model import StartAgent
from fidelio.processes.table import AGENT_MARKER
from fidelio.settings import Settings, load_settings
from fidelio.surfaces.cli.run import _build_plan
from tests.support import proves
from tests.surfaces.orchestrator.conftest import SECONDS, ToolClient, in_memory
from tests.surfaces.orchestrator.test_command_line import Shell
from tests.surfaces.orchestrator.test_questions import ASK

OWN = {"command": sys.executable, "args": ["-m", "fidelio", "mcp", "--toolset", "orchestrator"]}


async def run_of(client: ToolClient, name: str) -> str:
    """The first run of a session."""
    found = await client("get_agent_session_status", session_name=name, project_dir=str(client.project))
    return f"{found.body['session_id']}.1"


@proves("families.own-line")
async def test_an_agent_that_deletes_all_lives_to_hear_the_answer(memory: ToolClient) -> None:
    everything = {"tool": "delete_all_agent_sessions", "server": "own", "arguments": {}}
    memory.script("tidy", [{"call": everything}, {"result": "{returned}"}], mcp_servers={"own": OWN})
    await memory.start("other")

    done = await memory.start("tidy", "tidy")

    assert done.text.startswith("All sessions removed")
    assert "These stay, because this call is part of their work: tidy" in done.text
    listed = await memory("list_agent_sessions", response_format="json")
    assert [one["name"] for one in listed.body["sessions"]] == ["tidy"]


@proves("families.own-line")
@pytest.mark.parametrize("tool", ["stop_agent_session", "delete_agent_session"])
async def test_an_agent_that_would_end_itself_is_told_what_to_do_instead(settings: Settings, project: Path, tool: str) -> None:
    async with asyncio.timeout(SECONDS), in_memory(settings, project) as person:
        person.script("polite", [ASK, {"result": "Done."}])
        await person.start("task", "polite")
        async with in_memory(settings, project, {AGENT_MARKER: await run_of(person, "task")}) as own:
            refused = await own(tool, session_name="task", project_dir=str(project))
    assert refused.is_error
    assert "Session task makes this call itself" in refused.text
    assert "Finish the turn instead" in refused.text


@proves("families.own-line")
def test_an_agent_at_the_command_line_cannot_end_itself_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agents = Shell(tmp_path)
    gate = agents.project / "gate"
    agents.script("slow", [{"pause": {"until": str(gate), "seconds": 50}}, {"result": "Done."}])
    agents("start", "task", "Hello.", "-b", "slow", "--detach")
    agents("start", "other", "Hello.", "-b", "slow", "--detach")
    monkeypatch.setenv(AGENT_MARKER, f"{json.loads(agents('status', 'task', '--json'))['session_id']}.1")

    for command in (("stop",), ("delete", "--yes")):
        assert "Session task makes this call itself" in agents(*command, "task", code=2)
    done = agents("delete", "--all", "--yes")
    gate.touch()

    assert done.splitlines() == ["All sessions removed", "Session task was not deleted: this command is part of its work."]


@proves("families.workflow-workers")
async def test_the_workers_of_a_workflow_at_the_command_line_are_of_the_agent_that_runs_it(
    settings: Settings, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {"workflow": "hello", "agent": "echo", "pairs": (), "inputs": (), "tries": 3, "detach": False}
    async with Application(settings, with_bundled=True) as app:
        service = await app.agents(host=False)
        task = await service.start(StartAgent(name="task", prompt="Hello.", blueprint="echo", project=str(project)))
        monkeypatch.setenv(AGENT_MARKER, task.run.id)
        assert (await _build_plan(app, str(project), wanted)).caller == task.id
        monkeypatch.delenv(AGENT_MARKER)
        assert (await _build_plan(app, str(project), wanted)).caller is None
        await service.delete(task.id)


@proves("families.people-take-no-place")
async def test_a_queued_start_is_not_reported_as_running(tmp_path: Path, project: Path) -> None:
    environ = {"FIDELIO_HOME": str(tmp_path / "home"), "FIDELIO_SYNC_SECONDS": "1", "FIDELIO_AGENTS_PER_PROJECT": "1"}
    gate = project / "gate"
    async with asyncio.timeout(SECONDS), in_memory(load_settings(environ=environ), project) as client:
        client.script("slow", [{"pause": {"until": str(gate), "seconds": 50}}, {"result": "Done."}])
        await client.start("first", "slow", **{"async": True})
        for number, in_background in enumerate((False, True)):
            waiting = await client.start(f"second-{number}", "echo", **{"async": in_background})
            assert waiting.body["state"] == "queued"
            assert "is queued: it runs in the background as soon as there is a place for it" in waiting.body["message"]
        gate.write_text("")
        names = ["first", "second-0", "second-1"]
        await client("wait_for_agent_sessions", session_names=names, mode="all", project_dir=str(project))

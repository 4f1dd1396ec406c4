"""Ways in which an agent could pass for somebody else on the command line and in the orchestrator's tools."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fidelio.app.application import Application
from fidelio.orchestrator.executors.registry import get_executors
from fidelio.processes import table
from fidelio.processes.caller import identify_process
from fidelio.settings import Settings
from tests.support import proves
from tests.surfaces.conftest import Fidelio
from tests.surfaces.orchestrator.conftest import SECONDS, in_memory
from tests.surfaces.orchestrator.test_questions import ASK

# An agent that clears the environment of what it starts.
CLEARED = (
    "import subprocess, sys; sys.exit(subprocess.run(sys.argv[2:], env={'FIDELIO_HOME': sys.argv[1]}, check=False).returncode)"
)


def run_below(run: str, settings: Settings, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command below the agent of a run, without its environment."""
    home = str(settings.home.path)
    argv = [sys.executable, "-c", CLEARED, home, sys.executable, "-m", "fidelio", *words]
    environ = {**os.environ, "FIDELIO_AGENT": run}
    return subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False)


@proves("orchestrator-tools.own-questions", "orchestrator-tools.unknown-agents")
async def test_an_agent_with_a_malformed_sign_may_only_read(settings: Settings, project: Path) -> None:
    async with asyncio.timeout(SECONDS), in_memory(settings, project) as client:
        client.script("polite", [ASK, {"result": "You said {answer.option}."}])
        await client.start("asker", "polite")
        async with in_memory(settings, project, {"FIDELIO_AGENT": "garbage"}) as agent:
            calls = [
                await agent("answer_agent_question", session_name="asker", option_id="yes"),
                await agent("stop_agent_session", session_name="asker"),
                await agent("delete_agent_session", session_name="asker"),
                await agent("delete_all_agent_sessions"),
                await agent("resume_agent_session", session_name="asker", prompt="Go on."),
                await agent("send_agent_message", session_name="asker", message="Go on."),
                await agent.start("other"),
                await agent("run_workflow", workflow_id="hello"),
            ]
            seen = await agent("get_agent_session_status", session_name="asker", project_dir=str(project))

    assert ["It may only read" in refused.text for refused in calls] == [True] * len(calls)
    assert seen.body["state"] == "waiting"


@proves("orchestrator-tools.unknown-agents")
async def test_an_agent_that_clears_its_environment_does_not_stop_its_parent(settings: Settings, project: Path) -> None:
    async with asyncio.timeout(SECONDS), in_memory(settings, project) as client:
        client.script("polite", [ASK, {"result": "Done."}])
        parent = (await client.start("parent", "polite")).body["session_id"]
        stop = await asyncio.to_thread(
            run_below, f"{parent}.1", settings, "agents", "stop", "parent", "--project", str(project)
        )
        seen = await client("get_agent_session_status", session_name="parent")

    assert stop.returncode != 0
    assert "makes this call itself" in stop.stderr
    assert seen.body["state"] == "waiting"


# Claims a run, with the mark that fits it, like an agent that has left its own process session and parents.
FORGED = (
    "import os, resource, sys\n"
    "from fidelio.processes.table import NEUTRAL_MARK, compute_mark\n"
    "resource.setrlimit(resource.RLIMIT_RTTIME, (compute_mark(os.environ['FIDELIO_AGENT']), NEUTRAL_MARK))\n"
    "os.execv(sys.executable, [sys.executable, '-m', 'fidelio', *sys.argv[1:]])\n"
)


def run_forged(run: str, settings: Settings, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "FIDELIO_HOME": str(settings.home.path), "FIDELIO_AGENT": run}
    argv = [sys.executable, "-c", FORGED, *words]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False)


@proves("orchestrator-tools.confirmed-runs")
@pytest.mark.skipif(bool(table.missing_support()), reason="the system does not show the processes above")
async def test_an_agent_that_claims_the_run_of_another_may_only_read(settings: Settings, project: Path) -> None:
    os.mkfifo(project / "began")
    async with asyncio.timeout(SECONDS), in_memory(settings, project) as client:
        client.script("sleeper", executor="command", options={"command": ["sh", "-c", "echo > began; exec sleep 600"]})
        client.script("polite", [ASK, {"result": "Done."}])
        sleeping = (await client.start("sleeper", "sleeper", **{"async": True})).body["session_id"]
        await asyncio.to_thread((project / "began").read_text)
        playing = (await client.start("parent", "polite")).body["session_id"]
        claims = [f"{sleeping}.1", f"{playing}.1", f"{sleeping}.2", "s_000000000001.1"]
        forged = [
            await asyncio.to_thread(run_forged, claim, settings, "agents", *words, "--project", str(project))
            for claim in claims
            for words in (("stop", "parent"), ("start", "child", "Hello.", "-b", "echo", "--detach"))
        ]
        seen = await client("get_agent_session_status", session_name="parent")
        listed = await client("list_agent_sessions", response_format="json")
        await client("stop_agent_session", session_name="sleeper")

    assert ["It may only read" in done.stderr for done in forged] == [True] * len(forged), forged
    assert seen.body["state"] == "waiting"
    assert {one["name"] for one in listed.body["sessions"]} == {"sleeper", "parent"}


@proves("orchestrator-tools.confirmed-runs")
@pytest.mark.skipif(bool(table.missing_support()), reason="the system does not show the processes above")
async def test_a_process_of_the_agent_is_confirmed_also_after_its_parent_has_ended(settings: Settings, project: Path) -> None:
    command = f"({sys.executable} -m fidelio agents start child Hello. -b echo --detach > said 2>&1; mv said done) & exit 0"
    waiting = f'sh -c "$0"; until test -e done; do {sys.executable} -c "import time; time.sleep(0.05)"; done; cat done'
    async with asyncio.timeout(SECONDS), in_memory(settings, project) as client:
        client.script("boss", executor="command", options={"command": ["sh", "-c", waiting, command]})
        boss = await client.start("boss", "boss")
        async with Application(settings) as app:
            sessions = (await (await app.agents()).list()).items

    line = {one.name: one.parent for one in sessions}
    assert line["child"] == next(one.id for one in sessions if one.name == "boss"), boss.text


@proves("orchestrator-tools.unknown-agents", "inbox.person")
@pytest.mark.parametrize("run", ["garbage", "s_000000000001.1"])
@pytest.mark.parametrize(
    "words", [("agents", "start", "x", "Hello.", "-b", "echo"), ("answer", "r_1", "yes"), ("sessions", "--end", "x")]
)
def test_a_command_below_an_agent_changes_nothing(settings: Settings, run: str, words: tuple[str, ...]) -> None:
    done = run_below(run, settings, *words)

    assert done.returncode != 0
    assert "agent" in done.stderr or "s_000000000001" in done.stderr


@pytest.fixture
def without_process_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A system such as macOS."""
    monkeypatch.setattr(table, "_PROC", tmp_path / "none")
    monkeypatch.setattr(table, "_LIMIT", None)
    table.missing_support.cache_clear()
    yield
    monkeypatch.undo()
    table.missing_support.cache_clear()


@proves("cli.doctor", "executors.availability")
@pytest.mark.usefixtures("without_process_table")
async def test_without_a_process_table_nothing_that_needs_it_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {name: (await executor.availability()).works for name, executor in get_executors().items()}

    assert {name for name, works in found.items() if works} == {"scripted"}
    monkeypatch.setenv("FIDELIO_AGENT", "s_000000000001.1")
    assert identify_process().run == "s_000000000001.1"


@proves("cli.doctor")
@pytest.mark.usefixtures("without_process_table")
def test_doctor_says_that_the_signs_of_processes_are_missing(fidelio: Fidelio) -> None:
    checks = {check["name"]: check for check in json.loads(fidelio("doctor", "--json").stdout)["checks"]}

    assert checks["processes"]["state"] == "warning"
    assert "recognized by its environment and header only" in checks["processes"]["cost"]

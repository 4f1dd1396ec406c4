"""A worker whose home is taken away while its agents work or wait for a person."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fidelio.app.agents import open_agents
from fidelio.errors import HomeProblem
from fidelio.home import Home
from fidelio.ledger import open_ledger
from fidelio.orchestrator.record.model import StartAgent
from fidelio.orchestrator.runs.host_process import watch_home, work_until_idle
from fidelio.processes.spooled import is_alive
from fidelio.settings import load_settings
from tests.orchestrator.fakes import TIMEOUT_SECONDS, OrchestratorHarness, PausedTurn, start, wait_until
from tests.support import proves

ASKER = """---
name: asker
description: Asks and waits.
executor: scripted
options:
  process: true
  script: {turns: [[{ask: {text: May I?, options: {go: Go on}}}, {result: Done.}]]}
---
Ask.
"""


def deleted(home: Path) -> None:
    shutil.rmtree(home)


def replaced(home: Path) -> None:
    shutil.rmtree(home)
    home.mkdir()


def moved(home: Path) -> None:
    home.rename(home.with_name("elsewhere"))


@proves("gone.home")
async def test_a_turn_in_the_worker_itself_ends_with_its_home(harness: OrchestratorHarness) -> None:
    paused, service = PausedTurn(), harness.service()
    harness.actor.part = paused.part
    session = await start(service, "aria")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        working = asyncio.create_task(work_until_idle(service.context, idle_seconds=60))
        await paused.entered.wait()
        deleted(harness.home.path)
        with pytest.raises(HomeProblem, match=r"was deleted, so the agents that worked for it were stopped\."):
            await working

    assert paused.left == [session.run.id]
    assert not harness.home.path.exists()


@proves("gone.home", "gone.home-on-record")
@pytest.mark.parametrize("takes", [deleted, replaced, moved])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["its record", "a record elsewhere"])
async def test_an_agent_that_waits_for_a_person_is_ended_with_the_home_of_its_worker(
    tmp_path: Path, takes: Callable[[Path], None], elsewhere: bool
) -> None:
    environ = {"FIDELIO_HOME": str(tmp_path / "home")}
    environ |= {"FIDELIO_LEDGER": str(tmp_path / "ledger.db")} if elsewhere else {}
    settings = load_settings(environ=environ)
    settings.home.ensure().agents.mkdir()
    (settings.home.agents / "asker.md").write_text(ASKER)
    async with await open_ledger(settings.ledger) as ledger:
        service = open_agents(settings, ledger)
        session = await service.start(StartAgent(name="aria", prompt="?", blueprint="asker", project=str(tmp_path)))
        command = (sys.executable, "-m", "fidelio", "work")
        worker = await asyncio.create_subprocess_exec(
            *command, cwd=tmp_path, stderr=subprocess.PIPE, env={**os.environ, **environ}
        )
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await wait_until(service, session.id, lambda now: now.run.state == "waiting")
                process = (await service.context.unit.load(session.id)).record.run.process
                assert process is not None
                assert is_alive(process)
                takes(settings.home.path)
                _, said = await worker.communicate()
        finally:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()
        if elsewhere:
            ended = await service.find(session.id)
            (asked,) = (await ledger.requests(session=session.id, state=None)).items
            assert (ended.run.state, ended.run.reason, asked.state) == ("stopped", "stop.home", "dismissed")

    assert worker.returncode == 1
    assert said.decode().startswith(f"fidelio: The home directory {settings.home.path} was deleted")
    assert not is_alive(process)


@proves("gone.home")
def test_a_home_is_unchanged_until_its_directory_is_replaced(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").ensure()
    with watch_home(home) as is_there:
        (home.path / "file").touch()
        seen = [is_there()]
        moved(home.path)
        seen.append(is_there())
        home.ensure()
        seen.append(is_there())
        home.path.rmdir()
        (tmp_path / "elsewhere").rename(home.path)
        seen.append(is_there())

    assert seen == [True, False, False, True]

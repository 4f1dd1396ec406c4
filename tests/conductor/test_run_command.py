"""`fidelio run` as a process: its JSON output, killed and started again."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

from fidelio.inbox import Inbox
from tests.conductor.run_setup import SECONDS, RunSetup, list_workers
from tests.support import proves


async def run_hello(setup: RunSetup, *more: str) -> asyncio.subprocess.Process:
    return await run_workflow(setup, "hello", *more)


async def run_workflow(setup: RunSetup, name: str, *more: str) -> asyncio.subprocess.Process:
    environ = {**os.environ, "FIDELIO_HOME": str(setup.home)}
    command = ["-m", "fidelio", "run", name, "--agent", "robot", "--json", *more]
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=setup.project, env=environ, stdout=pipe, stderr=pipe, start_new_session=True
    )


async def until(process: asyncio.subprocess.Process, kind: str) -> dict[str, Any]:
    """The first line of this kind."""
    assert process.stdout is not None
    async for line in process.stdout:
        event: dict[str, Any] = json.loads(line)
        if event["kind"] == kind:
            return event
    assert process.stderr is not None
    raise AssertionError((await process.stderr.read()).decode())


@proves("conductor.goes-on", "conductor.shows-progress")
async def test_a_killed_run_resumes_where_it_was(setup: RunSetup) -> None:
    async with asyncio.timeout(SECONDS):
        first = await run_hello(setup)
        begun = await until(first, "begun")
        waiting = await until(first, "waiting")
        os.killpg(first.pid, signal.SIGKILL)
        await first.wait()
        async with setup.app() as app:
            inbox = Inbox((await app.workflows()).unit.ledger)
            await inbox.answer(waiting["request"], "warm", by="person:tester", channel="cli")
        second = await run_hello(setup)
        again = await until(second, "begun")
        assert (again["session"], again["goes_on"]) == (begun["session"], True)
        assert (await until(second, "completed"))["session"] == begun["session"]
        assert await second.wait() == 0
        async with setup.app() as app:
            names = [worker.name for worker in await list_workers(app, begun["session"])]
            assert names == [f"{begun['session']}-{n}-{name}" for n, name in enumerate(("greet", "compose", "farewell"), 1)]


@proves("conductor.goes-on", "cli.signals")
async def test_a_new_run_can_be_forced(setup: RunSetup) -> None:
    async with asyncio.timeout(SECONDS):
        first = await run_hello(setup)
        begun = await until(first, "begun")
        await until(first, "waiting")
        first.send_signal(signal.SIGTERM)
        _, said = await first.communicate()
        assert (first.returncode, json.loads(said)["error"]["exit_code"]) == (143, 143)
        second = await run_hello(setup, "--new")
        anew = await until(second, "begun")
        os.killpg(second.pid, signal.SIGKILL)
        await second.wait()
        assert anew["session"] != begun["session"]
        assert not anew["goes_on"]


@proves("cli.json-errors", "cli.signals")
async def test_an_agent_that_is_stopped_with_its_command_leaves_only_the_error(setup: RunSetup) -> None:
    turn = [{"say": "I wait."}, {"pause": {"until": str(setup.root / "gate"), "seconds": 50}}]
    setup.write_blueprint("sleeper", {"turns": [turn]})
    pipe, environ = asyncio.subprocess.PIPE, {**os.environ, "FIDELIO_HOME": str(setup.home)}
    command = ("-m", "fidelio", "agents", "start", "one", "Wait.", "-b", "sleeper", "--json")
    async with asyncio.timeout(SECONDS), setup.app() as app:
        started = await asyncio.create_subprocess_exec(
            sys.executable, *command, cwd=setup.project, env=environ, stdout=pipe, stderr=pipe
        )
        async for event in (await app.records()).follow():
            if event.type == "agent.said":
                break
        started.send_signal(signal.SIGTERM)
        printed, said = await started.communicate()
        (worker,) = await list_workers(app, "one")

    assert (started.returncode, printed, worker.run.state) == (143, b"", "stopped")
    assert json.loads(said)["error"]["exit_code"] == 143


GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "run-a-workflow.md"


@proves("conductor.carries-out", "trust.blueprints")
async def test_the_worker_without_a_model_of_the_guide_works_once_it_is_trusted(tmp_path: Path) -> None:
    (blueprint,) = re.findall(r"```markdown\n(---\nname: robot\n.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    (block,) = re.findall(r"```sh\n(fidelio trust .*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    trust, run = (line.split()[1:] for line in block.splitlines())
    (tmp_path / ".fidelio" / "agents").mkdir(parents=True)
    (tmp_path / ".fidelio" / "agents" / "robot.md").write_text(blueprint)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FIDELIO_")}
    environ, pipe = {**inherited, "XDG_DATA_HOME": str(tmp_path / "data")}, asyncio.subprocess.PIPE

    async def start(*words: str) -> asyncio.subprocess.Process:
        command = (sys.executable, "-m", "fidelio", *words)
        return await asyncio.create_subprocess_exec(*command, cwd=tmp_path, env=environ, stdout=pipe, stderr=pipe)

    async with asyncio.timeout(SECONDS):
        refused = await start(*run, "--json")
        await refused.communicate()
        trusted = await start(*trust, "--yes")
        await trusted.communicate()
        process = await start(*run, "--json")
        await until(process, "waiting")
        process.send_signal(signal.SIGTERM)
        await process.communicate()

    assert refused.returncode not in (0, None)
    assert trusted.returncode == 0

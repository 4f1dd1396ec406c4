"""`fidelio run` as a person uses it: watched, killed, started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from fidelio.inbox import Inbox
from tests.conductor.orchestra import SECONDS, Orchestra, workers_of
from tests.support import proves


async def run_hello(orchestra: Orchestra, *more: str) -> asyncio.subprocess.Process:
    return await run_workflow(orchestra, "hello", *more)


async def run_workflow(orchestra: Orchestra, name: str, *more: str) -> asyncio.subprocess.Process:
    environ = {**os.environ, "FIDELIO_HOME": str(orchestra.home)}
    command = ["-m", "fidelio", "run", name, "--agent", "robot", "--json", *more]
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=orchestra.project, env=environ, stdout=pipe, stderr=pipe, start_new_session=True
    )


async def until(process: asyncio.subprocess.Process, kind: str) -> dict[str, Any]:
    """The first line of this kind."""
    assert process.stdout is not None
    async for line in process.stdout:
        happening: dict[str, Any] = json.loads(line)
        if happening["kind"] == kind:
            return happening
    assert process.stderr is not None
    raise AssertionError((await process.stderr.read()).decode())


@proves("conductor.goes-on", "conductor.shows-progress")
async def test_a_run_that_was_killed_goes_on_where_it_was(orchestra: Orchestra) -> None:
    async with asyncio.timeout(SECONDS):
        first = await run_hello(orchestra)
        begun = await until(first, "begun")
        waiting = await until(first, "waiting")
        os.killpg(first.pid, signal.SIGKILL)
        await first.wait()
        async with orchestra.house() as house:
            inbox = Inbox((await house.workflows()).unit.ledger)
            await inbox.answer(waiting["request"], "warm", by="person:tester", channel="cli")
        second = await run_hello(orchestra)
        again = await until(second, "begun")
        assert (again["session"], again["goes_on"]) == (begun["session"], True)
        assert (await until(second, "completed"))["session"] == begun["session"]
        assert await second.wait() == 0
        async with orchestra.house() as house:
            names = [worker.name for worker in await workers_of(house, begun["session"])]
            assert names == [f"{begun['session']}-{n}-{name}" for n, name in enumerate(("greet", "compose", "farewell"), 1)]


@proves("conductor.goes-on")
async def test_a_run_can_be_begun_anew(orchestra: Orchestra) -> None:
    async with asyncio.timeout(SECONDS):
        first = await run_hello(orchestra)
        begun = await until(first, "begun")
        await until(first, "waiting")
        os.killpg(first.pid, signal.SIGKILL)
        await first.wait()
        second = await run_hello(orchestra, "--new")
        anew = await until(second, "begun")
        os.killpg(second.pid, signal.SIGKILL)
        await second.wait()
        assert anew["session"] != begun["session"]
        assert not anew["goes_on"]

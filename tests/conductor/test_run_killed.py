"""`fidelio run`, killed at random moments. `KILL_SEED=N` repeats a failed test."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from contextlib import suppress

import pytest

from fidelio.ids import session_of_run
from fidelio.ledger.audit import verify_session
from fidelio.processes.table import iterate_processes
from tests.conductor.run_setup import SECONDS, RunSetup, answer_requests, list_workers
from tests.conductor.test_loops import write_tour
from tests.conductor.test_run_command import run_hello, run_workflow, until
from tests.support import proves


async def kill_at_some_moment(setup: RunSetup, chance: random.Random, name: str = "hello", *more: str) -> bool:
    """Kill a run at some moment; False if it had ended before, so that the next command begins another."""
    process = await run_workflow(setup, name, *more)
    with suppress(TimeoutError):
        async with asyncio.timeout(chance.random() * 2.5):  # not for it to end: this is the random moment
            await process.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.communicate()
    return process.returncode != 0


def some_chance() -> random.Random:
    seed = int(os.environ.get("KILL_SEED") or random.SystemRandom().randrange(1 << 32))
    sys.stdout.write(f"KILL_SEED={seed}\n")
    return random.Random(seed)


@pytest.mark.timeout(120)
@proves("conductor.goes-on", "orchestrator.kill")
async def test_a_run_that_is_killed_again_and_again_is_carried_out_once(setup: RunSetup) -> None:
    chance = some_chance()
    setup.write_blueprint("robot", "workflow-worker", process=True)
    async with asyncio.timeout(2 * SECONDS):
        for _ in range(3):
            await kill_at_some_moment(setup, chance)
        process = await run_hello(setup)
        session = (await until(process, "begun"))["session"]
        async with setup.app() as app:
            has_request = asyncio.Event()
            has_request.set()
            person = asyncio.create_task(answer_requests(app, {"choose-tone": "warm"}, has_request))
            assert (await until(process, "completed"))["session"] == session
            assert await process.wait() == 0
            person.cancel()
            await asyncio.gather(person, return_exceptions=True)
            workers = await list_workers(app, "")
            await verify_session((await app.workflows()).unit.ledger, session)

    names = [f"{session}-{number}-{name}" for number, name in enumerate(("greet", "compose", "farewell"), 1)]
    assert [worker.name for worker in workers] == names
    assert {worker.status for worker in workers} == {"finished"}
    assert [
        entry for entry in iterate_processes() if entry.run and session_of_run(entry.run) in {worker.id for worker in workers}
    ] == []


@pytest.mark.timeout(120)
@proves("conductor.loop-goes-on", "orchestrator.kill")
async def test_a_loop_that_is_killed_again_and_again_has_one_child_for_every_item(setup: RunSetup) -> None:
    chance = some_chance()
    write_tour(setup)
    setup.write_blueprint("robot", "workflow-worker", process=True)
    wanted = ("--workflows", str(setup.workflows), "--input", 'islands=["Faroe", "Lewis"]')
    async with asyncio.timeout(2 * SECONDS):
        ended = sum([not await kill_at_some_moment(setup, chance, "ferry", *wanted) for _ in range(3)])
        process = await run_workflow(setup, "ferry", *wanted)
        session = (await until(process, "begun"))["session"]
        await process.communicate()
        assert process.returncode == 0
    async with setup.app() as app:
        unit = (await app.workflows()).unit
        children = (await unit.ledger.sessions(parent=session)).items
        records = [await unit.load_record(child) for child in children]
        workers = await list_workers(app, "")
        await verify_session(unit.ledger, session)
    assert sorted((record.variables["island"], record.status) for record in records) == [
        ("Faroe", "completed"),
        ("Lewis", "completed"),
    ]
    # One before the loop, two in each iteration, one for each crossing, and one for the rest.
    assert len(workers) == len({worker.name for worker in workers}) == (1 + ended) * (1 + 2 * 2 + 2 + 1)

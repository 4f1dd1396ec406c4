"""Runs whose definition is deleted, and runs whose session a person ends."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from fidelio.conductor.context import ProgressEvent
from fidelio.errors import ConductorFailure
from tests.conductor.fake_workers import do_listed_steps, open_fake_runs
from tests.conductor.run_setup import RunSetup, activity, list_workers, write_workflow
from tests.conductor.test_loops import write_tour
from tests.support import proves


@proves("conductor.lost-definitions", "conductor.goes-on")
async def test_a_run_without_its_files_goes_on_with_the_snapshot(setup: RunSetup) -> None:
    write_tour(setup)

    async def losing(name: str, prompt: str) -> str:
        shutil.rmtree(setup.workflows / "ferry", ignore_errors=True)
        return await do_listed_steps(name, prompt)

    async with open_fake_runs(setup, losing) as runs:
        session = await (await runs.conductor()).start(setup.plan("ferry", inputs={"islands": ["Skye"]}))
        assert (await (await runs.conductor()).run(session)).status == "completed"
    assert any("This session goes on with the definition that it began with" in event.detail for event in runs.events)


@proves("conductor.lost-definitions")
async def test_the_worker_of_a_session_that_a_person_has_ended_is_stopped(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "ferry", activity("sail"))
    setup.write_blueprint("slow", {"turns": [[{"say": "Sailing."}, {"pause": 600}, {"result": "Landed."}]]})
    works = asyncio.Event()

    def watch(event: ProgressEvent) -> None:
        if event.kind == "working":
            works.set()

    async with setup.app() as app:
        conductor = await app.conductor(watch)
        session = await conductor.start(setup.plan("ferry", agent="slow"))
        run = asyncio.create_task(conductor.run(session))
        await works.wait()
        await app.end_session(session, by="person:tester", reason="A storm.")
        with pytest.raises(ConductorFailure, match="ferry was ended by person:tester: A storm\\. "):
            await run
        (worker,) = await list_workers(app, session)
    assert worker.run.state == "stopped"

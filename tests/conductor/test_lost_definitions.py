"""Runs whose definition is lost on the way."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from fidelio.conductor.context import Happening
from fidelio.errors import ConductorFailure
from tests.conductor.band import concert, obedient
from tests.conductor.orchestra import Orchestra, activity, workers_of, write_workflow
from tests.conductor.test_loops import tour
from tests.support import proves


@proves("conductor.lost-definitions", "conductor.goes-on")
async def test_a_run_without_its_definition_says_so_and_goes_on_when_it_is_back(orchestra: Orchestra) -> None:
    tour(orchestra)
    away = orchestra.place / "away"

    async def losing(name: str, prompt: str) -> str:
        if not away.exists():
            shutil.move(orchestra.workflows / "ferry", away)
        return await obedient(name, prompt)

    async with concert(orchestra, losing) as played:
        session = await (await played.conductor()).begin(orchestra.plan("ferry", inputs={"islands": ["Skye"]}))
        with pytest.raises(ConductorFailure, match=r"The definition of ferry is gone: .* Put its files back"):
            await (await played.conductor()).carry_out(session)
        assert played.seen[-1].kind == "failed"
        shutil.copytree(away, orchestra.workflows / "ferry")
        assert (await (await played.conductor()).carry_out(session)).status == "completed"


@proves("conductor.lost-definitions")
async def test_the_worker_of_a_session_that_a_person_has_ended_is_stopped(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "ferry", activity("sail"))
    orchestra.blueprint("slow", {"turns": [[{"say": "Sailing."}, {"pause": 600}, {"result": "Landed."}]]})
    works = asyncio.Event()

    def watch(happening: Happening) -> None:
        if happening.kind == "working":
            works.set()

    async with orchestra.house() as house:
        conductor = await house.conductor(watch)
        session = await conductor.begin(orchestra.plan("ferry", agent="slow"))
        run = asyncio.create_task(conductor.carry_out(session))
        await works.wait()
        shutil.rmtree(orchestra.workflows / "ferry")
        await (await house.workflows()).moves.end(session, by="person:tester")
        with pytest.raises(ConductorFailure, match="ferry was ended by person:tester without its definition"):
            await run
        (worker,) = await workers_of(house, session)
    assert worker.run.state == "stopped"

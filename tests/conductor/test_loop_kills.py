"""A run that is killed inside a loop: at every commit, before and after it."""

from __future__ import annotations

import pytest

from fidelio.ledger.audit import verify_session
from tests.conductor.fake_workers import open_fake_runs
from tests.conductor.run_setup import RunSetup, activity
from tests.conductor.test_loop_activities import CROSSING, write_round_trip
from tests.conductor.test_loops import sailor, write_tour
from tests.support import proves

ISLANDS = ["Faroe", "Lewis"]


async def kill_and_resume(setup: RunSetup, number: int, *, committed: bool) -> bool:
    """Kill a run at this commit and resume it; False if the run ended first."""
    async with open_fake_runs(setup, sailor) as runs:
        conductor = await runs.conductor()
        session = await conductor.start(setup.plan("ferry", inputs={"islands": ISLANDS}))
        was_killed = await runs.kill_at_commit(number, session, committed=committed)
        if was_killed:
            assert (await conductor.run(session)).status == "completed"
        found = await runs.children(session)
        assert [(segment.status, segment.variables["island"]) for segment in found] == [("completed", name) for name in ISLANDS]
        ledger = await runs.ledger()
        assert len((await ledger.sessions(parent=session)).items) == len(ISLANDS)
        await verify_session(ledger, session)
    return was_killed


async def kill_at_every_commit(setup: RunSetup, *, committed: bool) -> None:
    number = 1
    while await kill_and_resume(setup, number, committed=committed):
        number += 1
    assert number > 10


@proves("conductor.loop-goes-on")
@pytest.mark.parametrize("committed", [False, True])
async def test_no_child_of_a_step_is_started_twice_or_lost(setup: RunSetup, committed: bool) -> None:
    write_tour(setup)
    await kill_at_every_commit(setup, committed=committed)


@proves("conductor.loop-goes-on", "conductor.loop-activities")
@pytest.mark.parametrize("committed", [False, True])
async def test_no_child_of_an_activity_is_started_twice_or_lost(setup: RunSetup, committed: bool) -> None:
    write_round_trip(setup, activity("out", triggers=[CROSSING]))
    await kill_at_every_commit(setup, committed=committed)

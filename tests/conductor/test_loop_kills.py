"""A run that is killed inside a loop, at every commit that it makes: before it is written, and after."""

from __future__ import annotations

import pytest

from fidelio.ledger.audit import verify_session
from tests.conductor.band import concert
from tests.conductor.orchestra import Orchestra, activity
from tests.conductor.test_loop_activities import CROSSING, round_trip
from tests.conductor.test_loops import sailor, tour
from tests.support import proves

ISLANDS = ["Faroe", "Lewis"]


async def killed(orchestra: Orchestra, number: int, *, written: bool) -> bool:
    """One run that is killed at this commit and goes on; False when it was at its end before."""
    async with concert(orchestra, sailor) as played:
        conductor = await played.conductor()
        session = await conductor.begin(orchestra.plan("ferry", inputs={"islands": ISLANDS}))
        was_killed = await played.killed_at(number, session, written=written)
        if was_killed:
            assert (await conductor.carry_out(session)).status == "completed"
        found = await played.children(session)
        assert [(one.status, one.variables["island"]) for one in found] == [("completed", name) for name in ISLANDS]
        ledger = await played.ledger()
        assert len((await ledger.sessions(parent=session)).items) == len(ISLANDS)
        await verify_session(ledger, session)
    return was_killed


async def killed_everywhere(orchestra: Orchestra, *, written: bool) -> None:
    number = 1
    while await killed(orchestra, number, written=written):
        number += 1
    assert number > 10


@proves("conductor.loop-goes-on")
@pytest.mark.parametrize("written", [False, True])
async def test_no_child_of_a_step_is_started_twice_or_lost(orchestra: Orchestra, written: bool) -> None:
    tour(orchestra)
    await killed_everywhere(orchestra, written=written)


@proves("conductor.loop-goes-on", "conductor.loop-activities")
@pytest.mark.parametrize("written", [False, True])
async def test_no_child_of_an_activity_is_started_twice_or_lost(orchestra: Orchestra, written: bool) -> None:
    round_trip(orchestra, activity("out", triggers=[CROSSING]))
    await killed_everywhere(orchestra, written=written)

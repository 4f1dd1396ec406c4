"""Workflows that start others: into the child, and back at its end."""

from __future__ import annotations

import pytest

from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from fidelio.workflows.navigator.moves import MAX_CHILD_DEPTH
from tests.dialects.conftest import Opens
from tests.dialects.navigator.conftest import Guide
from tests.support import proves


async def crossing(guide: Guide) -> Guide:
    await guide.start("ferry", port="Kiel")
    return await guide.step("queue", "cross")


@proves("navigator.triggers")
@pytest.mark.every_transport
async def test_the_position_moves_into_the_child_and_back_at_its_end(guide: Guide) -> None:
    await crossing(guide)
    assert guide.place() == ("crossing", "sail", "steer")
    assert guide.last["message"] == "Completed step 'cross' Workflow 'crossing' begins; 'ferry' waits for its end."
    await guide.step("steer", variables={"fare": 7})
    await guide.go("__terminal__")

    assert guide.place() == ("ferry", "board", "land")
    assert "Back in workflow 'ferry'" in guide.last["message"]
    assert guide.last["status"] == "blocked"
    assert guide.required == [("respond_to_checkpoint", "wave")]
    await guide.say("wave", "yes")
    await guide.step("land")
    assert guide.required == [("transition", "dock")]


@proves("navigator.triggers")
async def test_what_the_definition_names_goes_down_and_comes_back(memory: Opens, settings: Settings) -> None:
    async with memory() as play:
        guide = await crossing(Guide(play))
        await guide.step("steer", variables={"fare": 7})
        await guide.go("__terminal__")
    async with await open_ledger(settings.ledger) as ledger:
        parent, child = await ledger.events(types=["session.started"])
        (started,) = await ledger.events(types=["child.started"])
        (finished,) = await ledger.events(types=["child.finished"])

    assert child.body["variables"] == {"port": "Kiel"}
    assert child.body["parent"]["session"] == parent.session == started.session
    assert (started.body["step"], started.body["suspends"]) == ("cross", True)
    assert finished.body["variables"] == {"fare": 7}


@proves("navigator.triggers", "navigator.state")
async def test_a_state_of_the_parent_leads_into_the_child_and_one_of_the_child_back(memory: Opens) -> None:
    async with memory() as play:
        guide = await Guide(play).start("ferry")
        await guide.step("queue")
        before = guide.state
        await guide.step("cross")
        inside = guide.state

        assert (await Guide(play, before).look()).place() == ("crossing", "sail", "steer")
        await guide.step("steer")
        await guide.go("__terminal__")
        for old in (before, inside):
            assert (await Guide(play, old).look()).place() == ("ferry", "board", "land")


@proves("navigator.triggers")
async def test_an_activity_without_steps_starts_its_workflow_on_entry_and_circles_are_cut(memory: Opens) -> None:
    async with memory() as play:
        relay = await Guide(play).start("relay")
        assert relay.place() == ("crossing", "sail", "steer")
        await relay.step("steer")
        await relay.go("__terminal__")
        assert relay.place() == ("relay", "hand-over", None)

        echo = await Guide(play).start("echo")
        for _ in range(MAX_CHILD_DEPTH + 1):
            await echo.go("__terminal__")
        assert echo.last["status"] == "completed"


@proves("navigator.triggers", "navigator.state")
async def test_a_move_that_is_repeated_does_not_reach_the_other_session(memory: Opens) -> None:
    async with memory() as play:
        guide = await Guide(play).start("ferry")
        await guide.step("queue")
        before = guide.state
        await guide.step("cross")
        again = await Guide(play, before).do("complete_step", step_id="steer")
        assert again.code == "STALE_STATE"
        assert again.place() == ("crossing", "sail", "steer")
        await guide.step("steer")
        inside = guide.state
        await guide.go("__terminal__")

        assert (await Guide(play, inside).do("transition", activity_id="__terminal__")).code == "STALE_STATE"
        assert (await guide.look()).place() == ("ferry", "board", "land")


@proves("navigator.triggers")
async def test_an_activity_starts_its_workflow_when_its_steps_are_done_and_what_is_missing_is_said(memory: Opens) -> None:
    async with memory() as play:
        guide = await crossing(Guide(play))
        await guide.step("steer")
        await guide.go("__terminal__")
        await guide.say("wave", "no")
        await guide.step("land")
        await guide.go("dock")
        await guide.step("moor")
        assert guide.place() == ("crossing", "sail", "steer")
        assert "'missing'" in guide.last["warnings"][0]
        await guide.step("steer")
        await guide.go("__terminal__")

        assert guide.place() == ("ferry", "dock", None)
        assert guide.required == [("transition", "__terminal__")]
        await guide.go("__terminal__")
        assert guide.last["status"] == "completed"

"""Loops that start workflows: one child for each item, in order, with what it needs and what it brings back."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.conductor import limits as patience
from fidelio.errors import ConductorFailure
from fidelio.workflows.start import StartInput
from tests.conductor.band import concert, obedient, steps_in, token_in
from tests.conductor.orchestra import Orchestra, activity, report, write_workflow
from tests.support import proves

LIST = {"name": "islands", "type": "array", "description": "Where to."}
CARGO = {"name": "cargo", "type": "string", "description": "What is on board."}
LANDED = {"name": "landed", "type": "boolean", "description": "Whether the ferry has landed."}
ISLAND = {"name": "island", "type": "string", "description": "Where it goes."}
NOT_LANDED = {"type": "simple", "variable": "landed", "operator": "==", "value": False}
TRIP = {"id": "trip", "name": "Trip", "triggers": [{"workflow": "crossing", "passContext": ["island", "cargo", "landed"]}]}


def step(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "name": name.title(), **more}


def loop(**more: Any) -> dict[str, Any]:
    whole = {"id": "tour", "name": "Tour", "type": "forEach", "over": "islands", "variable": "island"}
    return {**whole, "steps": [step("load"), TRIP, step("unload")], **more}


def tour(orchestra: Orchestra, *loops: dict[str, Any], **more: Any) -> None:
    """A workflow that sends a ferry to every island, and the crossing that each of them is."""
    write_workflow(
        orchestra.workflows,
        "ferry",
        activity("sail", loops=list(loops) or [loop()], **{"transitions": [{"to": "rest"}], **more}),
        activity("rest"),
        variables=(LIST, CARGO, LANDED),
    )
    write_workflow(orchestra.workflows, "crossing", activity("cross"), variables=(ISLAND, CARGO, LANDED))


async def sailor(name: str, prompt: str) -> str:
    """Loads something else for every island, and lands."""
    if name == "cross":
        return report("cross-step", landed=True)
    if name != "sail":
        return await obedient(name, prompt)
    steps = steps_in(prompt)
    island = prompt.partition('island is "')[2].partition('"')[0]
    return report(*steps, cargo=f"mail for {island}") if "load" in steps else report(*steps)


@proves("conductor.loop-children", "conductor.stretches")
async def test_every_item_has_a_child_in_order_with_what_it_is_given(orchestra: Orchestra) -> None:
    tour(orchestra)
    async with concert(orchestra, sailor) as played:
        record = await played.play("ferry", inputs={"islands": ["Faroe", "Lewis", "Skye"]})
        children = await played.children(await played.session("ferry"))
    assert (record.status, list(record.completed)) == ("completed", ["sail", "rest"])
    given = [(one.status, one.variables["island"], one.variables["cargo"]) for one in children]
    assert given == [("completed", name, f"mail for {name}") for name in ("Faroe", "Lewis", "Skye")]
    parts = [steps_in(prompt) if name == "sail" else name for name, prompt in played.band.heard]
    assert parts == [["sail-step"], *[["load", "trip"], "cross", ["unload"]] * 3, "rest"]


@proves("conductor.child-results")
async def test_what_a_child_brings_back_is_on_record_and_told_to_the_next_worker(orchestra: Orchestra) -> None:
    tour(orchestra)
    async with concert(orchestra, sailor) as played:
        record = await played.play("ferry", inputs={"islands": ["Faroe"], "landed": False})
        child = await played.session("crossing")
    assert record.variables["landed"] is True
    assert record.set_by["landed"] == f"child:{child}"
    (told,) = [prompt for name, prompt in played.band.heard if name == "sail" and "unload" in steps_in(prompt)]
    assert f"The workflow crossing ({child}) has ended: completed." in told
    assert '"landed": true' in told
    assert "pass 1 of 1 of the loop tour" in told


@proves("conductor.child-results", "conductor.loop-children")
async def test_a_child_can_end_the_loop(orchestra: Orchestra) -> None:
    tour(orchestra, loop(breakCondition={**NOT_LANDED, "value": True}))
    async with concert(orchestra, sailor) as played:
        await played.play("ferry", inputs={"islands": ["Faroe", "Lewis"]})
        assert len(await played.sessions("crossing")) == 1


@proves("conductor.child-results", "conductor.loop-children")
async def test_a_while_loop_goes_on_until_a_child_says_otherwise(orchestra: Orchestra) -> None:
    tour(orchestra, loop(type="while", over=None, variable=None, condition=NOT_LANDED, steps=[TRIP]))
    tries = iter([False, False, True])

    async def stormy(name: str, prompt: str) -> str:
        return report("cross-step", landed=next(tries)) if name == "cross" else await obedient(name, prompt)

    async with concert(orchestra, stormy) as played:
        await played.play("ferry", inputs={"landed": False})
        assert len(await played.sessions("crossing")) == 3


@proves("conductor.loop-bounded", "conductor.bounded")
async def test_an_endless_loop_ends_with_its_maximum_or_with_the_patience_of_the_conductor(
    orchestra: Orchestra, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = {"type": "while", "over": None, "variable": None, "condition": NOT_LANDED, "steps": [TRIP]}
    tour(orchestra, loop(**endless, maxIterations=4))
    async with concert(orchestra) as played:
        assert (await played.play("ferry", inputs={"landed": False})).status == "completed"
        assert len(await played.sessions("crossing")) == 4
        monkeypatch.setattr(patience, "MOST_ROUNDS", 2)
        with pytest.raises(ConductorFailure, match="goes round and round: 1 visits, 3 passes"):
            await played.play("ferry", inputs={"landed": False})
        assert len(await played.sessions("crossing")) == 6


@proves("conductor.loop-bounded")
async def test_items_beyond_the_maximum_are_not_dropped_in_silence(orchestra: Orchestra) -> None:
    tour(orchestra, loop(maxIterations=2))
    async with concert(orchestra, sailor) as played:
        await played.play("ferry", inputs={"islands": ["Faroe", "Lewis", "Skye"]})
        assert len(await played.sessions("crossing")) == 2
    assert any("the first 2 of 3 items" in one.detail for one in played.seen)


@proves("conductor.loop-children")
async def test_a_list_without_items_starts_nothing(orchestra: Orchestra) -> None:
    tour(orchestra)
    async with concert(orchestra, sailor) as played:
        assert (await played.play("ferry", inputs={"islands": []})).status == "completed"
        assert await played.sessions("crossing") == []


@proves("conductor.loop-doubts")
async def test_a_list_that_nobody_has_named_is_asked_for(orchestra: Orchestra) -> None:
    tour(orchestra)

    async def asked(name: str, prompt: str) -> str:
        return report(islands=["Skye"]) if "Report islands in" in prompt else await sailor(name, prompt)

    async with concert(orchestra, asked) as played:
        await played.play("ferry")
        (child,) = await played.children(await played.session("ferry"))
        assert child.variables["island"] == "Skye"
    assert [steps_in(prompt) for name, prompt in played.band.heard[:2] if name == "sail"] == [["sail-step"], []]
    assert played.band.heard[1][1].startswith("Your part of the activity is not finished")


@proves("conductor.loop-doubts")
async def test_a_list_that_is_never_named_fails_the_run_instead_of_leaving_its_items_out(orchestra: Orchestra) -> None:
    tour(orchestra)
    async with concert(orchestra) as played:
        with pytest.raises(ConductorFailure, match=r"did not finish sail: .* Report islands in `variables`"):
            await played.play("ferry")


@proves("conductor.loop-doubts")
async def test_what_only_a_child_could_have_said_is_asked_of_a_worker_without_steps(orchestra: Orchestra) -> None:
    tour(orchestra, loop(type="doWhile", over=None, variable=None, condition=NOT_LANDED, steps=[TRIP]))

    async def asked(name: str, prompt: str) -> str:
        return report(landed=True) if "Report landed in" in prompt else await obedient(name, prompt)

    async with concert(orchestra, asked) as played:
        assert (await played.play("ferry")).status == "completed"
        assert len(await played.sessions("crossing")) == 1
    assert [steps_in(prompt) for name, prompt in played.band.heard if name == "sail"] == [["sail-step"], ["trip"], []]


@proves("conductor.loop-doubts")
async def test_a_loop_of_which_nobody_can_tell_ends_the_run(orchestra: Orchestra) -> None:
    tour(orchestra, loop(type="while", over=None, variable=None, steps=[TRIP]))
    async with concert(orchestra) as played:
        with pytest.raises(ConductorFailure, match="Nobody can tell whether loop tour of sail goes on"):
            await played.play("ferry")


@proves("conductor.loop-bounded")
async def test_a_loop_without_a_condition_goes_to_its_maximum(orchestra: Orchestra) -> None:
    tour(orchestra, loop(type="while", over=None, variable=None, steps=[TRIP], maxIterations=3))
    async with concert(orchestra) as played:
        await played.play("ferry")
        assert len(await played.sessions("crossing")) == 3


@proves("conductor.loop-bounded", "conductor.child-results")
async def test_a_loop_that_says_only_when_it_is_broken_off_goes_on_until_then(orchestra: Orchestra) -> None:
    landed = {**NOT_LANDED, "value": True}
    tour(orchestra, loop(type="while", over=None, variable=None, steps=[TRIP], breakCondition=landed))
    tries = iter([False, True])

    async def stormy(name: str, prompt: str) -> str:
        assert "Report landed" not in prompt
        return report("cross-step", landed=next(tries)) if name == "cross" else await obedient(name, prompt)

    async with concert(orchestra, stormy) as played:
        await played.play("ferry")
        assert len(await played.sessions("crossing")) == 2


@proves("conductor.stretches")
async def test_a_worker_that_does_more_than_its_turn_is_told_so_and_nothing_of_it_is_taken(orchestra: Orchestra) -> None:
    tour(orchestra)

    async def hasty(name: str, prompt: str) -> str:
        if name == "sail" and "load" in steps_in(prompt) and "not yet the turn of" not in prompt:
            return report("load", "trip", "unload", cargo="everything")
        return await sailor(name, prompt)

    async with concert(orchestra, hasty) as played:
        await played.play("ferry", inputs={"islands": ["Faroe"]})
        (child,) = await played.children(await played.session("ferry"))
    assert child.variables["cargo"] != "everything"
    assert any("not yet the turn of [unload]: do and report only load, trip now" in prompt for _, prompt in played.band.heard)


@proves("conductor.loop-children")
async def test_loops_follow_each_other_and_plain_ones_are_led_too(orchestra: Orchestra) -> None:
    plain = {"id": "paint", "name": "Paint", "type": "forEach", "over": "islands", "variable": "hull", "steps": [step("brush")]}
    tour(orchestra, plain, loop(steps=[TRIP]))
    async with concert(orchestra) as played:
        await played.play("ferry", inputs={"islands": ["Faroe", "Lewis"]})
        assert len(await played.sessions("crossing")) == 2
    parts = [steps_in(prompt) for name, prompt in played.band.heard if name == "sail"]
    assert parts == [["sail-step"], ["brush"], ["brush"], ["trip"], ["trip"]]


@proves("conductor.tells-what-is-missing", "conductor.stretches")
async def test_every_stretch_has_its_own_tries(orchestra: Orchestra) -> None:
    tour(orchestra)

    async def reluctant(name: str, prompt: str) -> str:
        """Does nothing when it is first told, ever."""
        done = await sailor(name, prompt)
        return done if "is not finished" in prompt else "No."

    async with concert(orchestra, reluctant) as played:
        record = await played.play("ferry", inputs={"islands": ["Faroe", "Lewis", "Skye"]}, tries=2)
        assert record.status == "completed"
        assert len(await played.sessions("crossing")) == 3


@proves("conductor.loop-children", "conductor.workers-keep-to-their-part")
async def test_a_worker_that_starts_the_child_itself_does_not_get_a_second_one(orchestra: Orchestra) -> None:
    tour(orchestra)

    async def eager(name: str, prompt: str) -> str:
        if name == "sail" and "trip" in steps_in(prompt):
            await (await played.house.workflows()).sessions.start(StartInput("crossing", parent_token=token_in(prompt)))
        return await sailor(name, prompt)

    async with concert(orchestra, eager) as played:
        await played.play("ferry", inputs={"islands": ["Faroe", "Lewis"]})
        children = await played.children(await played.session("ferry"))
    assert [(one.status, one.variables["island"]) for one in children] == [("completed", "Faroe"), ("completed", "Lewis")]

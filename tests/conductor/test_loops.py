"""Loops that start workflows: a child for each item, in order, with its variables and results."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.conductor import conductor
from fidelio.errors import ConductorFailure
from fidelio.workflows.start import StartInput
from tests.conductor.fake_workers import do_listed_steps, find_steps, find_token, open_fake_runs
from tests.conductor.run_setup import RunSetup, activity, report, write_workflow
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


def write_tour(setup: RunSetup, *loops: dict[str, Any], **more: Any) -> None:
    """A workflow with a loop over islands, and the child workflow that its steps start."""
    write_workflow(
        setup.workflows,
        "ferry",
        activity("sail", loops=list(loops) or [loop()], **{"transitions": [{"to": "rest"}], **more}),
        activity("rest"),
        variables=(LIST, CARGO, LANDED),
    )
    write_workflow(setup.workflows, "crossing", activity("cross"), variables=(ISLAND, CARGO, LANDED))


async def sailor(name: str, prompt: str) -> str:
    """Report another cargo for every island, and `landed` for every crossing."""
    if name == "cross":
        return report("cross-step", landed=True)
    if name != "sail":
        return await do_listed_steps(name, prompt)
    steps = find_steps(prompt)
    island = prompt.partition('island is "')[2].partition('"')[0]
    return report(*steps, cargo=f"mail for {island}") if "load" in steps else report(*steps)


@proves("conductor.loop-children", "conductor.stretches")
async def test_every_item_has_a_child_in_order_with_its_variables(setup: RunSetup) -> None:
    write_tour(setup)
    async with open_fake_runs(setup, sailor) as runs:
        record = await runs.execute("ferry", inputs={"islands": ["Faroe", "Lewis", "Skye"]})
        children = await runs.children(await runs.session("ferry"))
    assert (record.status, list(record.completed)) == ("completed", ["sail", "rest"])
    given = [(child.status, child.variables["island"], child.variables["cargo"]) for child in children]
    assert given == [("completed", name, f"mail for {name}") for name in ("Faroe", "Lewis", "Skye")]
    parts = [find_steps(prompt) if name == "sail" else name for name, prompt in runs.workers.prompts]
    assert parts == [["sail-step"], *[["load", "trip"], "cross", ["unload"]] * 3, "rest"]


@proves("conductor.child-results")
async def test_the_results_of_a_child_are_recorded_and_in_the_next_prompt(setup: RunSetup) -> None:
    write_tour(setup)
    async with open_fake_runs(setup, sailor) as runs:
        record = await runs.execute("ferry", inputs={"islands": ["Faroe"], "landed": False})
        child = await runs.session("crossing")
    assert record.variables["landed"] is True
    assert record.set_by["landed"] == f"child:{child}"
    (last_prompt,) = [prompt for name, prompt in runs.workers.prompts if name == "sail" and "unload" in find_steps(prompt)]
    assert f"The workflow crossing ({child}) has ended: completed." in last_prompt
    assert '"landed": true' in last_prompt
    assert "pass 1 of 1 of the loop tour" in last_prompt


@proves("conductor.child-results", "conductor.loop-children")
async def test_a_child_can_end_the_loop(setup: RunSetup) -> None:
    write_tour(setup, loop(breakCondition={**NOT_LANDED, "value": True}))
    async with open_fake_runs(setup, sailor) as runs:
        await runs.execute("ferry", inputs={"islands": ["Faroe", "Lewis"]})
        assert len(await runs.sessions("crossing")) == 1


@proves("conductor.child-results", "conductor.loop-children")
async def test_a_while_loop_continues_until_a_child_changes_its_variable(setup: RunSetup) -> None:
    write_tour(setup, loop(type="while", over=None, variable=None, condition=NOT_LANDED, steps=[TRIP]))
    tries = iter([False, False, True])

    async def stormy(name: str, prompt: str) -> str:
        return report("cross-step", landed=next(tries)) if name == "cross" else await do_listed_steps(name, prompt)

    async with open_fake_runs(setup, stormy) as runs:
        await runs.execute("ferry", inputs={"landed": False})
        assert len(await runs.sessions("crossing")) == 3


@proves("conductor.loop-bounded", "conductor.bounded")
async def test_an_endless_loop_ends_at_its_maximum_or_at_the_limit_of_the_conductor(
    setup: RunSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = {"type": "while", "over": None, "variable": None, "condition": NOT_LANDED, "steps": [TRIP]}
    write_tour(setup, loop(**endless, maxIterations=4))
    async with open_fake_runs(setup) as runs:
        assert (await runs.execute("ferry", inputs={"landed": False})).status == "completed"
        assert len(await runs.sessions("crossing")) == 4
        monkeypatch.setattr(conductor, "MAX_REPETITIONS", 2)
        with pytest.raises(ConductorFailure, match="repeats without end: 1 visits, 3 iterations"):
            await runs.execute("ferry", inputs={"landed": False})
        assert len(await runs.sessions("crossing")) == 6


@proves("conductor.loop-bounded")
async def test_items_beyond_the_maximum_are_not_dropped_in_silence(setup: RunSetup) -> None:
    write_tour(setup, loop(maxIterations=2))
    async with open_fake_runs(setup, sailor) as runs:
        await runs.execute("ferry", inputs={"islands": ["Faroe", "Lewis", "Skye"]})
        assert len(await runs.sessions("crossing")) == 2
    assert any("the first 2 of 3 items" in event.detail for event in runs.events)


@proves("conductor.loop-children")
async def test_a_list_without_items_starts_nothing(setup: RunSetup) -> None:
    write_tour(setup)
    async with open_fake_runs(setup, sailor) as runs:
        assert (await runs.execute("ferry", inputs={"islands": []})).status == "completed"
        assert await runs.sessions("crossing") == []


@proves("conductor.loop-doubts")
async def test_an_unset_list_is_requested_from_a_worker(setup: RunSetup) -> None:
    write_tour(setup)

    async def report_on_request(name: str, prompt: str) -> str:
        return report(islands=["Skye"]) if "Report islands in" in prompt else await sailor(name, prompt)

    async with open_fake_runs(setup, report_on_request) as runs:
        await runs.execute("ferry")
        (child,) = await runs.children(await runs.session("ferry"))
        assert child.variables["island"] == "Skye"
    assert [find_steps(prompt) for name, prompt in runs.workers.prompts[:2] if name == "sail"] == [["sail-step"], []]
    assert runs.workers.prompts[1][1].startswith("Your part of the activity is not finished")


@proves("conductor.loop-doubts")
async def test_a_list_that_is_never_reported_fails_the_run(setup: RunSetup) -> None:
    write_tour(setup)
    async with open_fake_runs(setup) as runs:
        with pytest.raises(ConductorFailure, match=r"did not finish sail: .* Report islands in `variables`"):
            await runs.execute("ferry")


@proves("conductor.loop-doubts")
async def test_a_variable_that_the_child_did_not_set_is_requested_from_a_worker_without_steps(setup: RunSetup) -> None:
    write_tour(setup, loop(type="doWhile", over=None, variable=None, condition=NOT_LANDED, steps=[TRIP]))

    async def report_on_request(name: str, prompt: str) -> str:
        return report(landed=True) if "Report landed in" in prompt else await do_listed_steps(name, prompt)

    async with open_fake_runs(setup, report_on_request) as runs:
        assert (await runs.execute("ferry")).status == "completed"
        assert len(await runs.sessions("crossing")) == 1
    assert [find_steps(prompt) for name, prompt in runs.workers.prompts if name == "sail"] == [["sail-step"], ["trip"], []]


@proves("conductor.loop-doubts")
async def test_a_loop_that_no_rule_decides_ends_the_run(setup: RunSetup) -> None:
    write_tour(setup, loop(type="while", over=None, variable=None, steps=[TRIP]))
    async with open_fake_runs(setup) as runs:
        with pytest.raises(ConductorFailure, match="No rule decides whether loop tour of sail continues"):
            await runs.execute("ferry")


@proves("conductor.loop-bounded")
async def test_a_loop_without_a_condition_goes_to_its_maximum(setup: RunSetup) -> None:
    write_tour(setup, loop(type="while", over=None, variable=None, steps=[TRIP], maxIterations=3))
    async with open_fake_runs(setup) as runs:
        await runs.execute("ferry")
        assert len(await runs.sessions("crossing")) == 3


@proves("conductor.loop-bounded", "conductor.child-results")
async def test_a_loop_with_only_a_break_condition_continues_until_it_is_true(setup: RunSetup) -> None:
    landed = {**NOT_LANDED, "value": True}
    write_tour(setup, loop(type="while", over=None, variable=None, steps=[TRIP], breakCondition=landed))
    tries = iter([False, True])

    async def stormy(name: str, prompt: str) -> str:
        assert "Report landed" not in prompt
        return report("cross-step", landed=next(tries)) if name == "cross" else await do_listed_steps(name, prompt)

    async with open_fake_runs(setup, stormy) as runs:
        await runs.execute("ferry")
        assert len(await runs.sessions("crossing")) == 2


@proves("conductor.stretches")
async def test_a_report_with_steps_outside_the_segment_is_rejected_as_a_whole(setup: RunSetup) -> None:
    write_tour(setup)

    async def hasty(name: str, prompt: str) -> str:
        if name == "sail" and "load" in find_steps(prompt) and "not yet the turn of" not in prompt:
            return report("load", "trip", "unload", cargo="everything")
        return await sailor(name, prompt)

    async with open_fake_runs(setup, hasty) as runs:
        await runs.execute("ferry", inputs={"islands": ["Faroe"]})
        (child,) = await runs.children(await runs.session("ferry"))
    assert child.variables["cargo"] != "everything"
    assert any(
        "not yet the turn of [unload]: do and report only load, trip now" in prompt for _, prompt in runs.workers.prompts
    )


@proves("conductor.loop-children")
async def test_several_loops_run_in_order_also_those_without_triggers(setup: RunSetup) -> None:
    plain = {"id": "paint", "name": "Paint", "type": "forEach", "over": "islands", "variable": "hull", "steps": [step("brush")]}
    write_tour(setup, plain, loop(steps=[TRIP]))
    async with open_fake_runs(setup) as runs:
        await runs.execute("ferry", inputs={"islands": ["Faroe", "Lewis"]})
        assert len(await runs.sessions("crossing")) == 2
    parts = [find_steps(prompt) for name, prompt in runs.workers.prompts if name == "sail"]
    assert parts == [["sail-step"], ["brush"], ["brush"], ["trip"], ["trip"]]


@proves("conductor.tells-what-is-missing", "conductor.stretches")
async def test_every_segment_has_its_own_tries(setup: RunSetup) -> None:
    write_tour(setup)

    async def reluctant(name: str, prompt: str) -> str:
        """Do nothing in the first turn of every worker."""
        done = await sailor(name, prompt)
        return done if "is not finished" in prompt else "No."

    async with open_fake_runs(setup, reluctant) as runs:
        record = await runs.execute("ferry", inputs={"islands": ["Faroe", "Lewis", "Skye"]}, tries=2)
        assert record.status == "completed"
        assert len(await runs.sessions("crossing")) == 3


@proves("conductor.loop-children", "conductor.workers-keep-to-their-part")
async def test_a_worker_that_starts_the_child_itself_does_not_get_a_second_one(setup: RunSetup) -> None:
    write_tour(setup)

    async def eager(name: str, prompt: str) -> str:
        if name == "sail" and "trip" in find_steps(prompt):
            await (await runs.app.workflows()).sessions.start(StartInput("crossing", parent_token=find_token(prompt)))
        return await sailor(name, prompt)

    async with open_fake_runs(setup, eager) as runs:
        await runs.execute("ferry", inputs={"islands": ["Faroe", "Lewis"]})
        children = await runs.children(await runs.session("ferry"))
    assert [(child.status, child.variables["island"]) for child in children] == [("completed", "Faroe"), ("completed", "Lewis")]

"""Checkpoints in loops: each iteration asks again, waiting is not a failed try, and an answer can leave the loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fidelio.inbox import Inbox
from tests.conductor.fake_workers import FakeRuns, do_listed_steps, find_steps, find_token, open_fake_runs
from tests.conductor.run_setup import RunSetup, activity, report, write_workflow
from tests.conductor.test_loops import CARGO, LANDED, TRIP, loop, step
from tests.support import proves

QUESTION = {
    "id": "ask",
    "name": "Ask",
    "message": "On?",
    "options": [
        {"id": "on", "label": "On"},
        {"id": "home", "label": "Home", "effect": {"transitionTo": "rest"}},
    ],
}


def write_voyage(setup: RunSetup, iterations: int, *steps: dict[str, Any], **more: Any) -> None:
    """A workflow with a loop of this many iterations, and an activity after it."""
    rounds = loop(type="while", over=None, variable=None, condition=None, steps=list(steps), maxIterations=iterations)
    sail = activity("sail", **{"loops": [rounds], "checkpoints": [QUESTION], "transitions": [{"to": "rest"}], **more})
    write_workflow(setup.workflows, "ferry", sail, activity("rest"), variables=(CARGO, LANDED))
    write_workflow(setup.workflows, "crossing", activity("cross"), variables=(CARGO, LANDED))


async def yield_checkpoint(runs: FakeRuns, prompt: str) -> str:
    """Yield the checkpoint; the request, or empty if it is answered already."""
    yielded = await (await runs.app.workflows()).checkpoints.yield_(find_token(prompt), "ask", {})
    return "" if yielded.result.answer is not None else yielded.result.request


async def answer(runs: FakeRuns, request: str, option: str) -> None:
    await Inbox(await runs.ledger()).answer(request, option, by="person:tester", channel="cli")


@proves("conductor.loop-children", "conductor.waits-for-people")
async def test_an_answer_with_a_transition_ends_the_loop(setup: RunSetup) -> None:
    write_voyage(setup, 9, TRIP, step("go-on", checkpoint="ask"))
    options = iter(["on", "on", "home"])

    async def curious(name: str, prompt: str) -> str:
        if name == "sail" and "go-on" in find_steps(prompt):
            await answer(runs, await yield_checkpoint(runs, prompt), next(options))
        return await do_listed_steps(name, prompt)

    async with open_fake_runs(setup, curious) as runs:
        record = await runs.execute("ferry")
        assert len(await runs.sessions("crossing")) == 3
    assert (record.status, record.completed[-1]) == ("completed", "rest")


@proves("conductor.stretches", "conductor.waits-for-people")
async def test_a_step_is_refused_before_its_checkpoint_is_yielded_in_that_iteration(setup: RunSetup) -> None:
    write_voyage(setup, 2, TRIP, step("go-on", checkpoint="ask"))
    count = 0

    async def forgetful(name: str, prompt: str) -> str:
        nonlocal count
        if "has not been answered" in prompt or "is to be answered first" in prompt:
            count += 1
            await answer(runs, await yield_checkpoint(runs, prompt), "on")
        return await do_listed_steps(name, prompt)

    async with open_fake_runs(setup, forgetful) as runs:
        assert (await runs.execute("ferry")).status == "completed"
    assert count == 2


async def answer_all(runs: FakeRuns) -> None:
    """Answer every request with `on`."""
    async for request in Inbox(await runs.ledger()).follow():
        if request.state == "open":
            await answer(runs, request.id, "on")


@proves("conductor.waits-for-people", "conductor.tells-what-is-missing")
@pytest.mark.parametrize("steps", [[TRIP, step("go-on", checkpoint="ask")], [step("go-on", checkpoint="ask")]])
async def test_a_worker_that_waits_for_people_in_every_iteration_has_not_failed(
    setup: RunSetup, steps: list[dict[str, Any]]
) -> None:
    write_voyage(setup, 4, *steps)
    is_segmented, count = len(steps) == 2, 0

    async def patient(name: str, prompt: str) -> str:
        nonlocal count
        is_asking = name == "sail" and (not is_segmented or "go-on" in find_steps(prompt))
        if is_asking and prompt.startswith("Your checkpoint was answered"):
            await (await runs.app.workflows()).checkpoints.resume(find_token(prompt), {})
        if is_asking and count < 4 and (not is_segmented or "You carry out" in prompt):
            count += 1
            assert await yield_checkpoint(runs, prompt)
            return "I wait."
        if is_asking and "is not finished" not in prompt:
            return "Done, I think."
        return await do_listed_steps(name, prompt) if is_segmented or name != "sail" else report("sail-step", *["go-on"] * 4)

    async with open_fake_runs(setup, patient) as runs:
        person = asyncio.create_task(answer_all(runs))
        try:
            record = await runs.execute("ferry", tries=2)
        finally:
            person.cancel()
            await asyncio.gather(person, return_exceptions=True)
    assert (record.status, count) == ("completed", 4)


@proves("conductor.waits-for-people", "conductor.loop-activities")
async def test_a_worker_yields_the_checkpoint_of_an_activity_without_steps(setup: RunSetup) -> None:
    write_voyage(setup, 1, steps=[], loops=[loop(type="doWhile", over=None, steps=[], activities=["rest"], maxIterations=1)])

    async def asking(name: str, prompt: str) -> str:
        if "'ask' has not been asked" in prompt:
            await answer(runs, await yield_checkpoint(runs, prompt), "on")
        return await do_listed_steps(name, prompt)

    async with open_fake_runs(setup, asking) as runs:
        record = await runs.execute("ferry")
    assert record.status == "completed"
    assert [name for name, _ in runs.workers.prompts][:2] == ["sail", "rest"]

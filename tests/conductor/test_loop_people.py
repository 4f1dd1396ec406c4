"""People in loops: every pass asks anew, a worker is not blamed for waiting, and answers lead out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fidelio.inbox import Inbox
from tests.conductor.band import Concert, concert, obedient, steps_in, token_in
from tests.conductor.orchestra import Orchestra, activity, report, write_workflow
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


def voyage(orchestra: Orchestra, passes: int, *steps: dict[str, Any], **more: Any) -> None:
    """Sails round after round, and rests."""
    rounds = loop(type="while", over=None, variable=None, condition=None, steps=list(steps), maxIterations=passes)
    sail = activity("sail", **{"loops": [rounds], "checkpoints": [QUESTION], "transitions": [{"to": "rest"}], **more})
    write_workflow(orchestra.workflows, "ferry", sail, activity("rest"), variables=(CARGO, LANDED))
    write_workflow(orchestra.workflows, "crossing", activity("cross"), variables=(CARGO, LANDED))


async def yield_(played: Concert, prompt: str) -> str:
    """Puts the question to people; the request, or nothing when it was answered before."""
    yielded = await (await played.house.workflows()).checkpoints.yield_(token_in(prompt), "ask", {})
    return "" if yielded.result.answer is not None else yielded.result.request


async def answer(played: Concert, request: str, option: str) -> None:
    await Inbox(await played.ledger()).answer(request, option, by="person:tester", channel="cli")


@proves("conductor.loop-children", "conductor.waits-for-people")
async def test_an_answer_that_leads_elsewhere_ends_the_loop(orchestra: Orchestra) -> None:
    voyage(orchestra, 9, TRIP, step("go-on", checkpoint="ask"))
    options = iter(["on", "on", "home"])

    async def curious(name: str, prompt: str) -> str:
        if name == "sail" and "go-on" in steps_in(prompt):
            await answer(played, await yield_(played, prompt), next(options))
        return await obedient(name, prompt)

    async with concert(orchestra, curious) as played:
        record = await played.play("ferry")
        assert len(await played.sessions("crossing")) == 3
    assert (record.status, record.completed[-1]) == ("completed", "rest")


@proves("conductor.stretches", "conductor.waits-for-people")
async def test_a_step_is_not_taken_before_its_question_was_asked_in_that_pass(orchestra: Orchestra) -> None:
    voyage(orchestra, 2, TRIP, step("go-on", checkpoint="ask"))
    asked = 0

    async def forgetful(name: str, prompt: str) -> str:
        nonlocal asked
        if "has not been answered" in prompt or "is to be answered first" in prompt:
            asked += 1
            await answer(played, await yield_(played, prompt), "on")
        return await obedient(name, prompt)

    async with concert(orchestra, forgetful) as played:
        assert (await played.play("ferry")).status == "completed"
    assert asked == 2


async def answering_all(played: Concert) -> None:
    """A person who always wants to go on."""
    async for request in Inbox(await played.ledger()).follow():
        if request.state == "open":
            await answer(played, request.id, "on")


@proves("conductor.waits-for-people", "conductor.tells-what-is-missing")
@pytest.mark.parametrize("steps", [[TRIP, step("go-on", checkpoint="ask")], [step("go-on", checkpoint="ask")]])
async def test_a_worker_that_waits_for_people_in_every_pass_has_not_failed(
    orchestra: Orchestra, steps: list[dict[str, Any]]
) -> None:
    voyage(orchestra, 4, *steps)
    led, asked = len(steps) == 2, 0

    async def patient(name: str, prompt: str) -> str:
        nonlocal asked
        mine = name == "sail" and (not led or "go-on" in steps_in(prompt))
        if mine and prompt.startswith("Your checkpoint was answered"):
            await (await played.house.workflows()).checkpoints.resume(token_in(prompt), {})
        if mine and asked < 4 and (not led or "You carry out" in prompt):
            asked += 1
            assert await yield_(played, prompt)
            return "I wait."
        if mine and "is not finished" not in prompt:
            return "Done, I think."
        return await obedient(name, prompt) if led or name != "sail" else report("sail-step", *["go-on"] * 4)

    async with concert(orchestra, patient) as played:
        person = asyncio.create_task(answering_all(played))
        try:
            record = await played.play("ferry", tries=2)
        finally:
            person.cancel()
            await asyncio.gather(person, return_exceptions=True)
    assert (record.status, asked) == ("completed", 4)


@proves("conductor.waits-for-people", "conductor.loop-activities")
async def test_a_question_of_an_activity_without_steps_is_put_by_a_worker(orchestra: Orchestra) -> None:
    voyage(orchestra, 1, steps=[], loops=[loop(type="doWhile", over=None, steps=[], activities=["rest"], maxIterations=1)])

    async def asking(name: str, prompt: str) -> str:
        if "'ask' has not been asked" in prompt:
            await answer(played, await yield_(played, prompt), "on")
        return await obedient(name, prompt)

    async with concert(orchestra, asking) as played:
        record = await played.play("ferry")
    assert record.status == "completed"
    assert [name for name, _ in played.band.heard][:2] == ["sail", "rest"]

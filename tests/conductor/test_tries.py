"""What a worker is told, and which of its runs count as tries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fidelio.errors import ConductorFailure
from fidelio.orchestrator.record.model import AgentSession
from tests.conductor.band import Concert, Killed, concert, obedient, steps_in, token_in
from tests.conductor.orchestra import Orchestra, activity, report, write_workflow
from tests.conductor.test_loop_people import answer, voyage, yield_
from tests.conductor.test_loops import CARGO, LANDED, LIST, NOT_LANDED, TRIP, loop, step, tour
from tests.support import proves

MAIL = {"type": "simple", "variable": "cargo", "operator": "==", "value": "mail"}
BY_CARGO = [{"to": "rest", "condition": MAIL}, {"to": "__terminal__", "condition": {**MAIL, "operator": "!="}}]
NO_JSON = "Your last message has no JSON object"
ANSWERED = "Your checkpoint was answered"


def told(played: Concert, *steps: str) -> list[str]:
    """The prompts about these steps of sailing."""
    return [prompt for name, prompt in played.band.heard if name == "sail" and steps_in(prompt) == list(steps)]


async def answered(played: Concert, prompt: str) -> None:
    """A question, and a person who is quicker than the end of the worker's turn."""
    await answer(played, await yield_(played, prompt), "on")


@proves("conductor.tells-answers-and-what-is-missing")
async def test_a_worker_is_not_told_what_was_answered_to_another_one(orchestra: Orchestra) -> None:
    voyage(orchestra, 1, TRIP, step("unload"), steps=[step("sail-step", checkpoint="ask")])

    async def forgetful(name: str, prompt: str) -> str:
        if name == "sail" and steps_in(prompt) == ["sail-step"]:
            await answered(played, prompt)
        if name == "sail" and steps_in(prompt) == ["unload"] and "Missing steps" not in prompt:
            return report()
        return await obedient(name, prompt)

    async with concert(orchestra, forgetful) as played:
        assert (await played.play("ferry", tries=2)).status == "completed"
    _, again = told(played, "unload")
    assert ANSWERED not in again


@proves("conductor.tells-answers-and-what-is-missing", "conductor.tries")
async def test_an_answer_is_told_once_beside_what_is_missing(orchestra: Orchestra) -> None:
    voyage(orchestra, 1, step("go-on", checkpoint="ask"), TRIP)

    async def waiting(name: str, prompt: str) -> str:
        if name == "sail" and "go-on" in steps_in(prompt) and "is not finished" not in prompt:
            await answered(played, prompt)
            return "I wait."
        return "Still waiting." if ANSWERED in prompt else await obedient(name, prompt)

    async with concert(orchestra, waiting) as played:
        assert (await played.play("ferry", tries=2)).status == "completed"
    _, first, second = told(played, "go-on", "trip")
    assert "- ask: on\n" in first
    assert NO_JSON in first
    assert ANSWERED not in second


@proves("conductor.tells-answers-and-what-is-missing", "conductor.goes-on")
async def test_an_answer_that_a_worker_was_about_to_hear_is_told_after_a_crash(
    orchestra: Orchestra, monkeypatch: pytest.MonkeyPatch
) -> None:
    voyage(orchestra, 1, step("go-on", checkpoint="ask"), TRIP)

    async def waiting(name: str, prompt: str) -> str:
        if name == "sail" and "go-on" in steps_in(prompt) and ANSWERED not in prompt:
            await answered(played, prompt)
            return "I wait."
        return await obedient(name, prompt)

    async def dying(worker: AgentSession, prompt: str) -> None:
        raise Killed(worker.name, prompt)

    async with concert(orchestra, waiting) as played:
        session = await (await played.conductor()).begin(orchestra.plan("ferry", tries=1))
        with monkeypatch.context() as patched:
            patched.setattr(played.band, "resume", dying)
            with pytest.raises(Killed):
                await (await played.conductor()).carry_out(session)
        assert (await (await played.conductor()).carry_out(session)).status == "completed"
    assert len(told(played, "go-on", "trip")) == 2


@proves("conductor.tries")
async def test_answers_that_a_worker_went_on_with_buy_it_no_tries(orchestra: Orchestra) -> None:
    voyage(orchestra, 60, step("go-on", checkpoint="ask"))
    turns = 0

    async def lazy(name: str, prompt: str) -> str:
        nonlocal turns
        turns += 1
        for _ in range(20 if turns == 1 else 0):
            await answered(played, prompt)
            await (await played.house.workflows()).checkpoints.resume(token_in(prompt), {})
        return "No."

    async with concert(orchestra, lazy) as played:
        with pytest.raises(ConductorFailure, match="did not finish sail"):
            await played.play("ferry", tries=3)
    assert turns == 3


@proves("conductor.tries", "conductor.takes-what-is-done")
async def test_one_doubt_after_the_other_is_settled_and_none_of_them_is_a_failure(orchestra: Orchestra) -> None:
    doubtful = loop(type="doWhile", over=None, variable=None, condition=NOT_LANDED, steps=[TRIP])
    tour(orchestra, doubtful, transitions=BY_CARGO)

    async def exact(name: str, prompt: str) -> str:
        """Says what it is asked for, and nothing besides."""
        if name != "sail" or steps_in(prompt):
            return await obedient(name, prompt)
        return report(**({"landed": True} if "Report landed" in prompt else {"cargo": "mail"}))

    async with concert(orchestra, exact) as played:
        record = await played.play("ferry", tries=1)
    assert (record.completed[-1], record.variables) == ("rest", {"landed": True, "cargo": "mail"})


@proves("conductor.takes-what-is-done", "conductor.tries")
async def test_one_of_several_things_that_are_asked_for_is_kept(orchestra: Orchestra) -> None:
    both = {"type": "and", "conditions": [MAIL, {**NOT_LANDED, "value": True}]}
    ways = [{"to": "rest", "condition": both}, {"to": "__terminal__", "condition": {"type": "not", "condition": both}}]
    tour(orchestra, loop(steps=[TRIP]), transitions=ways)
    said: list[dict[str, Any]] = [{"cargo": "mail"}, {"landed": True}]

    async def slow(name: str, prompt: str) -> str:
        return report(**said.pop(0)) if name == "sail" and not steps_in(prompt) else await obedient(name, prompt)

    async with concert(orchestra, slow) as played:
        record = await played.play("ferry", inputs={"islands": ["Skye"]}, tries=1)
    assert record.completed[-1] == "rest"
    assert "depends on landed. Report landed in `variables`." in told(played)[-1]


@proves("conductor.tries")
async def test_who_says_a_thing_and_takes_it_back_again_and_again_comes_to_an_end(orchestra: Orchestra) -> None:
    sail = activity("sail", loops=[loop(steps=[TRIP]), loop(id="back", over="ports", steps=[TRIP])])
    write_workflow(orchestra.workflows, "ferry", sail, variables=(LIST, {**LIST, "name": "ports"}))
    write_workflow(orchestra.workflows, "crossing", activity("cross"))

    async def fickle(name: str, prompt: str) -> str:
        if steps_in(prompt):
            return await obedient(name, prompt)
        return report(islands=[], ports=None) if "Report islands" in prompt else report(islands=None, ports=[])

    async with concert(orchestra, fickle) as played:
        with pytest.raises(ConductorFailure, match="did not finish sail"):
            await played.play("ferry", tries=1)


@proves("conductor.tries", "conductor.takes-what-is-done")
async def test_work_that_becomes_due_with_a_report_is_no_failure_of_who_reported(orchestra: Orchestra) -> None:
    trip: dict[str, Any] = {**TRIP, "condition": {**NOT_LANDED, "value": True}}
    tour(orchestra, loop(steps=[step("load"), trip, step("unload")]))

    async def lands(name: str, prompt: str) -> str:
        early = name == "sail" and "load" in steps_in(prompt)
        return report("load", landed=True) if early else await obedient(name, prompt)

    async with concert(orchestra, lands) as played:
        await played.play("ferry", inputs={"islands": ["Skye"], "landed": False}, tries=1)
        assert len(await played.sessions("crossing")) == 1


@proves("conductor.takes-what-is-done")
async def test_nobody_is_asked_for_what_a_later_stretch_finds_out(orchestra: Orchestra) -> None:
    detour = {**TRIP, "id": "detour", "required": False}
    sail = activity("sail", steps=[step("out"), detour, step("look", required=False)], transitions=BY_CARGO)
    write_workflow(orchestra.workflows, "ferry", sail, activity("rest"), variables=(CARGO,))
    write_workflow(orchestra.workflows, "crossing", activity("cross"))

    async def looking(name: str, prompt: str) -> str:
        if name == "sail":
            return report("out") if "out" in steps_in(prompt) else report("look", cargo="mail")
        return await obedient(name, prompt)

    async with concert(orchestra, looking) as played:
        assert (await played.play("ferry", tries=1)).completed[-1] == "rest"
    assert len(told(played, "out", "detour")) == 1


@proves("conductor.takes-what-is-done", "conductor.waits-for-people")
async def test_a_question_that_no_step_names_is_asked_by_whoever_does_the_first_step(orchestra: Orchestra) -> None:
    voyage(orchestra, 1, TRIP)

    async def asking(name: str, prompt: str) -> str:
        if "Checkpoint 'ask' has not been asked" in prompt:
            await answered(played, prompt)
        return await obedient(name, prompt)

    async with concert(orchestra, asking) as played:
        assert (await played.play("ferry", tries=1)).status == "completed"
    assert [len(told(played, name)) for name in ("sail-step", "trip")] == [1, 1]


def whole(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "ferry", activity("sail"), variables=(LIST, CARGO, LANDED))


@proves("conductor.unwritable-reports")
@pytest.mark.parametrize("arranged", [tour, whole])
async def test_a_report_that_cannot_be_kept_is_handed_back(orchestra: Orchestra, arranged: Callable[[Orchestra], None]) -> None:
    arranged(orchestra)

    async def broken(name: str, prompt: str) -> str:
        torn = '{"steps": [{"step_id": "sail-step", "output": "x"}], "variables": {"cargo": "\\ud83d"}}'
        return torn if name == "sail" and "You carry" in prompt else await obedient(name, prompt)

    async with concert(orchestra, broken) as played:
        assert (await played.play("ferry", inputs={"islands": []})).status == "completed"
    assert "cannot be written as JSON" in played.band.heard[1][1]

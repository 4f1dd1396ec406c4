"""Prompts of a resumed worker, and which of its runs count as tries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fidelio.errors import ConductorFailure
from fidelio.orchestrator.record.model import AgentSession
from tests.conductor.fake_workers import FakeRuns, Killed, do_listed_steps, find_steps, find_token, open_fake_runs
from tests.conductor.run_setup import RunSetup, activity, report, write_workflow
from tests.conductor.test_loop_checkpoints import answer, write_voyage, yield_checkpoint
from tests.conductor.test_loops import CARGO, LANDED, LIST, NOT_LANDED, TRIP, loop, step, write_tour
from tests.support import proves

MAIL = {"type": "simple", "variable": "cargo", "operator": "==", "value": "mail"}
BY_CARGO = [{"to": "rest", "condition": MAIL}, {"to": "__terminal__", "condition": {**MAIL, "operator": "!="}}]
NO_JSON = "Your last message has no JSON object"
ANSWERED = "Your checkpoint was answered"


def prompts_for(runs: FakeRuns, *steps: str) -> list[str]:
    """The prompts of the activity `sail` that list exactly these steps."""
    return [prompt for name, prompt in runs.workers.prompts if name == "sail" and find_steps(prompt) == list(steps)]


async def yield_and_answer(runs: FakeRuns, prompt: str) -> None:
    """Yield the checkpoint, and answer it before the worker's turn ends."""
    await answer(runs, await yield_checkpoint(runs, prompt), "on")


@proves("conductor.tells-answers-and-what-is-missing")
async def test_a_worker_does_not_receive_answers_for_another_worker(setup: RunSetup) -> None:
    write_voyage(setup, 1, TRIP, step("unload"), steps=[step("sail-step", checkpoint="ask")])

    async def forgetful(name: str, prompt: str) -> str:
        if name == "sail" and find_steps(prompt) == ["sail-step"]:
            await yield_and_answer(runs, prompt)
        if name == "sail" and find_steps(prompt) == ["unload"] and "Missing steps" not in prompt:
            return report()
        return await do_listed_steps(name, prompt)

    async with open_fake_runs(setup, forgetful) as runs:
        assert (await runs.execute("ferry", tries=2)).status == "completed"
    _, again = prompts_for(runs, "unload")
    assert ANSWERED not in again


@proves("conductor.tells-answers-and-what-is-missing", "conductor.tries")
async def test_an_answer_is_sent_once_together_with_what_is_missing(setup: RunSetup) -> None:
    write_voyage(setup, 1, step("go-on", checkpoint="ask"), TRIP)

    async def waiting(name: str, prompt: str) -> str:
        if name == "sail" and "go-on" in find_steps(prompt) and "is not finished" not in prompt:
            await yield_and_answer(runs, prompt)
            return "I wait."
        return "Still waiting." if ANSWERED in prompt else await do_listed_steps(name, prompt)

    async with open_fake_runs(setup, waiting) as runs:
        assert (await runs.execute("ferry", tries=2)).status == "completed"
    _, first, second = prompts_for(runs, "go-on", "trip")
    assert "- ask: on\n" in first
    assert NO_JSON in first
    assert ANSWERED not in second


@proves("conductor.tells-answers-and-what-is-missing", "conductor.goes-on")
async def test_an_answer_that_was_not_sent_before_a_crash_is_sent_after_it(
    setup: RunSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_voyage(setup, 1, step("go-on", checkpoint="ask"), TRIP)

    async def waiting(name: str, prompt: str) -> str:
        if name == "sail" and "go-on" in find_steps(prompt) and ANSWERED not in prompt:
            await yield_and_answer(runs, prompt)
            return "I wait."
        return await do_listed_steps(name, prompt)

    async def dying(worker: AgentSession, prompt: str) -> None:
        raise Killed(worker.name, prompt)

    async with open_fake_runs(setup, waiting) as runs:
        session = await (await runs.conductor()).start(setup.plan("ferry", tries=1))
        with monkeypatch.context() as patched:
            patched.setattr(runs.workers, "resume", dying)
            with pytest.raises(Killed):
                await (await runs.conductor()).run(session)
        assert (await (await runs.conductor()).run(session)).status == "completed"
    assert len(prompts_for(runs, "go-on", "trip")) == 2


@proves("conductor.tries")
async def test_answers_that_a_worker_resumed_from_give_it_no_more_tries(setup: RunSetup) -> None:
    write_voyage(setup, 60, step("go-on", checkpoint="ask"))
    turns = 0

    async def lazy(name: str, prompt: str) -> str:
        nonlocal turns
        turns += 1
        for _ in range(20 if turns == 1 else 0):
            await yield_and_answer(runs, prompt)
            await (await runs.app.workflows()).checkpoints.resume(find_token(prompt), {})
        return "No."

    async with open_fake_runs(setup, lazy) as runs:
        with pytest.raises(ConductorFailure, match="did not finish sail"):
            await runs.execute("ferry", tries=3)
    assert turns == 3


@proves("conductor.tries", "conductor.takes-what-is-done")
async def test_open_decisions_are_settled_in_turn_and_do_not_count_as_tries(setup: RunSetup) -> None:
    doubtful = loop(type="doWhile", over=None, variable=None, condition=NOT_LANDED, steps=[TRIP])
    write_tour(setup, doubtful, transitions=BY_CARGO)

    async def exact(name: str, prompt: str) -> str:
        """Report only the variable that the prompt asks for."""
        if name != "sail" or find_steps(prompt):
            return await do_listed_steps(name, prompt)
        return report(**({"landed": True} if "Report landed" in prompt else {"cargo": "mail"}))

    async with open_fake_runs(setup, exact) as runs:
        record = await runs.execute("ferry", tries=1)
    assert (record.completed[-1], record.variables) == ("rest", {"landed": True, "cargo": "mail"})


@proves("conductor.takes-what-is-done", "conductor.tries")
async def test_a_report_with_some_of_the_requested_variables_is_recorded(setup: RunSetup) -> None:
    both = {"type": "and", "conditions": [MAIL, {**NOT_LANDED, "value": True}]}
    ways = [{"to": "rest", "condition": both}, {"to": "__terminal__", "condition": {"type": "not", "condition": both}}]
    write_tour(setup, loop(steps=[TRIP]), transitions=ways)
    said: list[dict[str, Any]] = [{"cargo": "mail"}, {"landed": True}]

    async def slow(name: str, prompt: str) -> str:
        return report(**said.pop(0)) if name == "sail" and not find_steps(prompt) else await do_listed_steps(name, prompt)

    async with open_fake_runs(setup, slow) as runs:
        record = await runs.execute("ferry", inputs={"islands": ["Skye"]}, tries=1)
    assert record.completed[-1] == "rest"
    assert "depends on landed. Report landed in `variables`." in prompts_for(runs)[-1]


@proves("conductor.tries")
async def test_a_worker_that_keeps_changing_its_report_fails_the_run(setup: RunSetup) -> None:
    sail = activity("sail", loops=[loop(steps=[TRIP]), loop(id="back", over="ports", steps=[TRIP])])
    write_workflow(setup.workflows, "ferry", sail, variables=(LIST, {**LIST, "name": "ports"}))
    write_workflow(setup.workflows, "crossing", activity("cross"))

    async def fickle(name: str, prompt: str) -> str:
        if find_steps(prompt):
            return await do_listed_steps(name, prompt)
        return report(islands=[], ports=None) if "Report islands" in prompt else report(islands=None, ports=[])

    async with open_fake_runs(setup, fickle) as runs:
        with pytest.raises(ConductorFailure, match="did not finish sail"):
            await runs.execute("ferry", tries=1)


@proves("conductor.tries", "conductor.takes-what-is-done")
async def test_a_step_that_becomes_due_by_a_report_is_not_a_failed_try(setup: RunSetup) -> None:
    trip: dict[str, Any] = {**TRIP, "condition": {**NOT_LANDED, "value": True}}
    write_tour(setup, loop(steps=[step("load"), trip, step("unload")]))

    async def lands(name: str, prompt: str) -> str:
        early = name == "sail" and "load" in find_steps(prompt)
        return report("load", landed=True) if early else await do_listed_steps(name, prompt)

    async with open_fake_runs(setup, lands) as runs:
        await runs.execute("ferry", inputs={"islands": ["Skye"], "landed": False}, tries=1)
        assert len(await runs.sessions("crossing")) == 1


@proves("conductor.takes-what-is-done")
async def test_a_variable_that_a_later_segment_reports_is_not_requested_early(setup: RunSetup) -> None:
    detour = {**TRIP, "id": "detour", "required": False}
    sail = activity("sail", steps=[step("out"), detour, step("look", required=False)], transitions=BY_CARGO)
    write_workflow(setup.workflows, "ferry", sail, activity("rest"), variables=(CARGO,))
    write_workflow(setup.workflows, "crossing", activity("cross"))

    async def looking(name: str, prompt: str) -> str:
        if name == "sail":
            return report("out") if "out" in find_steps(prompt) else report("look", cargo="mail")
        return await do_listed_steps(name, prompt)

    async with open_fake_runs(setup, looking) as runs:
        assert (await runs.execute("ferry", tries=1)).completed[-1] == "rest"
    assert len(prompts_for(runs, "out", "detour")) == 1


@proves("conductor.takes-what-is-done", "conductor.waits-for-people")
async def test_a_checkpoint_without_a_step_is_yielded_by_the_first_worker(setup: RunSetup) -> None:
    write_voyage(setup, 1, TRIP)

    async def asking(name: str, prompt: str) -> str:
        if "Checkpoint 'ask' has not been asked" in prompt:
            await yield_and_answer(runs, prompt)
        return await do_listed_steps(name, prompt)

    async with open_fake_runs(setup, asking) as runs:
        assert (await runs.execute("ferry", tries=1)).status == "completed"
    assert [len(prompts_for(runs, name)) for name in ("sail-step", "trip")] == [1, 1]


def whole(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "ferry", activity("sail"), variables=(LIST, CARGO, LANDED))


@proves("conductor.unwritable-reports")
@pytest.mark.parametrize("write", [write_tour, whole])
async def test_a_report_that_cannot_be_stored_is_returned_to_the_worker(
    setup: RunSetup, write: Callable[[RunSetup], None]
) -> None:
    write(setup)

    async def broken(name: str, prompt: str) -> str:
        torn = '{"steps": [{"step_id": "sail-step", "output": "x"}], "variables": {"cargo": "\\ud83d"}}'
        return torn if name == "sail" and "You carry" in prompt else await do_listed_steps(name, prompt)

    async with open_fake_runs(setup, broken) as runs:
        assert (await runs.execute("ferry", inputs={"islands": []})).status == "completed"
    assert "cannot be written as JSON" in runs.workers.prompts[1][1]

"""Limits of a run, and definitions that end a run with an error instead of being skipped."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import yaml

from fidelio.conductor import conductor
from fidelio.errors import ConductorFailure, UsageProblem, WorkflowNotFound
from tests.conductor.fake_workers import do_listed_steps, find_steps, open_fake_runs
from tests.conductor.run_setup import RunSetup, activity, report, write_workflow
from tests.conductor.test_loop_checkpoints import answer, write_voyage, yield_checkpoint
from tests.conductor.test_loops import LIST, TRIP, loop, sailor, step, write_tour
from tests.support import proves


def rewrite(setup: RunSetup, workflow: str, **changes: Any) -> None:
    """Change keys of a workflow file; None removes a key."""
    page = setup.workflows / workflow / "workflow.yaml"
    whole = {**yaml.safe_load(page.read_text()), **changes}
    page.write_text(yaml.safe_dump({key: value for key, value in whole.items() if value is not None}))


@proves("conductor.long-lists", "conductor.bounded")
async def test_a_list_that_is_as_long_as_a_run_may_be_is_carried_out_to_its_last_item(
    setup: RunSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conductor, "MAX_REPETITIONS", 3)
    write_tour(setup, loop(steps=[TRIP]))
    async with open_fake_runs(setup) as runs:
        await runs.execute("ferry", inputs={"islands": ["Faroe", "Lewis", "Skye"]})
        assert len(await runs.sessions("crossing")) == 3


@proves("conductor.long-lists", "conductor.loop-activities")
async def test_the_activities_of_a_loop_over_a_list_do_not_count_as_repetitions(
    setup: RunSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conductor, "MAX_REPETITIONS", 3)
    sail = activity("sail", loops=[loop(steps=[], activities=["load", "land"])], transitions=[{"to": "rest"}])
    others = [activity(name) for name in ("load", "land", "rest")]
    write_workflow(setup.workflows, "ferry", sail, *others, variables=(LIST,))
    async with open_fake_runs(setup) as runs:
        record = await runs.execute("ferry", inputs={"islands": ["Faroe", "Lewis", "Skye"]})
    assert (record.status, record.visits) == ("completed", 8)


@proves("conductor.long-lists")
async def test_a_list_that_is_too_long_is_refused_before_its_first_iteration(
    setup: RunSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conductor, "MAX_REPETITIONS", 2)
    write_tour(setup, loop(steps=[TRIP]))
    async with open_fake_runs(setup) as runs:
        session = await (await runs.conductor()).start(setup.plan("ferry", inputs={"islands": ["a", "b", "c"]}))
        with pytest.raises(ConductorFailure, match=r"needs 3 iterations; the limit is 2. .* smaller maxIterations"):
            await (await runs.conductor()).run(session)
        assert await runs.sessions("crossing") == []
        page = setup.workflows / "ferry" / "activities" / "00-sail.yaml"
        shorter = activity("sail", loops=[loop(steps=[TRIP], maxIterations=2)])
        page.write_text(yaml.safe_dump(shorter))
        assert (await (await runs.conductor()).run(session)).status == "completed"


@proves("conductor.bounded")
async def test_a_run_at_its_limit_is_not_advised_to_run_again(setup: RunSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conductor, "MAX_REPETITIONS", 2)
    write_workflow(setup.workflows, "ferry", activity("sail", transitions=[{"to": "sail-back"}]), activity("sail-back"))
    write_workflow(setup.workflows, "round", *(activity(a, transitions=[{"to": b}]) for a, b in ("xy", "yx")))
    async with open_fake_runs(setup) as runs:
        assert (await runs.execute("ferry")).status == "completed"
        with pytest.raises(ConductorFailure, match="repeats without end: 3 visits") as failed:
            await runs.execute("round")
    assert "--new" in str(failed.value.remedy)
    assert "again to continue" not in str(failed.value.remedy)


@proves("conductor.nothing-passed-over", "conductor.triggers")
@pytest.mark.parametrize(("first", "why"), [("nowhere", "no activity of it"), (None, "independent activities")])
async def test_a_child_that_cannot_start_does_not_count_as_done(setup: RunSetup, first: str | None, why: str) -> None:
    write_tour(setup)
    async with open_fake_runs(setup, sailor) as runs:
        session = await (await runs.conductor()).start(setup.plan("ferry", inputs={"islands": ["Skye"]}))
        rewrite(setup, "crossing", initialActivity=first)
        with pytest.raises(ConductorFailure, match=why):
            await (await runs.conductor()).run(session)
        with pytest.raises(UsageProblem, match=why):
            await (await runs.conductor()).start(setup.plan("ferry"))
        rewrite(setup, "crossing", initialActivity="cross")
        assert (await (await runs.conductor()).run(session)).status == "completed"
        (child,) = await runs.children(session)
        assert child.completed == ("cross",)


@proves("conductor.nothing-passed-over", "conductor.checks-plans")
async def test_child_workflows_must_exist_when_the_run_starts(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "journey", activity("go", triggers=[{"workflow": "ferry"}]))
    write_tour(setup)
    shutil.rmtree(setup.workflows / "crossing")
    async with open_fake_runs(setup) as runs:
        with pytest.raises(WorkflowNotFound, match="crossing"):
            await (await runs.conductor()).start(setup.plan("journey"))


@proves("conductor.nothing-passed-over", "conductor.loop-activities")
async def test_a_loop_through_a_missing_activity_ends_the_run(setup: RunSetup) -> None:
    write_tour(setup, loop(steps=[], activities=["rest", "nowhere"]))
    async with open_fake_runs(setup) as runs:
        with pytest.raises(ConductorFailure, match="Loop tour of sail goes through 'nowhere', which is no activity of ferry"):
            await runs.execute("ferry", inputs={"islands": ["Skye"]})


@proves("conductor.nothing-passed-over", "conductor.loop-doubts")
async def test_a_loop_over_a_value_that_is_not_a_list_ends_the_run(setup: RunSetup) -> None:
    write_tour(setup, loop(over="cargo"))
    async with open_fake_runs(setup) as runs:
        with pytest.raises(ConductorFailure, match="cargo, which it goes over, is not a list"):
            await runs.execute("ferry", inputs={"cargo": "mail"})


@proves("conductor.loop-doubts")
async def test_a_member_of_a_variable_is_requested_by_the_name_of_the_variable(setup: RunSetup) -> None:
    write_tour(setup, loop(over="plan.islands"))
    rewrite(setup, "ferry", variables=[{"name": "plan", "type": "object", "description": "What is planned."}])

    async def planning(name: str, prompt: str) -> str:
        is_requested = "depends on plan.islands. Report plan in `variables`." in prompt
        return report(plan={"islands": ["Skye"]}) if is_requested else await do_listed_steps(name, prompt)

    async with open_fake_runs(setup, planning) as runs:
        await runs.execute("ferry")
        assert len(await runs.sessions("crossing")) == 1


@proves("conductor.same-names", "conductor.loop-children")
@pytest.mark.parametrize(
    ("loops", "steps"),
    [
        ([loop(id="there", steps=[TRIP]), loop(id="back", steps=[TRIP])], []),
        ([loop(id="there", steps=[TRIP]), loop(id="back", steps=[step("load"), TRIP])], [step("trip")]),
        ([loop(steps=[step("trip")])], [TRIP, {**TRIP, "id": "again"}]),
    ],
)
async def test_steps_with_the_same_id_start_only_their_own_workflows(
    setup: RunSetup, loops: list[dict[str, Any]], steps: list[dict[str, Any]]
) -> None:
    write_tour(setup, *loops, steps=steps)
    async with open_fake_runs(setup) as runs:
        await runs.execute("ferry", inputs={"islands": ["Skye"]})
        assert len(await runs.sessions("crossing")) == 2


@proves("conductor.stretches", "conductor.short-prompts")
async def test_a_long_report_is_shortened_in_prompts_and_errors(setup: RunSetup) -> None:
    write_tour(setup)

    async def zealous(name: str, prompt: str) -> str:
        return report(*(f"step-{number}" for number in range(5_000)))

    async with open_fake_runs(setup, zealous) as runs:
        with pytest.raises(ConductorFailure) as failed:
            await runs.execute("ferry", inputs={"islands": ["Skye"]})
    assert max(len(prompt) for _, prompt in runs.workers.prompts) < 5_000
    assert len(str(failed.value)) < 3_000


@proves("conductor.stretches", "conductor.waits-for-people")
async def test_an_answer_with_a_transition_leaves_out_steps_that_start_workflows(setup: RunSetup) -> None:
    write_voyage(setup, 3, step("go-on", checkpoint="ask"), TRIP)

    async def hasty(name: str, prompt: str) -> str:
        if name == "sail" and "trip" in find_steps(prompt):
            await answer(runs, await yield_checkpoint(runs, prompt), "home")
        return await do_listed_steps(name, prompt)

    async with open_fake_runs(setup, hasty) as runs:
        record = await runs.execute("ferry")
        entered = await (await runs.ledger()).events(await runs.session("ferry"), types=("activity.entered",))
        assert await runs.sessions("crossing") == []
    assert record.completed[-1] == "rest"
    assert [entry["step_id"] for entry in entered[-1].body["manifest"]] == ["go-on"]


@proves("conductor.shows-progress")
async def test_warnings_of_a_move_are_reported(setup: RunSetup) -> None:
    write_workflow(setup.workflows, "ferry", activity("sail", transitions=[{"to": "rest"}]), activity("rest"))

    async def changing(name: str, prompt: str) -> str:
        rewrite(setup, "ferry", version="2.0.0")
        return await do_listed_steps(name, prompt)

    async with open_fake_runs(setup, changing) as runs:
        await runs.execute("ferry")
    assert any("version drift" in event.detail for event in runs.events)

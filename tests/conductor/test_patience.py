"""How far a run goes, and what it refuses to pass over."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import yaml

from fidelio.conductor import limits as patience
from fidelio.errors import ConductorFailure, UsageProblem, WorkflowNotFound
from tests.conductor.band import concert, obedient, steps_in
from tests.conductor.orchestra import Orchestra, activity, report, write_workflow
from tests.conductor.test_loop_people import answer, voyage, yield_
from tests.conductor.test_loops import LIST, TRIP, loop, sailor, step, tour
from tests.support import proves


def rewrite(orchestra: Orchestra, workflow: str, **changes: Any) -> None:
    """Changes the head of a workflow; None takes a part of it away."""
    page = orchestra.workflows / workflow / "workflow.yaml"
    whole = {**yaml.safe_load(page.read_text()), **changes}
    page.write_text(yaml.safe_dump({key: value for key, value in whole.items() if value is not None}))


@proves("conductor.long-lists", "conductor.bounded")
async def test_a_list_that_is_as_long_as_a_run_may_be_is_carried_out_to_its_last_item(
    orchestra: Orchestra, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "MOST_ROUNDS", 3)
    tour(orchestra, loop(steps=[TRIP]))
    async with concert(orchestra) as played:
        await played.play("ferry", inputs={"islands": ["Faroe", "Lewis", "Skye"]})
        assert len(await played.sessions("crossing")) == 3


@proves("conductor.long-lists", "conductor.loop-activities")
async def test_the_activities_of_a_loop_over_a_list_are_no_endless_round(
    orchestra: Orchestra, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "MOST_ROUNDS", 3)
    sail = activity("sail", loops=[loop(steps=[], activities=["load", "land"])], transitions=[{"to": "rest"}])
    others = [activity(name) for name in ("load", "land", "rest")]
    write_workflow(orchestra.workflows, "ferry", sail, *others, variables=(LIST,))
    async with concert(orchestra) as played:
        record = await played.play("ferry", inputs={"islands": ["Faroe", "Lewis", "Skye"]})
    assert (record.status, record.visits) == ("completed", 8)


@proves("conductor.long-lists")
async def test_a_list_that_is_too_long_is_refused_before_its_first_pass(
    orchestra: Orchestra, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "MOST_ROUNDS", 2)
    tour(orchestra, loop(steps=[TRIP]))
    async with concert(orchestra) as played:
        session = await (await played.conductor()).begin(orchestra.plan("ferry", inputs={"islands": ["a", "b", "c"]}))
        with pytest.raises(ConductorFailure, match=r"has 3 passes before it; a run makes up to 2 .* smaller maxIterations"):
            await (await played.conductor()).carry_out(session)
        assert await played.sessions("crossing") == []
        page = orchestra.workflows / "ferry" / "activities" / "00-sail.yaml"
        shorter = activity("sail", loops=[loop(steps=[TRIP], maxIterations=2)])
        page.write_text(yaml.safe_dump(shorter))
        assert (await (await played.conductor()).carry_out(session)).status == "completed"


@proves("conductor.bounded")
async def test_who_goes_round_and_round_is_not_told_to_go_on(orchestra: Orchestra, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "MOST_ROUNDS", 2)
    write_workflow(orchestra.workflows, "ferry", activity("sail", transitions=[{"to": "sail-back"}]), activity("sail-back"))
    write_workflow(orchestra.workflows, "round", *(activity(a, transitions=[{"to": b}]) for a, b in ("xy", "yx")))
    async with concert(orchestra) as played:
        assert (await played.play("ferry")).status == "completed"
        with pytest.raises(ConductorFailure, match="goes round and round: 3 visits") as failed:
            await played.play("round")
    assert "--new" in failed.value.remedy
    assert "goes on from here" not in failed.value.remedy


@proves("conductor.nothing-passed-over", "conductor.triggers")
@pytest.mark.parametrize(("first", "why"), [("nowhere", "no activity of it"), (None, "independent activities")])
async def test_a_child_that_cannot_begin_is_not_done(orchestra: Orchestra, first: str | None, why: str) -> None:
    tour(orchestra)
    async with concert(orchestra, sailor) as played:
        session = await (await played.conductor()).begin(orchestra.plan("ferry", inputs={"islands": ["Skye"]}))
        rewrite(orchestra, "crossing", initialActivity=first)
        with pytest.raises(ConductorFailure, match=why):
            await (await played.conductor()).carry_out(session)
        with pytest.raises(UsageProblem, match=why):
            await (await played.conductor()).begin(orchestra.plan("ferry"))
        rewrite(orchestra, "crossing", initialActivity="cross")
        assert (await (await played.conductor()).carry_out(session)).status == "completed"
        (child,) = await played.children(session)
        assert child.completed == ("cross",)


@proves("conductor.nothing-passed-over", "conductor.checks-plans")
async def test_what_a_workflow_starts_has_to_be_there_when_it_begins(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "journey", activity("go", triggers=[{"workflow": "ferry"}]))
    tour(orchestra)
    shutil.rmtree(orchestra.workflows / "crossing")
    async with concert(orchestra) as played:
        with pytest.raises(WorkflowNotFound, match="crossing"):
            await (await played.conductor()).begin(orchestra.plan("journey"))


@proves("conductor.nothing-passed-over", "conductor.loop-activities")
async def test_a_loop_through_an_activity_that_is_not_there_is_not_run_empty(orchestra: Orchestra) -> None:
    tour(orchestra, loop(steps=[], activities=["rest", "nowhere"]))
    async with concert(orchestra) as played:
        with pytest.raises(ConductorFailure, match="Loop tour of sail goes through 'nowhere', which is no activity of ferry"):
            await played.play("ferry", inputs={"islands": ["Skye"]})


@proves("conductor.nothing-passed-over", "conductor.loop-doubts")
async def test_a_loop_over_something_else_than_a_list_is_called_that(orchestra: Orchestra) -> None:
    tour(orchestra, loop(over="cargo"))
    async with concert(orchestra) as played:
        with pytest.raises(ConductorFailure, match="cargo, which it goes over, is no list"):
            await played.play("ferry", inputs={"cargo": "mail"})


@proves("conductor.loop-doubts")
async def test_a_part_of_a_variable_is_asked_for_by_the_name_of_the_whole(orchestra: Orchestra) -> None:
    tour(orchestra, loop(over="plan.islands"))
    rewrite(orchestra, "ferry", variables=[{"name": "plan", "type": "object", "description": "What is planned."}])

    async def planning(name: str, prompt: str) -> str:
        asked = "depends on plan.islands. Report plan in `variables`." in prompt
        return report(plan={"islands": ["Skye"]}) if asked else await obedient(name, prompt)

    async with concert(orchestra, planning) as played:
        await played.play("ferry")
        assert len(await played.sessions("crossing")) == 1


@proves("conductor.same-names", "conductor.loop-children")
@pytest.mark.parametrize(
    ("loops", "steps"),
    [
        ([loop(id="there", steps=[TRIP]), loop(id="back", steps=[TRIP])], []),
        ([loop(id="there", steps=[TRIP]), loop(id="back", steps=[step("load"), TRIP])], [step("trip")]),
        ([loop(steps=[step("trip")])], [TRIP, {**TRIP, "id": "again"}]),
    ],
)
async def test_steps_that_are_called_alike_start_only_what_is_theirs(
    orchestra: Orchestra, loops: list[dict[str, Any]], steps: list[dict[str, Any]]
) -> None:
    tour(orchestra, *loops, steps=steps)
    async with concert(orchestra) as played:
        await played.play("ferry", inputs={"islands": ["Skye"]})
        assert len(await played.sessions("crossing")) == 2


@proves("conductor.stretches", "conductor.short-prompts")
async def test_what_a_worker_hands_in_does_not_come_back_at_full_length(orchestra: Orchestra) -> None:
    tour(orchestra)

    async def zealous(name: str, prompt: str) -> str:
        return report(*(f"step-{number}" for number in range(5_000)))

    async with concert(orchestra, zealous) as played:
        with pytest.raises(ConductorFailure) as failed:
            await played.play("ferry", inputs={"islands": ["Skye"]})
    assert max(len(prompt) for _, prompt in played.band.heard) < 5_000
    assert len(str(failed.value)) < 3_000


@proves("conductor.stretches", "conductor.waits-for-people")
async def test_an_answer_that_leads_elsewhere_leaves_no_step_done_that_has_started_nothing(orchestra: Orchestra) -> None:
    voyage(orchestra, 3, step("go-on", checkpoint="ask"), TRIP)

    async def hasty(name: str, prompt: str) -> str:
        if name == "sail" and "trip" in steps_in(prompt):
            await answer(played, await yield_(played, prompt), "home")
        return await obedient(name, prompt)

    async with concert(orchestra, hasty) as played:
        record = await played.play("ferry")
        entered = await (await played.ledger()).events(await played.session("ferry"), types=("activity.entered",))
        assert await played.sessions("crossing") == []
    assert record.completed[-1] == "rest"
    assert [one["step_id"] for one in entered[-1].body["manifest"]] == ["go-on"]


@proves("conductor.shows-progress")
async def test_what_is_to_be_known_of_a_move_is_told(orchestra: Orchestra) -> None:
    write_workflow(orchestra.workflows, "ferry", activity("sail", transitions=[{"to": "rest"}]), activity("rest"))

    async def changing(name: str, prompt: str) -> str:
        rewrite(orchestra, "ferry", version="2.0.0")
        return await obedient(name, prompt)

    async with concert(orchestra, changing) as played:
        await played.play("ferry")
    assert any("version drift" in one.detail for one in played.seen)

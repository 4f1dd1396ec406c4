"""Workflows that an activity or its steps start: in order, each with what is known then, and what they change stays changed."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.errors import ConductorFailure
from tests.conductor.band import concert, obedient, steps_in
from tests.conductor.orchestra import Orchestra, activity, report, write_workflow
from tests.conductor.test_loops import CARGO, LANDED, TRIP, loop, step
from tests.support import proves


def voyage(orchestra: Orchestra, **more: Any) -> None:
    write_workflow(orchestra.workflows, "ferry", activity("sail", **more), activity("rest"), variables=(CARGO, LANDED))
    write_workflow(orchestra.workflows, "crossing", activity("cross"), variables=(CARGO, LANDED))


def starts(*names: str) -> dict[str, Any]:
    return {"workflow": "crossing", "passContext": list(names)}


async def loader(name: str, prompt: str) -> str:
    """Knows what is on board; the crossing loses it."""
    if name == "cross":
        return report("cross-step", cargo="nothing")
    done = steps_in(prompt) if name == "sail" else [f"{name}-step"]
    return report(*done, cargo="mail") if name == "sail" and done else report(*done)


@proves("conductor.triggers", "conductor.child-results")
@pytest.mark.parametrize(
    "starting", [{"triggers": [starts("cargo")]}, {"steps": [step("sail-step", triggers=[starts("cargo")])]}]
)
async def test_a_child_knows_what_the_worker_reported_and_has_the_last_word(
    orchestra: Orchestra, starting: dict[str, Any]
) -> None:
    voyage(orchestra, transitions=[{"to": "rest"}], **starting)
    async with concert(orchestra, loader) as played:
        record = await played.play("ferry")
        child = await played.session("crossing")
        started = (await (await played.ledger()).events(child, types=("session.started",)))[0]
    assert started.body["variables"] == {"cargo": "mail"}
    assert record.variables["cargo"] == "nothing"


@proves("conductor.triggers", "conductor.stretches")
async def test_two_steps_may_start_the_same_workflow_with_other_variables(orchestra: Orchestra) -> None:
    steps = [step("out", triggers=[starts("cargo")]), step("turn"), step("home", triggers=[starts("landed")])]
    voyage(orchestra, steps=steps)
    async with concert(orchestra) as played:
        await played.play("ferry", inputs={"cargo": "mail", "landed": True})
        children = await played.children(await played.session("ferry"))
    assert [dict(child.variables) for child in children] == [{"cargo": "mail"}, {"landed": True}]
    assert [steps_in(prompt) for name, prompt in played.band.heard if name == "sail"] == [["out"], ["turn", "home"]]


@proves("conductor.triggers")
async def test_an_activity_without_steps_starts_its_workflows_too(orchestra: Orchestra) -> None:
    voyage(orchestra, steps=[], triggers=[starts(), {"workflow": "meeting"}])
    write_workflow(orchestra.workflows, "meeting", activity("talk"))
    async with concert(orchestra) as played:
        await played.play("ferry")
    assert [name for name, _ in played.band.heard] == ["cross", "talk"]


@proves("conductor.triggers", "conductor.stretches")
async def test_an_optional_step_may_leave_its_workflow_out(orchestra: Orchestra) -> None:
    steps = [step("out"), step("detour", required=False, triggers=[starts()]), step("home")]
    voyage(orchestra, steps=steps)

    async def straight(name: str, prompt: str) -> str:
        return report(*(one for one in steps_in(prompt) if one != "detour"))

    async with concert(orchestra, straight) as played:
        assert (await played.play("ferry")).status == "completed"
        assert await played.sessions("crossing") == []
    assert [steps_in(prompt) for _, prompt in played.band.heard] == [["out", "detour"], ["home"]]


@proves("conductor.triggers", "conductor.loop-doubts")
async def test_whether_a_step_that_starts_a_workflow_applies_has_to_be_said(orchestra: Orchestra) -> None:
    condition = {"type": "simple", "variable": "landed", "operator": "==", "value": False}
    voyage(orchestra, steps=[step("out"), step("again", condition=condition, triggers=[starts()])])

    async def asked(name: str, prompt: str) -> str:
        if name == "cross":
            return await obedient(name, prompt)
        return report("out", "again", landed=False) if "Report landed in" in prompt else report("out")

    async with concert(orchestra, asked) as played:
        await played.play("ferry")
        assert len(await played.sessions("crossing")) == 1


@proves("conductor.triggers", "conductor.tells-what-is-missing")
async def test_a_workflow_that_is_not_there_ends_the_run_before_anything_is_taken(orchestra: Orchestra) -> None:
    voyage(orchestra, loops=[loop(type="doWhile", over=None, condition=None, maxIterations=1, steps=[TRIP])])
    async with concert(orchestra) as played:
        session = await (await played.conductor()).begin(orchestra.plan("ferry"))
        (orchestra.workflows / "crossing" / "workflow.yaml").unlink()
        with pytest.raises(ConductorFailure, match="crossing"):
            await (await played.conductor()).carry_out(session)
        assert await played.children(session) == []

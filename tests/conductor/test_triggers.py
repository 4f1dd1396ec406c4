"""Workflows started by an activity or its steps: their order, the variables they get and those they change."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.errors import ConductorFailure
from tests.conductor.fake_workers import do_listed_steps, find_steps, open_fake_runs
from tests.conductor.run_setup import RunSetup, activity, report, write_workflow
from tests.conductor.test_loops import CARGO, LANDED, TRIP, loop, step
from tests.support import proves


def write_voyage(setup: RunSetup, **more: Any) -> None:
    write_workflow(setup.workflows, "ferry", activity("sail", **more), activity("rest"), variables=(CARGO, LANDED))
    write_workflow(setup.workflows, "crossing", activity("cross"), variables=(CARGO, LANDED))


def starts(*names: str) -> dict[str, Any]:
    return {"workflow": "crossing", "passContext": list(names)}


async def loader(name: str, prompt: str) -> str:
    """Report a cargo in `sail`, and another in `cross`."""
    if name == "cross":
        return report("cross-step", cargo="nothing")
    done = find_steps(prompt) if name == "sail" else [f"{name}-step"]
    return report(*done, cargo="mail") if name == "sail" and done else report(*done)


@proves("conductor.triggers", "conductor.child-results")
@pytest.mark.parametrize(
    "starting", [{"triggers": [starts("cargo")]}, {"steps": [step("sail-step", triggers=[starts("cargo")])]}]
)
async def test_a_child_gets_the_reported_variables_and_may_change_them(setup: RunSetup, starting: dict[str, Any]) -> None:
    write_voyage(setup, transitions=[{"to": "rest"}], **starting)
    async with open_fake_runs(setup, loader) as runs:
        record = await runs.execute("ferry")
        child = await runs.session("crossing")
        started = (await (await runs.ledger()).events(child, types=("session.started",)))[0]
    assert started.body["variables"] == {"cargo": "mail"}
    assert record.variables["cargo"] == "nothing"


@proves("conductor.triggers", "conductor.stretches")
async def test_two_steps_may_start_the_same_workflow_with_other_variables(setup: RunSetup) -> None:
    steps = [step("out", triggers=[starts("cargo")]), step("turn"), step("home", triggers=[starts("landed")])]
    write_voyage(setup, steps=steps)
    async with open_fake_runs(setup) as runs:
        await runs.execute("ferry", inputs={"cargo": "mail", "landed": True})
        children = await runs.children(await runs.session("ferry"))
    assert [dict(child.variables) for child in children] == [{"cargo": "mail"}, {"landed": True}]
    assert [find_steps(prompt) for name, prompt in runs.workers.prompts if name == "sail"] == [["out"], ["turn", "home"]]


@proves("conductor.triggers")
async def test_an_activity_without_steps_starts_its_workflows_too(setup: RunSetup) -> None:
    write_voyage(setup, steps=[], triggers=[starts(), {"workflow": "meeting"}])
    write_workflow(setup.workflows, "meeting", activity("talk"))
    async with open_fake_runs(setup) as runs:
        await runs.execute("ferry")
    assert [name for name, _ in runs.workers.prompts] == ["cross", "talk"]


@proves("conductor.triggers", "conductor.stretches")
async def test_an_optional_step_may_leave_its_workflow_out(setup: RunSetup) -> None:
    steps = [step("out"), step("detour", required=False, triggers=[starts()]), step("home")]
    write_voyage(setup, steps=steps)

    async def straight(name: str, prompt: str) -> str:
        return report(*(step_id for step_id in find_steps(prompt) if step_id != "detour"))

    async with open_fake_runs(setup, straight) as runs:
        assert (await runs.execute("ferry")).status == "completed"
        assert await runs.sessions("crossing") == []
    assert [find_steps(prompt) for _, prompt in runs.workers.prompts] == [["out", "detour"], ["home"]]


@proves("conductor.triggers", "conductor.loop-doubts")
async def test_the_variable_of_a_conditional_step_with_a_trigger_is_requested(setup: RunSetup) -> None:
    condition = {"type": "simple", "variable": "landed", "operator": "==", "value": False}
    write_voyage(setup, steps=[step("out"), step("again", condition=condition, triggers=[starts()])])

    async def report_on_request(name: str, prompt: str) -> str:
        if name == "cross":
            return await do_listed_steps(name, prompt)
        return report("out", "again", landed=False) if "Report landed in" in prompt else report("out")

    async with open_fake_runs(setup, report_on_request) as runs:
        await runs.execute("ferry")
        assert len(await runs.sessions("crossing")) == 1


@proves("conductor.triggers", "conductor.tells-what-is-missing")
async def test_a_missing_child_workflow_ends_the_run_before_the_report_is_recorded(setup: RunSetup) -> None:
    write_voyage(setup, loops=[loop(type="doWhile", over=None, condition=None, maxIterations=1, steps=[TRIP])])
    async with open_fake_runs(setup) as runs:
        session = await (await runs.conductor()).start(setup.plan("ferry"))
        (setup.workflows / "crossing" / "workflow.yaml").unlink()
        with pytest.raises(ConductorFailure, match="crossing"):
            await (await runs.conductor()).run(session)
        assert await runs.children(session) == []

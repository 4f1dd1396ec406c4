"""Loops through activities: every iteration visits them and returns, and child workflows get the item."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conductor.fake_workers import FakeRuns, do_listed_steps, find_steps, open_fake_runs
from tests.conductor.run_setup import RunSetup, activity, write_workflow
from tests.conductor.test_loops import CARGO, ISLAND, LANDED, LIST, loop
from tests.support import proves

CARGOES = {"name": "cargoes", "type": "array", "description": "What for.", "defaultValue": ["mail", "milk"]}
CROSSING = {"workflow": "crossing", "passContext": ["island"]}


def write_round_trip(setup: RunSetup, *inner: dict[str, Any], **more: Any) -> None:
    """A workflow whose loop goes through `inner` for every island."""
    passing = loop(steps=[], activities=[definition["id"] for definition in inner])
    write_workflow(
        setup.workflows,
        "ferry",
        activity("sail", loops=[passing], transitions=[{"to": "rest"}], **more),
        *inner,
        activity("rest"),
        variables=(LIST, CARGO, LANDED, CARGOES),
    )
    write_workflow(setup.workflows, "crossing", activity("cross"), variables=(ISLAND, LANDED))


async def islands(runs: FakeRuns) -> list[str]:
    return [child.variables["island"] for child in await runs.children(await runs.session("ferry"))]


@proves("conductor.loop-activities")
async def test_every_iteration_visits_the_activities_and_returns(setup: RunSetup) -> None:
    write_round_trip(setup, activity("out"), activity("back"))
    async with open_fake_runs(setup) as runs:
        record = await runs.execute("ferry", inputs={"islands": ["Faroe", "Lewis"]})
    assert record.status == "completed"
    assert [name for name, _ in runs.workers.prompts] == ["sail", "out", "back", "out", "back", "rest"]
    assert len(set(runs.workers.names)) == 6


@proves("conductor.loop-activities", "conductor.loop-children")
@pytest.mark.parametrize(
    "starting", [{"triggers": [CROSSING]}, {"steps": [{"id": "out-step", "name": "Out", "triggers": [CROSSING]}]}]
)
async def test_a_child_of_an_activity_in_a_loop_gets_the_item(setup: RunSetup, starting: dict[str, Any]) -> None:
    write_round_trip(setup, activity("out", **starting))
    async with open_fake_runs(setup) as runs:
        await runs.execute("ferry", inputs={"islands": ["Faroe", "Lewis", "Skye"]})
        assert await islands(runs) == ["Faroe", "Lewis", "Skye"]


@proves("conductor.loop-activities", "conductor.loop-children")
async def test_a_loop_may_go_through_an_activity_that_has_a_loop_of_its_own(setup: RunSetup) -> None:
    ports = loop(id="ports", over="cargoes", variable="cargo", steps=[{"id": "stop", "name": "Stop", "triggers": [CROSSING]}])
    write_round_trip(setup, activity("out", loops=[ports]))
    async with open_fake_runs(setup) as runs:
        await runs.execute("ferry", inputs={"islands": ["Faroe", "Lewis"]})
        assert await islands(runs) == ["Faroe", "Faroe", "Lewis", "Lewis"]


@proves("conductor.loop-activities")
async def test_an_activity_that_starts_a_workflow_and_has_a_loop_starts_it_once_a_visit(setup: RunSetup) -> None:
    write_round_trip(setup, activity("out"), triggers=[{"workflow": "crossing"}])
    async with open_fake_runs(setup) as runs:
        await runs.execute("ferry", inputs={"islands": ["Faroe", "Lewis"]})
        assert len(await runs.sessions("crossing")) == 1
    assert [name for name, _ in runs.workers.prompts] == ["sail", "cross", "out", "out", "rest"]


@proves("conductor.loop-activities", "conductor.stretches")
async def test_steps_of_an_iteration_come_before_its_activities(setup: RunSetup) -> None:
    write_round_trip(setup, activity("out"))
    page = setup.workflows / "ferry" / "activities" / "00-sail.yaml"
    page.write_text(page.read_text().replace("steps: []", "steps: [{id: load, name: Load}]"))
    heard: list[str] = []

    async def noting(name: str, prompt: str) -> str:
        heard.extend(find_steps(prompt) if name == "sail" else [name])
        return await do_listed_steps(name, prompt)

    async with open_fake_runs(setup, noting) as runs:
        await runs.execute("ferry", inputs={"islands": ["Faroe", "Lewis"]})
    assert heard == ["sail-step", "load", "out", "load", "out", "rest"]


@proves("conductor.loop-activities", "conductor.loop-children")
async def test_an_enforced_session_runs_its_loops_as_well(setup: RunSetup) -> None:
    load = {"id": "load", "name": "Load", "triggers": [CROSSING]}
    write_round_trip(setup, activity("out", triggers=[CROSSING]))
    page = setup.workflows / "ferry" / "activities" / "00-sail.yaml"
    page.write_text(page.read_text().replace("steps: []", f"steps: [{json.dumps(load)}]"))
    head = setup.workflows / "ferry" / "workflow.yaml"
    head.write_text(f"fidelity: enforce\n{head.read_text()}")
    async with open_fake_runs(setup) as runs:
        record = await runs.execute("ferry", inputs={"islands": ["Faroe", "Lewis"]})
        assert (record.fidelity, record.status) == ("enforce", "completed")
        assert await islands(runs) == ["Faroe", "Faroe", "Lewis", "Lewis"]

"""Loops that go through activities: each pass leads through them and back, and what they start is given the item."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conductor.band import Concert, concert, obedient, steps_in
from tests.conductor.orchestra import Orchestra, activity, write_workflow
from tests.conductor.test_loops import CARGO, ISLAND, LANDED, LIST, loop
from tests.support import proves

CARGOES = {"name": "cargoes", "type": "array", "description": "What for.", "defaultValue": ["mail", "milk"]}
CROSSING = {"workflow": "crossing", "passContext": ["island"]}


def round_trip(orchestra: Orchestra, *inner: dict[str, Any], **more: Any) -> None:
    """A workflow whose loop goes through `inner` for every island."""
    passing = loop(steps=[], activities=[one["id"] for one in inner])
    write_workflow(
        orchestra.workflows,
        "ferry",
        activity("sail", loops=[passing], transitions=[{"to": "rest"}], **more),
        *inner,
        activity("rest"),
        variables=(LIST, CARGO, LANDED, CARGOES),
    )
    write_workflow(orchestra.workflows, "crossing", activity("cross"), variables=(ISLAND, LANDED))


async def islands(played: Concert) -> list[str]:
    return [child.variables["island"] for child in await played.children(await played.session("ferry"))]


@proves("conductor.loop-activities")
async def test_every_pass_goes_through_the_activities_and_back(orchestra: Orchestra) -> None:
    round_trip(orchestra, activity("out"), activity("back"))
    async with concert(orchestra) as played:
        record = await played.play("ferry", inputs={"islands": ["Faroe", "Lewis"]})
    assert record.status == "completed"
    assert [name for name, _ in played.band.heard] == ["sail", "out", "back", "out", "back", "rest"]
    assert len(set(played.band.names)) == 6


@proves("conductor.loop-activities", "conductor.loop-children")
@pytest.mark.parametrize(
    "starting", [{"triggers": [CROSSING]}, {"steps": [{"id": "out-step", "name": "Out", "triggers": [CROSSING]}]}]
)
async def test_what_an_activity_in_a_loop_starts_is_given_the_item(orchestra: Orchestra, starting: dict[str, Any]) -> None:
    round_trip(orchestra, activity("out", **starting))
    async with concert(orchestra) as played:
        await played.play("ferry", inputs={"islands": ["Faroe", "Lewis", "Skye"]})
        assert await islands(played) == ["Faroe", "Lewis", "Skye"]


@proves("conductor.loop-activities", "conductor.loop-children")
async def test_a_loop_may_go_through_an_activity_that_has_a_loop_of_its_own(orchestra: Orchestra) -> None:
    ports = loop(id="ports", over="cargoes", variable="cargo", steps=[{"id": "stop", "name": "Stop", "triggers": [CROSSING]}])
    round_trip(orchestra, activity("out", loops=[ports]))
    async with concert(orchestra) as played:
        await played.play("ferry", inputs={"islands": ["Faroe", "Lewis"]})
        assert await islands(played) == ["Faroe", "Faroe", "Lewis", "Lewis"]


@proves("conductor.loop-activities")
async def test_an_activity_that_starts_a_workflow_and_has_a_loop_starts_it_once_a_visit(orchestra: Orchestra) -> None:
    round_trip(orchestra, activity("out"), triggers=[{"workflow": "crossing"}])
    async with concert(orchestra) as played:
        await played.play("ferry", inputs={"islands": ["Faroe", "Lewis"]})
        assert len(await played.sessions("crossing")) == 1
    assert [name for name, _ in played.band.heard] == ["sail", "cross", "out", "out", "rest"]


@proves("conductor.loop-activities", "conductor.stretches")
async def test_steps_of_a_pass_come_before_its_activities(orchestra: Orchestra) -> None:
    round_trip(orchestra, activity("out"))
    page = orchestra.workflows / "ferry" / "activities" / "00-sail.yaml"
    page.write_text(page.read_text().replace("steps: []", "steps: [{id: load, name: Load}]"))
    heard: list[str] = []

    async def noting(name: str, prompt: str) -> str:
        heard.extend(steps_in(prompt) if name == "sail" else [name])
        return await obedient(name, prompt)

    async with concert(orchestra, noting) as played:
        await played.play("ferry", inputs={"islands": ["Faroe", "Lewis"]})
    assert heard == ["sail-step", "load", "out", "load", "out", "rest"]


@proves("conductor.loop-activities", "conductor.loop-children")
async def test_a_session_that_is_enforced_is_led_through_its_loops_all_the_same(orchestra: Orchestra) -> None:
    load = {"id": "load", "name": "Load", "triggers": [CROSSING]}
    round_trip(orchestra, activity("out", triggers=[CROSSING]))
    page = orchestra.workflows / "ferry" / "activities" / "00-sail.yaml"
    page.write_text(page.read_text().replace("steps: []", f"steps: [{json.dumps(load)}]"))
    head = orchestra.workflows / "ferry" / "workflow.yaml"
    head.write_text(f"fidelity: enforce\n{head.read_text()}")
    async with concert(orchestra) as played:
        record = await played.play("ferry", inputs={"islands": ["Faroe", "Lewis"]})
        assert (record.fidelity, record.status) == ("enforce", "completed")
        assert await islands(played) == ["Faroe", "Faroe", "Lewis", "Lewis"]

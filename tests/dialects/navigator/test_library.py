"""What is read without a session: workflows, activities, skills, resources and templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.definitions.library import Library, Root
from fidelio.definitions.library.search_path import bundled_root
from fidelio.settings import Settings
from fidelio.surfaces.mcp.dialects import load_tools
from tests.dialects.conftest import Opens, Player, playing
from tests.support import proves

TOOLS = [
    *("nav_start", "nav_situation", "nav_action", "nav_checkpoint"),
    *("list_workflows", "get_workflow", "get_workflow_activity", "get_checkpoint", "validate_transition", "health_check"),
    *("get_activities", "get_activity", "get_skills", "list_skills", "get_skill"),
    *("list_workflow_resources", "get_resource", "list_templates", "get_template", "discover_resources"),
]


@proves("navigator.tools")
async def test_there_are_exactly_these_twenty_tools(settings: Settings) -> None:
    async with Application(settings) as house:
        described = load_tools("navigator", house).table.describe()

    assert sorted(tool["name"] for tool in described) == sorted(TOOLS)
    assert len(TOOLS) == 20
    assert all(tool["description"] and tool["title"] for tool in described)


@proves("navigator.definitions")
async def test_workflows_are_listed_with_meta_and_without_what_cannot_be_read(play: Player) -> None:
    listed = (await play("list_workflows")).json

    assert listed[0]["id"] == "meta"
    assert {"id": "tour", "title": "A tour", "version": "1.0.0", "description": ""} in listed
    assert "broken" not in [one["id"] for one in listed]
    assert (await play("health_check")).json["status"] == "healthy"


@proves("navigator.definitions")
async def test_definitions_are_read_whole_and_in_parts(play: Player) -> None:
    workflow = (await play("get_workflow", workflow_id="tour")).json
    activity = (await play("get_workflow_activity", workflow_id="tour", activity_id="pack")).json
    checkpoint = (await play("get_checkpoint", workflow_id="tour", activity_id="pack", checkpoint_id="size")).json

    assert [one["id"] for one in workflow["activities"]] == ["pack", "visit", "home"]
    assert workflow["initialActivity"] == "pack"
    assert activity == {key: value for key, value in workflow["activities"][0].items() if key in activity}
    assert checkpoint["options"][0] == {"id": "big", "label": "A big one", "effect": {"setVariable": {"calm": True}}}
    assert (checkpoint["required"], checkpoint["blocking"]) == (True, True)


@proves("navigator.definitions", "navigator.tools")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("get_workflow", {"workflow_id": "zzz"}),
        ("get_workflow", {"workflow_id": "../tour"}),
        ("get_workflow_activity", {"workflow_id": "tour", "activity_id": "zzz"}),
        ("get_checkpoint", {"workflow_id": "tour", "activity_id": "pack", "checkpoint_id": "zzz"}),
        ("get_activity", {"activity_id": "zzz"}),
        ("get_activity", {"activity_id": "/pack"}),
        ("get_activity", {"activity_id": "meta/pack"}),
        ("get_skill", {"skill_id": "zzz"}),
        ("get_resource", {"workflow_id": "tour", "index": "99"}),
        ("get_template", {"workflow_id": "tour", "index": "99"}),
        ("list_skills", {"workflow_id": "zzz"}),
        ("list_templates", {"workflow_id": "zzz"}),
        ("validate_transition", {"workflow_id": "zzz", "from_activity": "a", "to_activity": "b"}),
    ],
)
async def test_what_does_not_exist_is_not_found(memory: Opens, tool: str, arguments: dict[str, Any]) -> None:
    async with memory() as play:
        reply = await play(tool, **arguments)

    assert reply.is_error
    assert "not found" in reply.text or "is not a valid id" in reply.text


@proves("navigator.definitions")
@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("pack", "visit", ""),
        ("pack", "home", ""),
        ("home", "workflow-end", ""),
        ("home", "pack", "No valid transition from 'home' to 'pack'."),
        ("pack", "zzz", "Activity not found: zzz."),
        ("zzz", "pack", "Activity not found: zzz."),
    ],
)
async def test_a_transition_is_checked_against_the_definition(memory: Opens, source: str, target: str, reason: str) -> None:
    async with memory() as play:
        found = await play("validate_transition", workflow_id="tour", from_activity=source, to_activity=target)

    assert found.json == ({"valid": False, "reason": reason} if reason else {"valid": True})


@proves("navigator.guidance")
async def test_activities_are_found_by_phrases_and_point_on(play: Player) -> None:
    index = (await play("get_activities")).json

    assert index["quick_match"]["go swimming"] == "swim"
    assert index["activities"][0]["id"] == "start-workflow"
    assert index["next_action"] == index["activities"][0]["next_action"]
    read = (await play("get_activity", activity_id="start-workflow")).json
    assert (read["workflowId"], read["name"]) == ("meta", "Start")
    assert (await play(read["next_action"]["tool"], **read["next_action"]["parameters"])).json["id"] == "leading"


@proves("navigator.guidance")
async def test_an_activity_that_two_workflows_have_is_matched_with_its_workflow(memory: Opens, library: Path) -> None:
    swim = "{id: swim, version: 1.0.0, name: Swim, recognition: [Do laps]}"
    (library / "pool.yaml").write_text(f"id: pool\nversion: 1.0.0\ntitle: Pool\nactivities: [{swim}]\n")
    async with memory() as play:
        matched = (await play("get_activities")).json["quick_match"]
        found = (await play("get_activity", activity_id=matched["do laps"])).json

    assert (matched["go swimming"], matched["do laps"], matched["make dinner"]) == ("camp/swim", "pool/swim", "cook")
    assert found["workflowId"] == "pool"


@proves("navigator.tools")
async def test_the_health_check_counts_what_is_listed(play: Player) -> None:
    listed = (await play("list_workflows")).json

    assert (await play("health_check")).json["workflows_available"] == len(listed)


@proves("navigator.guidance")
async def test_every_next_action_is_a_call_that_works(settings: Settings) -> None:
    async with playing(settings, bundled_root().path, dialect="navigator") as play:
        replies = [await play("get_activities"), await play("get_skills")]
        replies.append(await play("get_activity", activity_id="start-workflow"))
        calls = [call for reply in replies for call in next_actions(reply.json)]
        for call in calls:
            assert not (await play(call["tool"], **call["parameters"])).is_error, call

    assert len(calls) > 20


def next_actions(body: Any) -> list[dict[str, Any]]:
    if isinstance(body, list):
        return [found for one in body for found in next_actions(one)]
    if not isinstance(body, dict):
        return []
    own = [body["next_action"]] if "next_action" in body else []
    return own + [found for key, one in body.items() if key != "next_action" for found in next_actions(one)]


@proves("navigator.guidance")
async def test_a_skill_of_the_workflow_comes_before_the_universal_one(play: Player) -> None:
    own = (await play("get_skill", skill_id="packing", workflow_id="tour")).json
    universal = (await play("get_skill", skill_id="packing")).json
    lent = (await play("get_skill", skill_id="leading", workflow_id="tour")).json
    listed = (await play("list_skills", workflow_id="tour")).json
    index = (await play("get_skills")).json

    assert own["capability"] == "Pack lightly."
    assert universal["capability"] == "Pack for anything."
    assert lent["id"] == "leading"
    assert [one["id"] for one in listed["workflow"]] == ["packing"]
    assert [one["id"] for one in (await play("list_skills")).json] == ["leading", "packing"]
    assert [one["capability"] for one in index["universal"]] == ["Lead.", "Pack for anything."]
    assert list(index["workflow_specific"]) == ["tour"]


@proves("navigator.texts")
@pytest.mark.every_transport
async def test_resources_and_templates_are_listed_and_served_as_they_are(play: Player) -> None:
    resources = (await play("list_workflow_resources", workflow_id="tour")).json
    templates = (await play("list_templates", workflow_id="tour")).json

    assert resources == [
        {"index": "01", "name": "map", "title": "The map", "format": "markdown"},
        {"index": "02", "name": "tide", "title": "Tides", "format": "markdown"},
    ]
    assert templates == [{"index": "01", "name": "card", "title": "A postcard", "format": "markdown"}]
    text = (await play("get_resource", workflow_id="tour", index="01")).text
    assert text == "---\nid: map\nversion: 1.0.0\n---\n\n# The map\n\nNorth is up.\n"
    for name in ("01", "1", "card"):
        assert (
            await play("get_template", workflow_id="tour", index=name)
        ).text == "---\ntitle: A postcard\n---\n\nDear {name},\n"


@proves("navigator.texts")
@pytest.mark.parametrize("index", ["../resources/01", "../../tour/workflow.yaml", "meta/00", "/etc/passwd", ""])
async def test_nothing_outside_the_workflow_is_reached(memory: Opens, index: str) -> None:
    async with memory() as play:
        for tool in ("get_resource", "get_template"):
            assert (await play(tool, workflow_id="tour", index=index)).is_error


@proves("navigator.texts")
async def test_what_there_is_is_summarised_with_the_tool_that_serves_it(play: Player) -> None:
    found = (await play("discover_resources")).json

    assert found["templates"] == {"tool": "list_templates", "items": {"tour": 1}}
    assert found["resources"]["items"] == {"tour": 2}
    assert found["activities"]["count"] > 5
    assert {one["tool"] for one in found.values()} <= set(TOOLS)


@proves("navigator.texts")
async def test_the_bundled_workflows_have_templates_by_number(settings: Settings) -> None:
    library = Library([Root(bundled_root().path, "bundled")])
    async with playing(settings, bundled_root().path, dialect="navigator") as play:
        for workflow in ("hello", "work-package", "work-packages"):
            listed = json.loads((await play("list_templates", workflow_id=workflow)).text)
            assert listed
            for one in listed:
                assert one["index"].isdigit()
                served = (await play("get_template", workflow_id=workflow, index=one["index"])).text
                assert served.encode() == library.source("template", one["index"], workflow=workflow).content

"""The `gates` dialect from discovery to the end, over every way in."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fidelio.app.application import Application
from fidelio.definitions.library.search_path import bundled_root
from fidelio.settings import Settings
from fidelio.surfaces.mcp.dialects import load_tools
from tests.dialects.conftest import Opens, Player, playing
from tests.dialects.gates.conftest import answer_all, moved_to, one_block
from tests.support import proves
from tests.support.shared import shared

TOOLS = {
    "discover": ([], []),
    "list_workflows": ([], []),
    "health_check": ([], []),
    "start_session": (["workflow_id"], ["session_token", "agent_id", "parent_session_token"]),
    "get_workflow": (["session_token"], ["summary", "full"]),
    "next_activity": (
        ["session_token", "activity_id"],
        ["transition_condition", "step_manifest", "activity_manifest", "variables"],
    ),
    "get_checkpoint": (["session_token", "activity_id", "checkpoint_id"], []),
    "respond_checkpoint": (["session_token", "checkpoint_id"], ["option_id", "auto_advance", "condition_not_met"]),
    "get_skills": (["session_token"], ["full"]),
    "get_skill": (["session_token", "step_id"], ["full"]),
    "get_resource": (["session_token", "resource_index"], ["full"]),
    "get_trace": (["session_token"], ["trace_tokens", "after"]),
}


@proves("gates.tools")
def test_the_tools_are_those_of_the_contract(settings: Settings) -> None:
    described = {tool["name"]: tool["inputSchema"] for tool in load_tools("gates", Application(settings)).table.describe()}

    assert set(described) == set(TOOLS)
    for name, (required, optional) in TOOLS.items():
        schema = described[name]
        assert set(schema.get("required", [])) == set(required), name
        assert set(schema.get("properties", {})) == {*required, *optional}, name
    assert described["get_workflow"]["properties"]["summary"]["default"] is True


@proves("gates.tools")
def test_a_client_written_for_the_contract_finds_its_tools_and_parameters(settings: Settings) -> None:
    listed = shared("data", "transcripts", "gen001-tools-list.json")
    if listed is None:
        pytest.skip("the transcripts are not here")
    theirs = json.loads(listed.read_text())
    tools = theirs["result"]["tools"] if "result" in theirs else theirs.get("tools", theirs)
    ours = {tool["name"]: tool["inputSchema"] for tool in load_tools("gates", Application(settings)).table.describe()}

    for tool in tools:
        known = set(ours[tool["name"]].get("properties", {}))
        assert set(tool["inputSchema"]["properties"]) <= known, tool["name"]
        assert set(ours[tool["name"]].get("required", [])) == set(tool["inputSchema"].get("required", []))


@proves("gates.discover", "gates.one-json")
async def test_discovery_lists_the_workflows_and_says_how_to_begin(play: Player) -> None:
    found = one_block(await play("discover"))

    assert (found["server"], found["version"]) == ("fidelio", "0.1.0")
    assert found["available_workflows"] == [
        {"id": "score", "title": "The score", "version": "1.2.3"},
        {"id": "solo", "title": "A solo", "version": "1.0.0"},
    ]
    assert "start_session" in found["discovery"]


@proves("gates.discover")
async def test_discovery_explains_the_tools_there_are_whatever_the_library_has(
    memory: Opens, settings: Settings, library: Path
) -> None:
    shutil.rmtree(library / "meta")
    async with memory() as play, playing(settings, bundled_root().path, dialect="gates") as bundled:
        without_meta = (await play("discover")).json["discovery"]
        with_bundled = (await bundled("discover")).json["discovery"]

    for text in (without_meta, with_bundled):
        assert "respond_checkpoint" in text
        assert "yield_checkpoint" not in text
        assert "get_activity" not in text


@proves("gates.discover", "gates.one-json")
async def test_workflows_are_listed_with_their_description_and_without_meta(play: Player) -> None:
    listed = one_block(await play("list_workflows"))

    assert listed[0] == {"id": "score", "title": "The score", "version": "1.2.3", "description": "One of everything."}
    assert [entry["id"] for entry in listed] == ["score", "solo"]
    assert one_block(await play("health_check"))["workflows_available"] == 2


@proves("gates.start", "gates.one-json")
async def test_a_fresh_session_is_of_the_workflow_that_was_asked_for(play: Player) -> None:
    started = await play("start_session", workflow_id="score")

    about = {"id": "score", "version": "1.2.3", "title": "The score", "description": "One of everything."}
    assert one_block(started) == {"workflow": about, "session_token": started.text_token}
    assert (await play("start_session")).is_error
    empty = await play("start_session", workflow_id="score", session_token="")
    assert empty.is_error
    assert "`session_token`" in empty.text
    assert (await play("start_session", workflow_id="nothing")).is_error


@proves("gates.read", "gates.one-json")
async def test_the_workflow_is_read_as_a_summary_or_whole(play: Player) -> None:
    token = await play.start()
    summary, whole = [await play("get_workflow", session_token=token, summary=short) for short in (True, False)]

    keys = ["id", "version", "title", "description", "rules", "variables", "executionModel", "initialActivity", "activities"]
    assert list(one_block(summary)) == [*keys, "session_token"]
    assert summary.json["activities"][0] == {"id": "tune", "name": "Tune", "required": True}
    assert summary.json["initialActivity"] == "tune"
    assert [activity["id"] for activity in one_block(whole)["activities"]] == ["tune", "play", "bow"]
    assert whole.json["activities"][0]["checkpoints"][1]["blocking"] is False
    assert whole.json["skills"] == ["conduct"]
    assert whole.json["session_token"] == whole.text_token


@proves("gates.read")
async def test_the_bundled_workflows_say_who_carries_them_out(settings: Settings) -> None:
    async with playing(settings, bundled_root().path, dialect="gates") as play:
        names = [entry["id"] for entry in (await play("list_workflows")).json]
        found = [(await play("get_workflow", session_token=await play.start(name))).json for name in names]

    assert names
    assert all(workflow["executionModel"]["roles"] for workflow in found)


@proves("gates.read", "gates.one-json")
async def test_skills_name_their_resources_and_the_names_can_be_read(play: Player, settings: Settings) -> None:
    token = await play.start()
    skills = one_block(await play("get_skills", session_token=token))
    token = await moved_to(play, token, "tune")
    token = await answer_all(play, settings, token)
    skill = one_block(await play("get_skill", session_token=token, step_id="hear"))
    resource = one_block(await play("get_resource", session_token=token, resource_index="01"))

    assert skills["scope"] == "workflow"
    assert skills["skills"]["conduct"]["capability"] == "Lead the piece."
    assert skill["skill"]["_resources"] == [{"index": "01", "id": "pitch", "version": "2.0.0"}]
    assert "resources" not in skill["skill"]
    assert resource["resource"] == {
        "index": "01",
        "id": "pitch",
        "version": "2.0.0",
        "content": "# Pitch\n\nThe A is at 442 Hz.",
    }


@proves("gates.read")
async def test_all_skills_of_the_workflow_are_read_and_missing_ones_named(memory: Opens, library: Path) -> None:
    file = library / "score" / "workflow.yaml"
    file.write_text(file.read_text().replace("{primary: conduct}", "[session-protocol, listen, gone]"))
    async with memory() as play:
        token = await play.start()
        found = (await play("get_skills", session_token=token)).json
        whole = (await play("get_workflow", session_token=token, summary=False)).json

    assert whole["skills"] == ["session-protocol", "listen", "gone"]
    assert list(found["skills"]) == ["session-protocol", "listen"]
    assert found["skills"]["listen"]["_resources"] == [{"index": "01", "id": "pitch", "version": "2.0.0"}]
    assert "_resources" not in found["skills"]["session-protocol"]
    assert found["failed_skills"] == ["gone"]


@proves("gates.read")
async def test_a_resource_of_another_workflow_is_named_so_that_it_is_found(memory: Opens, library: Path) -> None:
    other = library / "other"
    for name, text in {
        "workflow.yaml": "id: other\nversion: 1.0.0\ntitle: Other\ninitialActivity: a\n"
        "activities: [{id: a, version: 1.0.0, name: A}]\n",
        "skills/01-far.yaml": "id: far\nversion: 1.0.0\ncapability: Far away.\nresources: ['07', '09']\n",
        "resources/07-map.md": "---\nid: map\nversion: 1.0.0\n---\n\nHere.\n",
    }.items():
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).write_text(text)
    file = library / "score" / "workflow.yaml"
    file.write_text(file.read_text().replace("{primary: conduct}", "[other/far]"))
    async with memory() as play:
        token = await play.start()
        (named,) = (await play("get_skills", session_token=token)).json["skills"]["other/far"]["_resources"]
        read = (await play("get_resource", session_token=token, resource_index=named["index"])).json

    assert named == {"index": "other/07", "id": "map", "version": "1.0.0"}
    assert read["resource"]["content"] == "Here."


@proves("gates.read")
async def test_a_skill_needs_an_activity_and_a_step_that_has_one(play: Player, settings: Settings) -> None:
    early = await play("get_skill", session_token=await play.start(), step_id="hear")
    token = await answer_all(play, settings, await play.at("tune"))
    unknown, without = [await play("get_skill", session_token=token, step_id=step) for step in ("nothing", "ask")]

    assert "No current activity" in early.text
    assert "hear, ask, soften, oil" in unknown.text
    assert without.is_error


@proves("gates.definition", "gates.one-json")
async def test_entering_delivers_the_definition_with_its_defaults_and_the_ways_on(play: Player) -> None:
    entered = await play("next_activity", session_token=await play.start(), activity_id="play", variables={"mood": "dark"})
    found = one_block(entered)

    assert (found["id"], found["name"], found["artifactPrefix"]) == ("play", "Play", "02")
    assert found["steps"] == [{"id": "begin", "name": "Begin", "required": True}]
    assert found["loops"][0]["maxIterations"] == 100
    assert found["transitions"] == [{"to": "bow", "isDefault": True}]
    assert found["pending_checkpoints"] == []
    assert entered.meta["transitions"] == [{"to": "bow", "holds": True, "default": True}]
    assert "trace_token" in entered.meta
    assert any("First activity must be 'tune'" in text for text in entered.warnings)
    assert found["warnings"] == entered.warnings


@proves("gates.definition")
async def test_empty_values_that_an_author_wrote_are_kept(memory: Opens, library: Path) -> None:
    file = library / "score" / "activities" / "02-play.yaml"
    file.write_text(file.read_text().replace('target: entered, value: "yes"', "target: parts, value: []"))
    async with memory() as play:
        entered = await play("next_activity", session_token=await play.start(), activity_id="play")

    assert entered.json["entryActions"] == [{"action": "set", "target": "parts", "value": []}]


@proves("gates.complete", "gates.definition")
@pytest.mark.every_transport
async def test_an_honest_walk_gets_no_warning_and_ends(play: Player, settings: Settings) -> None:
    token = await answer_all(play, settings, await play.at("tune"))
    tune = [{"step_id": step, "output": "done"} for step in ("hear", "ask")]
    there = await play(
        "next_activity",
        session_token=token,
        activity_id="play",
        transition_condition="loud == true",
        step_manifest=tune,
        activity_manifest=[{"activity_id": "tune", "outcome": "completed"}],
    )
    on = await play(
        "next_activity",
        session_token=there.token,
        activity_id="bow",
        transition_condition="default",
        step_manifest=[{"step_id": "begin", "output": "done"}],
    )
    ended = await play(
        "next_activity",
        session_token=on.token,
        activity_id="workflow-end",
        step_manifest=[{"step_id": "smile", "output": "done"}],
    )
    again = await play("next_activity", session_token=ended.token, activity_id="bow")

    assert [reply.warnings for reply in (there, on, ended)] == [[], [], []]
    assert (ended.json["status"], ended.json["name"]) == ("completed", "Completed")
    assert "trace_token" in ended.meta
    assert "completed" in again.text
    assert not (await play("get_workflow", session_token=ended.token)).is_error

"""The `sessions` dialect from discovery to the end, over every way in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from toon_format import decode

from tests.dialects.conftest import Opens, Player
from tests.support import proves


@proves("sessions.discover")
async def test_discovery_names_the_server_and_the_procedure(play: Player) -> None:
    found = await play("discover")

    assert found.text.splitlines()[0] == "server: fidelio"
    assert "start_session" in found.text
    assert "get_workflow" in found.text


@proves("sessions.discover")
async def test_discovery_works_without_a_meta_workflow(opens: Opens, library: Path) -> None:
    shutil.rmtree(library / "meta")
    async with opens() as play:
        found = await play("discover")

    assert not found.is_error
    assert "start_session" in found.text


@proves("sessions.discover")
async def test_workflows_are_listed_as_toon_without_meta(play: Player) -> None:
    listed = await play("list_workflows")

    assert decode(listed.text) == [
        {
            "id": "score",
            "title": "The score",
            "version": "1.2.3",
            "description": "One of everything.",
            "tags": ["test", "music"],
        },
        {"id": "solo", "title": "A solo", "version": "1.0.0", "description": "", "tags": []},
    ]
    assert (await play("health_check")).json["workflows_available"] == 2


@proves("sessions.start")
async def test_a_fresh_session_is_of_the_workflow_that_was_asked_for_and_else_of_meta(play: Player) -> None:
    asked, default = await play("start_session", workflow_id="score"), await play("start_session")

    assert asked.json["workflow"] == {
        "id": "score",
        "version": "1.2.3",
        "title": "The score",
        "description": "One of everything.",
    }
    assert default.json["workflow"]["id"] == "meta"
    assert asked.json["session_token"] == asked.text_token
    assert len(asked.token) < 320


@proves("sessions.read")
async def test_the_workflow_is_read_as_skill_separator_and_summary(play: Player) -> None:
    token = await play.start()
    skill, _, summary = (await play("get_workflow", session_token=token)).text.partition("\n\n---\n\n")
    workflow = decode(summary)

    assert "id: conduct" in skill
    assert isinstance(workflow, dict)
    assert workflow["initialActivity"] == "tune"
    assert [activity["id"] for activity in workflow["activities"]] == ["tune", "play", "bow"]
    assert workflow["rules"] == ["Play what is written."]


@proves("sessions.read")
async def test_what_a_workflow_does_not_have_is_null_in_its_summary(opens: Opens, library: Path) -> None:
    file = library / "solo.yaml"
    file.write_text(file.read_text().replace("name: Alone", f"name: Alone, description: {'It is long. ' * 20}"))
    async with opens() as play:
        summary = decode((await play("get_workflow", session_token=await play.start("solo"))).text)

    assert isinstance(summary, dict)
    assert list(summary)[:5] == ["id", "version", "title", "description", "rules"]
    assert (summary["description"], summary["rules"]) == (None, [])


@proves("sessions.read")
async def test_the_whole_file_skills_and_resources_can_be_read(play: Player) -> None:
    token = await play.at("tune")
    whole = await play("get_workflow", session_token=token, summary=False)
    skills = await play("get_skills", session_token=token)
    step = await play("get_skill", session_token=token, step_id="hear")
    resource = await play("get_resource", session_token=step.token, resource_id="1")

    assert "\n\nid: score\n" in whole.text
    assert skills.text.startswith("scope: workflow\nsession_token: ")
    assert "capability: Lead the piece." in skills.text
    assert "\n\nid: listen\n" in step.text
    assert resource.text.splitlines()[:3] == ["resource_id: 1", "id: pitch", "version: 2.0.0"]
    assert resource.text.endswith("The A is at 442 Hz.")


CHOIR = """
id: choir
version: 1.0.0
title: A choir
initialActivity: breathe
activities:
  - {id: breathe, version: 1.0.0, name: Breathe, steps: [{id: in, name: In, skill: score/listen}], transitions: [{to: sing}]}
  - {id: sing, version: 1.0.0, name: Sing, skills: {primary: sing}, transitions: [{to: rest}]}
  - {id: rest, version: 1.0.0, name: Rest}
"""


@proves("sessions.skill-association")
async def test_a_resource_found_by_the_skill_of_another_activity_is_warned_of(opens: Opens, library: Path) -> None:
    (library / "choir.yaml").write_text(CHOIR)
    warnings = {}
    async with opens() as play:
        token = (await play("next_activity", session_token=await play.start("choir"), activity_id="breathe")).token
        token = (await play("get_skill", session_token=token, step_id="in")).token
        for activity in ("breathe", "sing", "rest"):
            token = (await play("next_activity", session_token=token, activity_id=activity)).token
            found = await play("get_resource", session_token=token, resource_id="1")
            warnings[activity] = found.meta["validation"]["warnings"]
        spelt_out = await play("get_resource", session_token=token, resource_id="score/1")

    (warning,) = warnings.pop("sing")
    assert warning.startswith("Skill 'score/listen', which was loaded last, is none of activity 'sing'.")
    assert (warnings, spelt_out.meta["validation"]["warnings"]) == ({"breathe": [], "rest": []}, [])


@proves("sessions.walk", "sessions.complete")
@pytest.mark.every_transport
async def test_an_honest_walk_has_no_warning_and_ends_completed(play: Player) -> None:
    token = await play.at("tune")
    token = (await play("yield_checkpoint", session_token=token, checkpoint_id="how")).json["checkpoint_handle"]
    token = (await play("respond_checkpoint", checkpoint_handle=token, option_id="forte")).json["checkpoint_handle"]
    token = (await play("resume_checkpoint", session_token=token)).token
    tuned = [{"step_id": "hear", "output": "442 Hz"}, {"step_id": "ask", "output": "forte"}]
    entered = await play(
        "next_activity",
        session_token=token,
        activity_id="play",
        transition_condition="loud == true",
        step_manifest=tuned,
        variables={"parts": ["violin", "viola"]},
    )
    played = [{"step_id": "begin", "output": "done"}, {"step_id": "bar", "output": "1"}, {"step_id": "bar", "output": "2"}]
    await play.do_solo(entered.token)
    bowed = await play(
        "next_activity", session_token=entered.token, activity_id="bow", transition_condition="default", step_manifest=played
    )
    end = await play(
        "next_activity",
        session_token=bowed.token,
        activity_id="workflow-end",
        step_manifest=[{"step_id": "smile", "output": "wide"}],
        activity_manifest=[{"activity_id": "tune", "outcome": "completed", "transition_condition": "loud == true"}],
    )
    status = (await play("get_workflow_status", session_token=end.token)).json

    assert [reply.warnings for reply in (entered, bowed, end)] == [[], [], []]
    assert (status["status"], status["current_activity"]) == ("completed", "none")
    assert status["completed_activities"] == ["tune", "play", "bow"]
    assert status["variables"] == {"loud": True, "parts": ["violin", "viola"], "entered": "yes"}
    assert (await play("get_trace", session_token=end.token)).json["event_count"] > 0


@proves("sessions.complete")
async def test_a_completed_session_can_be_read_but_not_moved(play: Player) -> None:
    token = await play.at("bow")
    token = (await play("next_activity", session_token=token, activity_id="__terminal__")).token

    moved = await play("next_activity", session_token=token, activity_id="tune")

    assert moved.is_error
    assert "completed" in moved.text
    assert not (await play("get_workflow", session_token=token)).is_error


@proves("sessions.errors")
async def test_what_does_not_exist_is_an_error_that_says_what_does(play: Player) -> None:
    token = await play.at("tune")
    calls = {
        "Tool sing not found": play("sing"),
        "nope": play("start_session", workflow_id="nope"),
        "Activity not found: coda": play("next_activity", session_token=token, activity_id="coda"),
        "Checkpoint not found: x in activity tune. Its checkpoints are: how, encore, cold, conductor": play(
            "yield_checkpoint", session_token=token, checkpoint_id="x"
        ),
        "Its steps are: hear, ask, soften, oil": play("get_skill", session_token=token, step_id="x"),
        "has no skill": play("get_skill", session_token=token, step_id="ask"),
        "Resource not found: 99": play("get_resource", session_token=token, resource_id="99"),
        "No current activity": play("get_activity", session_token=await play.start()),
    }
    for phrase, call in calls.items():
        reply = await call
        assert reply.is_error, phrase
        assert phrase in reply.text


@proves("sessions.errors")
@pytest.mark.every_transport
async def test_missing_and_wrong_arguments_name_the_field(play: Player) -> None:
    missing = await play("get_workflow")
    wrong = await play("next_activity", session_token=await play.start(), activity_id=7)
    extra = await play("health_check", foo=1)

    assert missing.is_error
    assert "session_token" in missing.text
    assert wrong.is_error
    assert "activity_id" in wrong.text
    assert not extra.is_error


@proves("library.listed-ids", "sessions.start")
async def test_a_workflow_is_started_and_carried_out_by_the_id_that_is_listed(memory: Opens, library: Path) -> None:
    (library / "score").rename(library / "foo")
    async with memory() as play:
        listed = (await play("list_workflows")).text
        entered = await play("next_activity", session_token=await play.start("foo"), activity_id="tune")
        status = (await play("get_workflow_status", session_token=entered.token)).json

    assert "foo" in listed
    assert "score" not in listed.lower().replace("the score", "")
    assert (entered.warnings, status["workflow"]["id"], status["current_activity"]) == ([], "foo", "tune")

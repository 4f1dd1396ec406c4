"""Skills and resources that a session has loaded, after their files have changed or vanished."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fidelio.settings import Settings
from tests.dialects.conftest import Player, playing
from tests.support import proves
from tests.workflows.conftest import list_events

WALK = """
id: walk
version: 1.0.0
title: Walk
initialActivity: out
activities: [{id: out, version: 1.0.0, name: Out, steps: [{id: go, name: Go}]}]
"""


async def load_both(play: Player) -> str:
    token = await play.at("tune")
    token = (await play("get_skill", session_token=token)).token
    return (await play("get_resource", session_token=token, resource_id="01")).token


def change(library: Path) -> None:
    for name in ("skills/02-listen.yaml", "resources/01-pitch.md"):
        file = library / "score" / name
        file.write_text(file.read_text().replace("Listen", "Sing").replace("442", "415"))


def remove(library: Path) -> None:
    for name in ("skills/02-listen.yaml", "resources/01-pitch.md"):
        (library / "score" / name).unlink()


@proves("snapshot.content")
@pytest.mark.parametrize(("fidelity", "pitch", "verb"), [("enforce", "442", "Listen"), ("advise", "415", "Sing")])
async def test_a_changed_text_is_new_only_where_moves_are_advised(
    settings: Settings, library: Path, fidelity: Any, pitch: str, verb: str
) -> None:
    async with playing(settings, library, fidelity=fidelity) as play:
        token = await load_both(play)
        change(library)
        resource = await play("get_resource", session_token=token, resource_id="1")
        skill = await play("get_skill", session_token=token, step_id="hear")

    assert f"{pitch} Hz" in resource.text
    assert f"{verb} before you play" in skill.text
    assert any("Resource '1' has changed since this session loaded it." in warning for warning in resource.warnings)
    assert any("Skill 'listen' has changed since this session loaded it." in warning for warning in skill.warnings)


@proves("snapshot.content")
@pytest.mark.parametrize("fidelity", ["advise", "enforce"])
@pytest.mark.parametrize("restart", [False, True])
async def test_a_text_whose_file_has_vanished_is_served_from_the_ledger(
    settings: Settings, library: Path, fidelity: Any, restart: bool
) -> None:
    async with playing(settings, library, fidelity=fidelity) as play:
        token = await load_both(play)
        before = await play("get_resource", session_token=token, resource_id="01")
        remove(library)
        reply = await play("get_resource", session_token=token, resource_id="01")
    if restart:
        async with playing(settings, library, fidelity=fidelity) as play:
            reply = await play("get_resource", session_token=token, resource_id="01")

    assert reply.text.partition("\n\n")[2] == before.text.partition("\n\n")[2]
    assert "The text that this session loaded before is used." in reply.warnings[-1]


@proves("snapshot.content")
async def test_skills_of_the_workflow_are_kept_too(settings: Settings, library: Path) -> None:
    async with playing(settings, library) as play:
        token = (await play("get_workflow", session_token=await play.at("tune"))).token
        (library / "score/skills/01-conduct.yaml").unlink()
        skills = await play("get_skills", session_token=token)
    stored = await list_events(settings, "content.loaded")

    assert "Lead the piece." in skills.text
    assert [list(event.body["loaded"]) for event in stored] == [["skill conduct"]]


@proves("snapshot.content")
async def test_the_navigator_serves_what_it_has_loaded(settings: Settings, library: Path) -> None:
    (library / "walk/resources").mkdir(parents=True)
    (library / "walk/workflow.yaml").write_text(WALK)
    shutil.copy(library / "score/resources/01-pitch.md", library / "walk/resources")
    async with playing(settings, library, dialect="navigator", fidelity="enforce") as play:
        state = (await play("nav_start", workflow_id="walk")).json["state"]
        for _ in range(2):
            reply = await play("nav_action", state=state, action="get_resource", index="01")
            state = reply.json["state"]
            shutil.rmtree(library / "walk", ignore_errors=True)

    assert "442 Hz" in reply.json["resource"]["content"]
    assert "The text that this session loaded before is used." in reply.warnings[-1]


@proves("snapshot.never-loaded")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
async def test_a_text_that_was_never_loaded_is_missing_and_the_session_goes_on(
    settings: Settings, library: Path, dialect: str
) -> None:
    argument = "resource_id" if dialect == "sessions" else "resource_index"
    async with playing(settings, library, dialect=dialect) as play:
        token = (await play("start_session", workflow_id="score")).token
        token = (await play("next_activity", session_token=token, activity_id="bow")).token
        remove(library)
        missing = await play("get_resource", session_token=token, **{argument: "01"})
        ended = await play("next_activity", session_token=token, activity_id="__terminal__")

    assert missing.is_error
    assert "this session has not loaded it before: Resource not found" in missing.text
    assert "the session can still move and end" in missing.text
    assert not ended.is_error

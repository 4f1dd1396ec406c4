"""Sessions that stand in an activity which is gone from a definition that is there: their end is as unchecked as without it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fidelio.settings import Settings
from tests.dialects.conftest import Opens, Player, Reply, playing
from tests.dialects.test_deleted_definitions import UNCHECKED, ended_by_person, events
from tests.support import proves

Loses = Callable[[Path], None]
DIALECTS = ["sessions", "gates", "navigator"]
LOST = "The current activity 'first' was deleted from the definition, so its transitions are unknown."
SPOILT = "The current activity 'first' can no longer be read, so its transitions are unknown."
PERSON = "Put its files back. Where moves are enforced a session does not end unchecked, unless a person ends it: "


def without_any(activities: Path) -> None:
    shutil.rmtree(activities)


def without_its_own(activities: Path) -> None:
    (activities / "01-first.yaml").unlink()


def with_it_spoilt(activities: Path) -> None:
    (activities / "01-first.yaml").write_text("id: [\n")


def beginning_with_the_end(activities: Path) -> None:
    without_its_own(activities)
    (activities.parent / "workflow.yaml").write_text("id: two\nversion: 1.0.0\ntitle: Two\ninitialActivity: __terminal__\n")


@pytest.fixture
def activities(library: Path) -> Path:
    """Those of a workflow that has two; the second ends it."""
    folder = library / "two/activities"
    folder.mkdir(parents=True)
    (library / "two/workflow.yaml").write_text("id: two\nversion: 1.0.0\ntitle: Two\ninitialActivity: first\n")
    (folder / "01-first.yaml").write_text(
        "id: first\nversion: 1.0.0\nname: First\nsteps: [{id: work, name: Work}]\ntransitions: [{to: second}]\n"
    )
    (folder / "02-second.yaml").write_text(
        "id: second\nversion: 1.0.0\nname: Second\nsteps: [{id: rest, name: Rest}]\ntransitions: [{to: workflow-end}]\n"
    )
    return folder


async def entered(play: Player, dialect: str) -> str:
    """What opens a session in the first of them."""
    if dialect == "navigator":
        return str(json.loads((await play("nav_start", workflow_id="two")).text)["state"])
    token = (await play("start_session", workflow_id="two")).token
    return (await play("next_activity", session_token=token, activity_id="first")).token


async def end(play: Player, dialect: str, token: str, **more: Any) -> Reply:
    if dialect == "navigator":
        return await play("nav_action", state=token, action="transition", activity_id="__terminal__", **more)
    return await play("next_activity", session_token=token, activity_id="__terminal__", **more)


@proves("gone.place", "gone.enforce", "gone.person")
@pytest.mark.parametrize("loses", [without_any, without_its_own, with_it_spoilt, beginning_with_the_end])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_to_delete_the_activity_is_no_way_around_what_it_asks_for(
    settings: Settings, library: Path, activities: Path, dialect: str, loses: Loses
) -> None:
    async with playing(settings, library, dialect=dialect, fidelity="enforce") as play:
        token = await entered(play, dialect)
        loses(activities)
        refused = await end(play, dialect, token)
        (begun,) = await events(settings, "session.started")
        still = await events(settings, "session.completed")
        ended = await ended_by_person(settings, library, begun.session)
    (completed,) = await events(settings, "session.completed")

    sentence = SPOILT if loses is with_it_spoilt else LOST
    assert refused.is_error
    assert refused.text == f"{sentence} {PERSON}fidelio sessions --end {begun.session}."
    assert still == []
    assert ended.warnings == (f"{sentence} {UNCHECKED}",)
    assert completed.body["without_definition"]["by"] == "person:test"


@proves("gone.place", "gone.end", "gone.unchecked")
@pytest.mark.parametrize("loses", [without_any, without_its_own, with_it_spoilt])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_agent_that_is_only_advised_ends_it_and_the_record_says_that_nobody_has_checked(
    settings: Settings, library: Path, activities: Path, dialect: str, loses: Loses
) -> None:
    async with playing(settings, library, dialect=dialect) as play:
        token = await entered(play, dialect)
        loses(activities)
        ended = await end(play, dialect, token, variables={"mood": "sad"})
    (completed,) = await events(settings, "session.completed")

    assert not ended.is_error
    assert completed.body["warnings"] == [
        f"{SPOILT if loses is with_it_spoilt else LOST} {UNCHECKED}",
        "Variables [mood] were not taken: nothing says whether they fit.",
    ]
    assert completed.body["without_definition"]["by"] == "agent:orchestrator"


@proves("gone.place")
async def test_another_name_of_the_end_is_the_end_there_too(memory: Opens, settings: Settings, activities: Path) -> None:
    async with memory() as play:
        token = await entered(play, "sessions")
        without_its_own(activities)
        ended = await play("next_activity", session_token=token, activity_id="workflow-end")
    (completed,) = await events(settings, "session.completed")

    assert ended.json["status"] == "completed"
    assert "without_definition" in completed.body


@proves("gone.place", "gone.questions")
async def test_a_question_that_waits_there_has_to_be_answered_first(memory: Opens, library: Path) -> None:
    async with memory() as play:
        handle = (await play("yield_checkpoint", session_token=await play.at("tune"), checkpoint_id="how")).token
        without_any(library / "score/activities")
        refused = await end(play, "sessions", handle)

    assert refused.is_error
    assert refused.text.startswith("Cannot end the session: 1 unresolved checkpoint in activity 'tune': [how].")


@proves("gone.place")
async def test_who_has_entered_nothing_yet_has_lost_no_place(memory: Opens, settings: Settings, activities: Path) -> None:
    async with memory(fidelity="enforce") as play:
        token = await play.start("two")
        without_any(activities)
        ended = await end(play, "sessions", token)
    (completed,) = await events(settings, "session.completed")

    assert ended.json["status"] == "completed"
    assert "without_definition" not in completed.body

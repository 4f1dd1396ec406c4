"""An agent has the tools and nothing else: whatever the bundled texts refer to, the tools give it, and it is what was meant.

A text of `meta` is read in the sessions of all workflows, where a bare number means another file. So it names whose it is.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fidelio.definitions import META
from fidelio.settings import load_settings
from tests.bundled.reading import ALL, BUNDLED, library, skills, steps, texts, workflow
from tests.dialects.conftest import Player, playing
from tests.support import proves
from tests.support.shared import advised_copy

# Fields that name a skill; the tests ask the tools for those. Anywhere else a skill's name would lead nowhere.
STRUCTURE = re.compile(r"^\s*(?:- )?(?:id|skill|primary): .*$|\{primary: .*\}$", re.MULTILINE)
NUMBERED = re.compile(r"\b[Rr]esource `?((?:[\w-]+/)?\d+)|\b((?:meta|hello|work-packages?)/\d+)\b")
TEMPLATES = re.compile(r"\btemplates/[\w.-]*\w")


@pytest.fixture
async def play(tmp_path: Path) -> AsyncIterator[Player]:
    async with playing(load_settings(environ={"FIDELIO_HOME": str(tmp_path / "home")}), BUNDLED) as player:
        yield player


def served(name: str) -> dict[str, str]:
    """What agents get to read; a README is for people."""
    found = texts(name, ".", "activities", "skills", "resources", "templates")
    return {path: text for path, text in found.items() if path != "README.md"}


def references(name: str) -> set[str]:
    """Everything that the texts of a workflow send a reader to, as they word it."""
    written = "\n".join(served(name).values())
    numbers = {one or other for one, other in NUMBERED.findall(written)}
    listed = {reference for skill in skills(name).values() for reference in skill.resources}
    modes = {mode.resource for mode in workflow(name).modes if mode.resource}
    return numbers | listed | modes | set(TEMPLATES.findall(written))


def meant(reference: str, name: str) -> str | None:
    """The id of what a text of this workflow means."""
    if reference.startswith("templates/"):
        return library().template(reference.removeprefix("templates/"), workflow=name).definition.id
    return library().resource(reference, workflow=name).definition.id


def all_skills() -> Iterator[str]:
    return (skill for name in ALL for skill in skills(name))


@proves("bundled.followable")
@pytest.mark.parametrize("read_in", ALL)
@pytest.mark.parametrize("name", ALL)
async def test_get_resource_gives_what_a_text_refers_to(play: Player, name: str, read_in: str) -> None:
    token = await play.start(read_in)
    followed = references(name) if name in (read_in, META) else set()
    assert followed or name not in (read_in, META)

    for reference in followed:
        reply = await play("get_resource", session_token=token, resource_id=reference)
        assert not reply.is_error, f"{reference}: {reply.text}"
        assert f"\nid: {meant(reference, name)}\n" in f"\n{reply.text}", reference


@proves("bundled.followable")
@pytest.mark.parametrize("name", ALL)
async def test_the_tools_give_every_skill_that_a_workflow_or_an_activity_or_a_step_names(tmp_path: Path, name: str) -> None:
    settings = load_settings(environ={"FIDELIO_HOME": str(tmp_path / "home")})
    async with playing(settings, advised_copy(BUNDLED, tmp_path)) as play:
        await check_skills(play, name)


async def check_skills(play: Player, name: str) -> None:
    """Enters each activity in a session of its own, because nothing is done there."""
    token = await play.start(name)
    primary = library().skill(workflow(name).skills.primary or "", workflow=name).definition
    assert f"\nid: {primary.id}\n" in (await play("get_skills", session_token=token)).text

    for activity in workflow(name).activities:
        token = await play.start(name)
        token = (await play("next_activity", session_token=token, activity_id=activity.id)).token
        wanted = {step.id: step.skill for step in steps(activity) if step.skill}
        for step, skill in wanted.items():
            assert f"\nid: {skill}\n" in (await play("get_skill", session_token=token, step_id=step)).text
        if activity.skills.primary:
            assert f"\nid: {activity.skills.primary}\n" in (await play("get_skill", session_token=token)).text
        assert {*activity.skills.supporting} <= {*wanted.values()}, activity.id


@proves("bundled.followable")
@pytest.mark.parametrize("name", ALL)
def test_no_sentence_sends_a_reader_to_a_skill_by_its_name(name: str) -> None:
    named = re.compile(rf"(?<![\w-])({'|'.join(skill for skill in all_skills() if '-' in skill)})(?![\w-])")
    prose = {path: STRUCTURE.sub("", text) for path, text in served(name).items()}

    assert {path: named.findall(text) for path, text in prose.items() if named.search(text)} == {}


@proves("bundled.followable")
def test_the_steps_that_a_skill_of_meta_is_to_be_read_for_have_one() -> None:
    text = " ".join(texts(META, "skills")["skills/03-workflow-execution.yaml"].split())
    named = set(re.findall(r"\b(?:step|those of|and) ([a-z]+-[a-z]+)\b", text))
    with_skill = {step.id for activity in workflow(META).activities for step in steps(activity) if step.skill}

    assert {"choose-workflow", "open-session", "reopen-session", "lead-through"} <= named <= with_skill


@proves("bundled.followable")
async def test_a_worker_is_told_by_the_tools_alone_how_to_work(play: Player) -> None:
    brief = library().resource("01", workflow=META).definition.content
    (page,) = re.findall(r'get_resource with "([\w/]+)"', brief)
    token = await play.start("work-package")

    worker = (await play("start_session", session_token=token, agent_id="worker-1")).token
    text = (await play("get_resource", session_token=worker, resource_id=page)).text

    called = ("get_activity", "get_skill", "get_resource", "yield_checkpoint", "resume_checkpoint")
    assert [tool for tool in called if f"`{tool}`" not in text] == []

"""What counts as gone: only what was looked for where it came from, and where the system lets anybody look."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.ledger import open_ledger
from fidelio.settings import Settings, load_settings
from fidelio.surfaces.mcp.dialects import load_tools
from fidelio.workflows import start as starting
from fidelio.workflows.report import report_session
from tests.definitions.test_library_errors import withheld
from tests.dialects.conftest import Opens, playing
from tests.dialects.gates.conftest import payload
from tests.dialects.sample_workflow import write_sample_workflow
from tests.dialects.test_deleted_definitions import deleted, end, events, spoilt
from tests.support import proves
from tests.support.tool_calls import call_tool

Spoils = Callable[[Path], None]
NOT_HERE = "This server does not search the directory that the definition of this session came from."


def without_it(other: Path) -> None:
    deleted(other, "score")


def with_a_spoilt_one(other: Path) -> None:
    spoilt(other, "score")


def without_the_activity(other: Path) -> None:
    (other / "score/activities/01-tune.yaml").unlink()


def without_activities(other: Path) -> None:
    shutil.rmtree(other / "score/activities")


@proves("reach.place")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
@pytest.mark.parametrize("lacks", [without_it, with_a_spoilt_one, without_the_activity, without_activities])
async def test_a_server_that_looks_elsewhere_ends_nothing(
    settings: Settings, library: Path, tmp_path: Path, lacks: Spoils, dialect: str
) -> None:
    other = write_sample_workflow(tmp_path / "other")
    lacks(other)
    async with playing(settings, library) as play, playing(settings, other, dialect=dialect) as elsewhere:
        token = await play.at("tune")
        refused = await end(elsewhere, token)
        goes_on = await play("get_activity", session_token=token)
    called = [event.body["err"] for event in await events(settings, "tool.called") if event.body["s"] == "error"]

    assert refused.is_error
    assert NOT_HERE in refused.text
    assert "(`--workflows DIR`)" in refused.text
    assert str(tmp_path) not in refused.text
    assert called == ["definition.out-of-reach"]
    assert not goes_on.is_error
    assert await events(settings, "session.completed") == []


@proves("reach.place")
async def test_one_who_is_led_is_told_that_nobody_looks_there(settings: Settings, library: Path, tmp_path: Path) -> None:
    other = write_sample_workflow(tmp_path / "other")
    deleted(other, "solo")
    led = {"dialect": "navigator"}
    async with playing(settings, library, **led) as play, playing(settings, other, **led) as elsewhere:
        state = (await play("nav_start", workflow_id="solo")).json["state"]
        looked = await elsewhere("nav_situation", state=state)
        refused = await elsewhere("nav_action", state=state, action="transition", activity_id="__terminal__")
        goes_on = await play("nav_situation", state=state)

    assert looked.is_error
    assert NOT_HERE in looked.text
    assert NOT_HERE in refused.text
    assert not goes_on.is_error
    assert await events(settings, "session.completed") == []


@proves("reach.place")
async def test_what_hides_the_definition_is_not_what_came_of_it(settings: Settings, library: Path, tmp_path: Path) -> None:
    """The place is on the search path and has the workflow; a later one has a file of the same name that cannot be read."""
    other = write_sample_workflow(tmp_path / "other")
    spoilt(other, "solo")
    async with playing(settings, library) as play:
        token = await play.start("solo")
    async with Application(settings, [str(library), str(other)]) as house:
        done: Any = await call_tool(
            load_tools("sessions", house), "next_activity", {"session_token": token, "activity_id": "__terminal__"}
        )

    assert done.is_error
    assert NOT_HERE in done.text


@proves("reach.same-place")
async def test_a_place_is_the_same_however_it_is_written(settings: Settings, library: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(library)
    async with playing(settings, tmp_path / "current") as play:
        token = await play.start("solo")
    deleted(library, "solo")
    async with playing(settings, library / ".." / library.name) as play:
        ended = await end(play, token)

    assert ended.json["status"] == "completed"


@proves("reach.same-place")
async def test_workflows_of_the_home_that_were_deleted_with_their_directory_are_gone(settings: Settings) -> None:
    own = write_sample_workflow(settings.home.workflows)
    async with Application(settings) as house:
        started: Any = await call_tool(load_tools("sessions", house), "start_session", {"workflow_id": "solo"})
    shutil.rmtree(own)
    ending = {"session_token": started.meta["session_token"], "activity_id": "__terminal__"}
    async with Application(settings) as house:
        tools = load_tools("sessions", house)
        await call_tool(tools, "get_workflow", {"session_token": ending["session_token"]})
        write_sample_workflow(own)
        # Opened while it was missing, this server does not see what has come back: it must not say that it is gone.
        not_yet: Any = await call_tool(tools, "next_activity", ending)
        shutil.rmtree(own)
        ended: Any = await call_tool(tools, "next_activity", ending)

    assert NOT_HERE in not_yet.text
    assert not ended.is_error, ended.text


@proves("reach.older")
async def test_nobody_can_tell_whether_an_older_session_has_lost_its_definition(
    memory: Opens, library: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(starting, "encode_root", lambda _: "")
    async with memory() as play:
        token = await play.at("tune")
        goes_on = await play("get_activity", session_token=token)
        deleted(library, "score")
        refused = await end(play, token)

    assert not goes_on.is_error
    assert "The record does not say where the definition came from" in refused.text
    assert f"fidelio sessions --end {payload(token)['sid']}" in refused.text
    assert await events(settings, "session.completed") == []


@proves("reach.faults")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
@pytest.mark.parametrize(
    ("function", "place"),
    [
        ("scandir", "."),
        ("scandir", "score"),
        ("open", "score/workflow.yaml"),
        ("scandir", "score/activities"),
        ("open", "score/activities/01-tune.yaml"),
    ],
)
async def test_a_passing_fault_ends_nothing(
    settings: Settings, library: Path, monkeypatch: pytest.MonkeyPatch, function: str, place: str, dialect: str
) -> None:
    async with playing(settings, library) as play, playing(settings, library, dialect=dialect) as again:
        token = await play.at("tune")
        begun = await play.start()
        with monkeypatch.context() as fault:
            withheld(fault, function, library / place, errno.EMFILE)
            refused = [await end(player, one) for player in (play, again) for one in (token, begun)]
        goes_on = await play("get_activity", session_token=token)

    assert all(one.is_error and "Too many open files" in one.text for one in refused)
    assert not any(str(library) in one.text for one in refused)
    assert not goes_on.is_error
    assert await events(settings, "session.completed") == []


@proves("reach.private")
async def test_a_state_does_not_say_where_a_server_keeps_its_files(settings: Settings, library: Path) -> None:
    async with Application(settings, [str(library)]) as house:
        reply: Any = await call_tool(load_tools("navigator", house), "nav_start", {"workflow_id": "solo"})
        claims: Any = (await house.workflows()).unit.open_token(json.loads(reply.text)["state"])
    async with await open_ledger(settings.ledger) as ledger:
        report = await report_session(ledger, claims.sid)
    (carried,) = claims.carried_sessions()

    assert (carried.record.workflow, carried.record.found_in) == ("solo", "")
    assert report.found_in == str(library)


@proves("reach.place")
async def test_a_session_that_came_from_another_server_goes_by_the_place_where_it_goes_on(
    settings: Settings, library: Path, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    there.mkdir()
    elsewhere = load_settings(environ={"FIDELIO_HOME": str(there)})
    shutil.copytree(library, here)
    async with playing(settings, library, dialect="navigator") as play:
        state = (await play("nav_start", workflow_id="solo")).json["state"]
    settings.home.keys.rename(elsewhere.home.keys)
    async with playing(elsewhere, here, dialect="navigator") as play:
        state = (await play("nav_situation", state=state)).json["state"]
        deleted(here, "solo")
        ended = await play("nav_action", state=state, action="transition", activity_id="__terminal__")
    (restored,) = await events(elsewhere, "session.restored")

    assert restored.body["record"]["found_in"] == str(here)
    assert ended.json["success"]


@proves("reach.report")
async def test_a_parent_tells_that_a_child_was_ended_without_its_definition(
    memory: Opens, library: Path, settings: Settings
) -> None:
    async with memory() as play:
        parent = await play.at("play")
        child = (await play("start_session", workflow_id="solo", parent_session_token=parent)).token
        deleted(library, "solo")
        await end(play, child)
    async with await open_ledger(settings.ledger) as ledger:
        report = await report_session(ledger, payload(parent)["sid"])

    name = f"solo ({payload(child)['sid']})"
    said = f"play: Its child {name} was ended without its definition: its result was not checked."
    assert said in report.differences

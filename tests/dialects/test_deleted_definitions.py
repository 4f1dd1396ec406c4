"""Sessions whose definition was deleted or cannot be read any more: how they end, and what every other call says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.inbox import Inbox
from fidelio.ledger import open_ledger
from fidelio.ledger.model import Event, Request
from fidelio.settings import Settings
from fidelio.workflows.moves import MoveResult
from fidelio.workflows.unit_of_work import CallResult
from tests.dialects.conftest import Opens, Player, Reply, playing
from tests.dialects.gates.conftest import payload
from tests.support import proves

Takes = Callable[[Path, str], None]
GONE = "The definition of this session was deleted: Workflow not found: "
BROKEN = "The definition of this session was deleted: "
UNCHECKED = "The session was ended without it: its completion was not checked."
WAY_OUT = "Put its files back, or end the session with `__terminal__`."
ASKS = """
id: solo
version: 1.0.0
title: Solo
initialActivity: alone
activities:
  - id: alone
    version: 1.0.0
    name: Alone
    checkpoints: [{id: how, name: How, message: How?, options: [{id: loud, label: Loud}]}]
"""


def deleted(library: Path, workflow: str) -> None:
    shutil.rmtree(library / workflow, ignore_errors=True)
    (library / f"{workflow}.yaml").unlink(missing_ok=True)


def spoilt(library: Path, workflow: str) -> None:
    folder = library / workflow
    (folder / "workflow.yaml" if folder.is_dir() else library / f"{workflow}.yaml").write_text("id: [\n")


async def end(play: Player, token: str, **more: Any) -> Reply:
    return await play("next_activity", session_token=token, activity_id="__terminal__", **more)


async def ended_by_person(settings: Settings, library: Path, session: str) -> CallResult[MoveResult]:
    async with Application(settings, (str(library),)) as house:
        return await (await house.workflows()).moves.end(session, by="person:test")


async def events(settings: Settings, *types: str) -> list[Event]:
    async with await open_ledger(settings.ledger) as ledger:
        return list(await ledger.events(types=types))


async def requests(settings: Settings) -> list[Request]:
    async with await open_ledger(settings.ledger) as ledger:
        return list((await ledger.requests(state=None)).items)


@proves("gone.end")
@pytest.mark.parametrize("takes", [deleted, spoilt])
async def test_a_child_whose_workflow_is_gone_can_be_ended_and_its_parent_goes_on(
    memory: Opens, library: Path, settings: Settings, takes: Takes
) -> None:
    async with memory() as play:
        parent = await play.at("play")
        child = (await play("start_session", workflow_id="solo", parent_session_token=parent)).token
        child = (await play("next_activity", session_token=child, activity_id="alone", variables={"mood": "sad"})).token
        takes(library, "solo")
        ended = await end(play, child)
        waited = await play("get_workflow_status", session_token=parent)
        moved = await play("next_activity", session_token=parent, activity_id="bow")
    (finished,) = await events(settings, "child.finished")

    (warning,) = ended.warnings
    assert warning.startswith(GONE if takes is deleted else BROKEN)
    assert warning.endswith(UNCHECKED)
    assert str(library) not in ended.text
    assert (ended.json["status"], ended.json["activity_id"], ended.json["transitions"]) == ("completed", "__terminal__", [])
    assert ended.meta["trace_token"]
    assert "suspended_by" not in waited.json
    assert moved.json["activity_id"] == "bow"
    assert (finished.body["outcome"], finished.body["variables"]) == ("without-definition", {"mood": "sad"})


@proves("gone.end")
@pytest.mark.parametrize("takes", [deleted, spoilt])
async def test_where_questions_come_at_the_door_the_end_is_the_same(settings: Settings, library: Path, takes: Takes) -> None:
    async with playing(settings, library, dialect="gates") as play:
        token = (await play("start_session", workflow_id="solo")).token
        token = (await play("next_activity", session_token=token, activity_id="alone")).token
        takes(library, "solo")
        elsewhere = await play("next_activity", session_token=token, activity_id="alone")
        ended = await end(play, token)

    assert elsewhere.is_error
    assert elsewhere.text.endswith(WAY_OUT)
    assert (ended.json["name"], ended.json["status"]) == ("Completed", "completed")
    assert ended.warnings[0].endswith(UNCHECKED)


@proves("gone.end")
async def test_what_has_ended_without_its_definition_has_ended(memory: Opens, library: Path, settings: Settings) -> None:
    async with memory() as play:
        token = await play.at("tune")
        deleted(library, "score")
        token = (await end(play, token)).token
        again = await end(play, token)
        trace = await play("get_trace", session_token=token)
        status = await play("get_workflow_status", session_token=token)
        read = await play("get_workflow", session_token=token)
    (completed,) = await events(settings, "session.completed")

    assert "This session is completed." in again.text
    assert status.json["status"] == "completed"
    assert trace.json["events"][-2]["vw"] == completed.body["warnings"]
    assert completed.body["without_definition"]["by"] == "agent:orchestrator"
    assert completed.body["from"] == "tune"
    assert read.text == f"{GONE}score. Put its files back."


@proves("gone.moves")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("next_activity", {"activity_id": "play"}),
        ("next_activity", {"activity_id": "workflow-end"}),
        ("get_workflow", {}),
        ("get_activity", {}),
        ("get_skills", {}),
        ("get_skill", {}),
        ("get_resource", {"resource_id": "01"}),
        ("yield_checkpoint", {"checkpoint_id": "how"}),
    ],
)
async def test_every_other_call_says_that_the_definition_is_gone_and_what_to_do(
    memory: Opens, library: Path, settings: Settings, tool: str, arguments: dict[str, Any]
) -> None:
    async with memory() as play:
        token = await play.at("tune")
        deleted(library, "score")
        refused = await play(tool, session_token=token, **arguments)
        started = await play("start_session", workflow_id="solo", parent_session_token=token)
    called = (await events(settings, "tool.called"))[-1]

    assert refused.is_error
    assert refused.text == started.text == f"{GONE}score. {WAY_OUT}"
    assert (called.body["name"], called.body["err"]) == (tool, "definition.gone")


@proves("gone.moves")
async def test_a_question_of_a_lost_definition_is_not_answered_by_a_model(memory: Opens, library: Path) -> None:
    async with memory() as play:
        token = await play.at("tune")
        handle = (await play("yield_checkpoint", session_token=token, checkpoint_id="how")).token
        deleted(library, "score")
        presented = await play("present_checkpoint", checkpoint_handle=handle)
        answered = await play("respond_checkpoint", checkpoint_handle=handle, option_id="forte")

    assert presented.text == answered.text
    assert answered.text.startswith(f"{GONE}score. Put its files back. A person can answer what waits")


@proves("gone.moves")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
async def test_a_session_without_its_definition_can_be_taken_over(settings: Settings, library: Path, dialect: str) -> None:
    async with playing(settings, library, dialect=dialect) as play:
        first = (await play("start_session", workflow_id="solo")).token
        await play("next_activity", session_token=first, activity_id="alone")
        deleted(library, "solo")
        stale = await end(play, first)
        taken = await play("start_session", workflow_id="solo", session_token=first)
        ended = await end(play, taken.token)

    assert "Continue it with start_session and this token" in stale.text
    assert taken.json["workflow"]["id"] == "solo"
    assert taken.warnings == [f"{GONE}solo. {WAY_OUT}"]
    assert ended.json["status"] == "completed"


@proves("gone.moves")
async def test_once_the_files_are_back_the_session_goes_on_as_it_was(memory: Opens, library: Path) -> None:
    kept = (library / "solo.yaml").read_text()
    async with memory() as play:
        token = await play.start("solo")
        deleted(library, "solo")
        refused = await play("next_activity", session_token=token, activity_id="alone")
        (library / "solo.yaml").write_text(kept)
        moved = await play("next_activity", session_token=token, activity_id="alone")
        ended = await end(play, moved.token)

    assert refused.is_error
    assert (moved.warnings, ended.warnings) == ([], [])


@proves("gone.enforce")
@pytest.mark.parametrize("whose", ["server", "session"])
async def test_where_moves_are_enforced_no_agent_ends_what_nobody_can_check(
    memory: Opens, library: Path, settings: Settings, whose: str
) -> None:
    async with memory(fidelity="enforce" if whose == "server" else "advise") as play:
        token = await play.start("solo", fidelity="enforce" if whose == "session" else "advise")
        token = (await play("next_activity", session_token=token, activity_id="alone")).token
        deleted(library, "solo")
        refused = await end(play, token)
        status = await play("get_workflow_status", session_token=token)
    (begun,) = await events(settings, "session.started")

    assert refused.is_error
    assert refused.text == (
        f"{GONE}solo. Put its files back. Where moves are enforced a session does not end unchecked, "
        f"unless a person ends it: fidelio sessions --end {begun.session}."
    )
    assert status.json["status"] == "active"


async def asked_how(play: Player, library: Path, dialect: str) -> str:
    """A session that waits for the answer to its one question."""
    (library / "solo.yaml").write_text(ASKS)
    token = (await play("start_session", workflow_id="solo")).token
    token = (await play("next_activity", session_token=token, activity_id="alone")).token
    if dialect == "sessions":
        token = (await play("yield_checkpoint", session_token=token, checkpoint_id="how")).token
    return token


@proves("gone.questions")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
async def test_a_question_is_not_got_rid_of_with_the_file(settings: Settings, library: Path, dialect: str) -> None:
    async with playing(settings, library, dialect=dialect) as play:
        token = await asked_how(play, library, dialect)
        deleted(library, "solo")
        refused = await end(play, token)
        (request,) = await requests(settings)
        async with await open_ledger(settings.ledger) as ledger:
            await Inbox(ledger).answer(request.id, "loud", by="person:test", channel="cli")
        ended = await end(play, token)

    assert refused.is_error
    assert refused.text == (
        "Cannot end the session: 1 unresolved checkpoint in activity 'alone': [how]. "
        f"A person can answer what waits as it was asked: fidelio answer {request.id} OPTION. "
        f"A person can also end the session as it is: fidelio sessions --end {request.session}."
    )
    assert request.state == "open"
    assert ended.json["status"] == "completed"


@proves("gone.questions", "gone.withdrawn")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
async def test_a_question_that_was_withdrawn_takes_no_answer_once_the_files_are_back(
    settings: Settings, library: Path, dialect: str
) -> None:
    async with playing(settings, library, dialect=dialect) as play:
        token = await asked_how(play, library, dialect)
        deleted(library, "solo")
        ended = await ended_by_person(settings, library, payload(token)["sid"])
        (library / "solo.yaml").write_text(ASKS)
        handle = {"checkpoint_handle": token} if dialect == "sessions" else {"session_token": token, "checkpoint_id": "how"}
        answered = await play("respond_checkpoint", **handle, option_id="loud")
        waved = await play("respond_checkpoint", **handle, condition_not_met=True)
    (request,) = await requests(settings)

    assert ended.warnings[1:] == ("Checkpoint 'how' was not answered: the end of the session has withdrawn it.",)
    assert (request.state, request.answered_by, request.channel) == ("dismissed", "person:test", "cli")
    assert answered.is_error
    assert waved.text == answered.text
    assert answered.text.startswith("Checkpoint 'how' was withdrawn: the session ended before it was answered.")


@proves("gone.unchecked")
async def test_what_nobody_can_check_is_not_taken(memory: Opens, library: Path, settings: Settings) -> None:
    done = [{"step_id": "hear", "output": "An A."}]
    async with memory() as play:
        token = await play.at("tune")
        deleted(library, "score")
        ended = await end(play, token, variables={"loud": True, "mood": "sad"}, step_manifest=done)
        status = await play("get_workflow_status", session_token=ended.token)
    (completed,) = await events(settings, "session.completed")

    assert ended.warnings[1:] == ["Variables [loud, mood] were not taken: nothing says whether they fit."]
    assert status.json["variables"] == {}
    assert completed.body["manifest"] == done

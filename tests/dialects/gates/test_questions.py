"""What people read: questions with their values put in, reports that lose nothing, and errors that name no machine."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fidelio.app.application import Application
from fidelio.ledger import open_ledger
from fidelio.ledger.model import Request
from fidelio.settings import Settings, load_settings
from fidelio.surfaces.mcp.dialects import load_tools
from fidelio.toolkit import AskPerson
from fidelio.workflows.report import report_session
from tests.dialects.conftest import Player, playing
from tests.support import proves
from tests.support.tool_calls import call_tool

WARD = """
id: ward
version: 1.0.0
title: The ward
variables:
  - {name: files, type: array}
  - {name: file, type: string}
  - {name: place, type: string, defaultValue: attic}
  - {name: cleared, type: boolean}
initialActivity: clear
activities:
  - id: clear
    version: 1.0.0
    name: Clear
    checkpoints:
      - id: sure
        name: Sure?
        message: "Delete {file} in the {place}? {unknown}"
        answered_by: person
        options:
          - {id: y, label: "Delete {file}", description: "{file} is gone then.", effect: {setVariable: {cleared: true}}}
          - {id: n, label: Keep}
"""
LOOPED = WARD.replace(
    "    checkpoints:",
    "    loops:\n"
    "      - {id: each, name: Each, type: forEach, over: files, variable: file,\n"
    "         steps: [{id: burn, name: B, checkpoint: sure}]}\n"
    "    checkpoints:",
)
FILLED = "Delete a.txt in the attic? {unknown}"


async def only_request(settings: Settings) -> Request:
    async with await open_ledger(settings.ledger) as ledger:
        (found,) = (await ledger.requests()).items
        return found


async def asked_in_sessions(play: Player) -> None:
    token = (await play("next_activity", session_token=await play.start("ward"), activity_id="clear")).token
    await play("yield_checkpoint", session_token=token, checkpoint_id="sure", variables={"file": "a.txt"})


async def asked_in_gates(play: Player) -> None:
    token = await play.start("ward")
    await play("next_activity", session_token=token, activity_id="clear", variables={"file": "a.txt"})


async def asked_in_navigator(play: Player) -> None:
    started = await play("nav_start", workflow_id="ward", initial_variables={"files": ["a.txt", "b.txt"]})
    await play("nav_action", state=started.json["state"], action="advance_loop", loop_id="each")


@proves("gates.filled")
@pytest.mark.parametrize(
    ("dialect", "text", "ask"),
    [("sessions", WARD, asked_in_sessions), ("gates", WARD, asked_in_gates), ("navigator", LOOPED, asked_in_navigator)],
)
async def test_a_person_is_asked_with_the_values_that_are_known(
    settings: Settings, library: Path, dialect: str, text: str, ask: Callable[[Player], Awaitable[None]]
) -> None:
    (library / "ward.yaml").write_text(text)
    async with playing(settings, library, dialect=dialect) as play:
        await ask(play)
    request = await only_request(settings)
    async with await open_ledger(settings.ledger) as ledger:
        report = await report_session(ledger, request.session)

    assert request.question == FILLED
    assert [one["label"] for one in request.options] == ["Delete a.txt", "Keep"]
    assert request.options[0]["description"] == "a.txt is gone then."
    assert [answer.question for answer in report.visits[0].answers] == [FILLED]


@proves("gates.filled", "gates.person")
async def test_the_client_of_a_person_shows_the_same_question(settings: Settings, library: Path) -> None:
    (library / "ward.yaml").write_text(WARD)
    async with playing(settings, library, dialect="gates") as play:
        await asked_in_gates(play)
    session = (await only_request(settings)).session
    async with Application(settings, [str(library)]) as house:
        answer = {"session_token": session, "checkpoint_id": "sure", "option_id": "y"}
        question = await call_tool(load_tools("gates", house), "respond_checkpoint", answer)

    assert isinstance(question, AskPerson)
    assert question.message == FILLED
    assert [(one.label, one.description) for one in question.options] == [("Delete a.txt", "a.txt is gone then."), ("Keep", "")]


@proves("gates.restored-report", "gates.report")
async def test_the_report_of_a_restored_session_has_the_answer_given_here_and_what_it_set(
    settings: Settings, library: Path, tmp_path: Path
) -> None:
    (library / "ward.yaml").write_text(LOOPED.replace("answered_by: person", "required: true"))
    elsewhere = load_settings(environ={"FIDELIO_HOME": str(tmp_path / "other"), "FIDELIO_MIN_RESPONSE_SECONDS": "0"})
    async with playing(settings, library, dialect="navigator") as play:
        started = await play("nav_start", workflow_id="ward", initial_variables={"files": ["a.txt"]})
        reached = await play("nav_action", state=started.json["state"], action="advance_loop", loop_id="each")
    shutil.copy2(settings.home.keys, elsewhere.home.ensure().keys)
    async with playing(elsewhere, library, dialect="navigator") as play:
        answer = {"action": "respond_to_checkpoint", "checkpoint_id": "sure", "option_id": "y"}
        assert (await play("nav_action", state=reached.json["state"], **answer)).json["success"]
    async with await open_ledger(elsewhere.ledger) as ledger:
        (session,) = (await ledger.sessions()).items
        report = await report_session(ledger, session.id)

    (given,) = report.visits[0].answers
    assert (given.question, given.state, given.option) == (FILLED, "answered", "y")
    assert report.variables["cleared"] is True


@proves("gates.places")
@pytest.mark.parametrize(
    ("dialect", "tool"), [("sessions", "start_session"), ("gates", "start_session"), ("navigator", "nav_start")]
)
async def test_an_error_names_a_file_from_its_library_on(settings: Settings, library: Path, dialect: str, tool: str) -> None:
    (library / "torn.yaml").write_text("id: torn\nversion: [")
    async with playing(settings, library, dialect=dialect) as play:
        refused = await play(tool, workflow_id="torn")

    assert refused.is_error
    assert "torn.yaml" in refused.text
    assert str(library.parent) not in refused.text

"""What a model cannot get around: the answer of a person, the question before a step, the pass of a loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fidelio.inbox import Inbox
from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from fidelio.workflows.report import Report, report_session
from tests.dialects.conftest import Opens, Player, playing
from tests.support import proves

DEPLOY = """
id: deploy
version: 1.0.0
title: Deploy
initialActivity: decide
variables: [{name: approved, type: boolean}, {name: files, type: array}]
activities:
  - id: decide
    version: 1.0.0
    name: Decide
    steps: [{id: ask, name: Ask, checkpoint: ok}]
    loops:
      - id: each
        name: Each
        type: forEach
        variable: file
        over: files
        steps: [{id: delete, name: Delete it, checkpoint: really}]
    checkpoints:
      - id: ok
        name: Deploy?
        message: Deploy?
        answered_by: person
        options:
          - {id: y, label: Yes, effect: {setVariable: {approved: true}}}
          - {id: n, label: No, effect: {setVariable: {approved: false}}}
      - id: really
        name: Really?
        message: Delete it?
        required: true
        options: [{id: y, label: Yes}, {id: n, label: No}]
    transitions:
      - {to: live, condition: {type: simple, variable: approved, operator: "==", value: true}}
      - {to: stop, isDefault: true}
  - {id: live, version: 1.0.0, name: Live}
  - {id: stop, version: 1.0.0, name: Stop}
"""
ASKED = [{"step_id": "ask", "output": "asked"}]
DELETED = {"step_id": "delete", "output": "deleted"}


@pytest.fixture
def deploying(library: Path) -> None:
    (library / "deploy.yaml").write_text(DEPLOY)


async def refuse(play: Player, settings: Settings, *, yields: bool = True) -> str:
    """A session in which the person has said no; the token of the worker."""
    token = (await play("start_session", workflow_id="deploy")).token
    token = (await play("next_activity", session_token=token, activity_id="decide")).token
    if yields:
        await play("yield_checkpoint", session_token=token, checkpoint_id="ok")
    async with await open_ledger(settings.ledger) as ledger:
        request = next(one for one in (await ledger.requests()).items if one.detail["checkpoint"] == "ok")
        await Inbox(ledger).answer(request.id, "n", by="person:a", channel="cli")
    return token


async def reported(settings: Settings) -> Report:
    async with await open_ledger(settings.ledger) as ledger:
        (session,) = (await ledger.sessions()).items
        return await report_session(ledger, session.id)


@proves("sessions.answers-stay", "sessions.enforce")
@pytest.mark.usefixtures("deploying")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("next_activity", {"activity_id": "live", "step_manifest": ASKED, "transition_condition": "approved == true"}),
        ("yield_checkpoint", {"checkpoint_id": "really"}),
        ("resume_checkpoint", {}),
    ],
)
async def test_where_it_is_enforced_a_model_does_not_change_what_a_person_has_answered(
    memory: Opens, settings: Settings, tool: str, arguments: dict[str, Any]
) -> None:
    async with memory(fidelity="enforce") as play:
        token = await refuse(play, settings)
        changed = await play(tool, session_token=token, variables={"approved": True}, **arguments)
        status = (await play("get_workflow_status", session_token=token)).json
        repeated = await play("resume_checkpoint", session_token=token, variables={"approved": False})
        again = await play(tool, session_token=token, variables={"approved": True}, **arguments)

    assert changed.is_error
    assert "set by the answer to checkpoint 'ok'" in changed.text
    assert (status["current_activity"], status["variables"]["approved"]) == ("decide", False)
    assert not repeated.is_error
    assert again.is_error


@proves("gates.answers-stay", "navigator.answers-stay")
@pytest.mark.usefixtures("deploying")
async def test_no_dialect_lets_a_model_change_it(settings: Settings, library: Path) -> None:
    async with playing(settings, library, dialect="gates", fidelity="enforce") as play:
        token = await refuse(play, settings, yields=False)
        answer = {"checkpoint_id": "really", "option_id": "y"}
        token = (await play("respond_checkpoint", session_token=token, **answer)).token
        by_gates = await play(
            "next_activity", session_token=token, activity_id="live", step_manifest=ASKED, variables={"approved": True}
        )
    async with playing(settings, library, dialect="navigator", fidelity="enforce") as play:
        act = {"action": "complete_step", "step_id": "ask", "output": "x", "variables": {"approved": True}}
        by_navigator = await play("nav_action", state=token, **act)

    assert "set by the answer" in by_gates.text
    assert "set by the answer" in by_navigator.text
    assert by_gates.is_error
    assert by_navigator.is_error


@proves("sessions.answers-stay", "sessions.report")
@pytest.mark.usefixtures("deploying")
async def test_where_it_is_only_advised_a_model_changes_nothing_and_the_report_shows_that_it_tried(
    memory: Opens, settings: Settings
) -> None:
    async with memory() as play:
        token = await refuse(play, settings)
        resumed = await play("resume_checkpoint", session_token=token, variables={"approved": True})
        status = (await play("get_workflow_status", session_token=token)).json
        moved = await play(
            "next_activity", session_token=token, activity_id="live", step_manifest=ASKED, variables={"approved": True}
        )
    report = await reported(settings)

    assert "set by the answer to checkpoint 'ok'" in resumed.warnings[0]
    assert status["variables"]["approved"] is False
    assert [way["holds"] for way in status["transitions"] if way["to"] == "live"] == [False]
    assert any("does not hold" in warning for warning in moved.warnings)
    assert f"decide: {resumed.warnings[0]}" in report.differences
    assert report.set_by["approved"].startswith("checkpoint:decide/ok")


@proves("sessions.person")
@pytest.mark.usefixtures("deploying")
async def test_the_demand_for_a_person_outlives_the_definition(memory: Opens, library: Path) -> None:
    async with memory() as play:
        token = (await play("start_session", workflow_id="deploy")).token
        token = (await play("next_activity", session_token=token, activity_id="decide")).token
        handle = (await play("yield_checkpoint", session_token=token, checkpoint_id="ok")).token
        (library / "deploy.yaml").write_text(DEPLOY.replace("        answered_by: person\n", ""))
        answer = await play("respond_checkpoint", checkpoint_handle=handle, option_id="y")

    assert answer.is_error
    assert "person" in answer.text


@proves("sessions.person")
async def test_the_demand_of_one_server_holds_on_another(settings: Settings, library: Path) -> None:
    async with playing(settings, library, person=True) as play:
        token = (await play("start_session", workflow_id="score")).token
        token = (await play("next_activity", session_token=token, activity_id="tune")).token
        handle = (await play("yield_checkpoint", session_token=token, checkpoint_id="how")).token
    async with playing(settings, library) as play:
        answer = await play("respond_checkpoint", checkpoint_handle=handle, option_id="forte")

    assert answer.is_error
    assert "person" in answer.text


@proves("sessions.enforce")
@pytest.mark.usefixtures("deploying")
async def test_a_server_that_enforces_does_so_in_every_session(settings: Settings, library: Path) -> None:
    async with playing(settings, library) as play:
        token = (await play("start_session", workflow_id="deploy")).token
    async with playing(settings, library, fidelity="enforce") as play:
        skipped = await play("next_activity", session_token=token, activity_id="live")

    assert skipped.is_error


@proves("sessions.enforce")
@pytest.mark.usefixtures("deploying")
async def test_where_it_is_enforced_every_pass_of_a_loop_is_asked_about(memory: Opens, settings: Settings) -> None:
    async with memory(fidelity="enforce") as play:
        token = await refuse(play, settings)
        move = {"activity_id": "stop", "variables": {"files": ["x", "y"]}}
        never = await play("next_activity", session_token=token, step_manifest=[*ASKED, DELETED], **move)
        handles = []
        for _ in range(2):
            yielded = await play("yield_checkpoint", session_token=token, checkpoint_id="really")
            handles.append(yielded.json["checkpoint_handle"])
            assert "already_resolved" not in yielded.json
            await play("respond_checkpoint", checkpoint_handle=handles[-1], option_id="y")
            again = await play("yield_checkpoint", session_token=token, checkpoint_id="really")
            assert again.json["already_resolved"], "a yield whose reply was lost is repeated"
        too_often = await play("next_activity", session_token=token, step_manifest=[*ASKED, *[DELETED] * 3], **move)
        moved = await play("next_activity", session_token=token, step_manifest=[*ASKED, *[DELETED] * 2], **move)

    assert "its checkpoint 'really' has not been answered" in never.text
    assert "asked only 2 times" in too_often.text
    assert never.is_error
    assert too_often.is_error
    assert moved.warnings == []


@proves("sessions.answer-once")
@pytest.mark.usefixtures("deploying")
async def test_an_answer_from_elsewhere_is_told_before_the_next_pass_is_asked_about(memory: Opens, settings: Settings) -> None:
    async with memory() as play:
        token = await refuse(play, settings)
        await play("yield_checkpoint", session_token=token, checkpoint_id="really")
        async with await open_ledger(settings.ledger) as ledger:
            (request,) = (await ledger.requests()).items
            await Inbox(ledger).answer(request.id, "y", by="person:a", channel="cli")
        told = await play("yield_checkpoint", session_token=token, checkpoint_id="really")
        asked = await play("yield_checkpoint", session_token=token, checkpoint_id="really")

    assert (told.json["already_resolved"], told.json["resolved_option"]) == (True, "y")
    assert "already_resolved" not in asked.json

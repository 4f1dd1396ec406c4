"""One session in several dialects: begun in one, continued in another, in the middle of a checkpoint and of a loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fidelio.ledger import open_ledger
from fidelio.settings import Settings
from fidelio.workflows.report import Report, report_session
from tests.dialects.conftest import Player, playing
from tests.dialects.navigator.conftest import Guide
from tests.dialects.navigator.test_loops import at_the_visit
from tests.support import proves

STOPS = ["mill", "well"]


@dataclass(frozen=True)
class Three:
    """Three servers over one ledger, each with its dialect, as three agents would start them."""

    sessions: Player
    gates: Player
    navigator: Player

    def guide(self, token: str = "") -> Guide:
        return Guide(self.navigator, token)

    async def handle(self, token: str) -> str:
        return str((await self.gates("get_trace", session_token=token)).json["traceId"])


@pytest.fixture
async def three(settings: Settings, library: Path) -> AsyncIterator[Three]:
    async with (
        playing(settings, library) as sessions,
        playing(settings, library, dialect="gates") as gates,
        playing(settings, library, dialect="navigator") as navigator,
    ):
        yield Three(sessions, gates, navigator)


@proves("navigator.across")
async def test_a_checkpoint_reached_in_navigator_is_answered_in_sessions(three: Three) -> None:
    guide = await three.guide().start("tour")
    await guide.step("list", "shine")
    status = await three.sessions("get_workflow_status", session_token=guide.state)
    held = await three.sessions("next_activity", session_token=guide.state, activity_id="home")
    presented = await three.sessions("present_checkpoint", checkpoint_handle=guide.state)
    answered = await three.sessions("respond_checkpoint", checkpoint_handle=guide.state, option_id="big")
    resumed = await three.sessions("resume_checkpoint", session_token=guide.state)

    assert (status.json["status"], status.json["open_checkpoint"]) == ("blocked", "size")
    assert "Active checkpoint 'size'" in held.text
    assert "Which bag" in presented.text
    assert answered.json["resolved_option"] == "big"
    assert resumed.json["variables"] == {"calm": True}
    assert (await guide.look()).required == [("complete_step", "ask")]


@proves("navigator.across")
async def test_a_checkpoint_yielded_in_sessions_is_answered_in_navigator(three: Three) -> None:
    token = await three.sessions.start("tour")
    token = (await three.sessions("next_activity", session_token=token, activity_id="pack")).token
    token = (await three.sessions("yield_checkpoint", session_token=token, checkpoint_id="size")).token
    guide = await three.guide(token).look()
    assert guide.required == [("respond_to_checkpoint", "size")]
    assert guide.blocked[("complete_step", "list")]
    await guide.say("size", "small")
    resumed = await three.sessions("resume_checkpoint", session_token=token)

    assert resumed.json["option_id"] == "small"
    assert guide.required == [("complete_step", "list")]
    await guide.step("list", "ask")
    assert guide.required == [("transition", "home")]


@proves("navigator.across")
async def test_a_pass_begun_in_navigator_goes_on_after_a_look_and_an_answer_in_sessions(three: Three) -> None:
    guide = await at_the_visit(three.guide(), stops=STOPS)
    await guide.advance("each")
    await guide.step("look")
    handle = await three.handle(guide.token)
    status = (await three.sessions("get_workflow_status", session_token=handle)).json
    assert status["current_activity"] == "visit"
    await three.sessions("respond_checkpoint", session_token=handle, option_id="good")
    assert not (await three.sessions("get_activity", session_token=guide.state)).is_error

    await guide.look()
    assert guide.last["position"]["loop"]["iteration"] == 1
    await guide.step("note")
    await guide.advance("each")
    await guide.step("look")
    assert guide.last["checkpoint"]["message"] == "How was well?"
    moved = await three.sessions("respond_checkpoint", checkpoint_handle=guide.state, option_id="enough")
    assert moved.json["resolved_option"] == "enough"
    await guide.step("note")
    left = await three.sessions("next_activity", session_token=guide.state, activity_id="home")
    assert left.json["activity_id"] == "home"
    assert left.warnings == []
    assert (await three.guide(handle).look()).place() == ("tour", "home", "rest")


@proves("navigator.across")
async def test_a_question_of_a_loop_that_sessions_has_answered_is_not_asked_again_in_that_pass(three: Three) -> None:
    token = await three.sessions.start("tour")
    variables = {"stops": STOPS, "calm": True}
    first = await three.sessions("next_activity", session_token=token, activity_id="pack", variables=variables)
    token = (await three.sessions("next_activity", session_token=first.token, activity_id="visit")).token
    yielded = await three.sessions("yield_checkpoint", session_token=token, checkpoint_id="rate")
    await three.sessions("respond_checkpoint", checkpoint_handle=yielded.token, option_id="good")
    await three.sessions("resume_checkpoint", session_token=token)

    guide = await three.guide(token).look()
    await guide.advance("each")
    await guide.step("look", "note")
    await guide.advance("each")
    await guide.step("look")
    assert guide.required == [("respond_to_checkpoint", "rate")]


@proves("navigator.across")
async def test_steps_completed_in_navigator_need_no_manifest_in_sessions(three: Three) -> None:
    guide = await three.guide().start("tour")
    await guide.step("list")
    await guide.say("size", "small")
    early = await three.sessions("next_activity", session_token=guide.state, activity_id="pack")
    assert early.warnings == []
    await guide.step("ask")
    moved = await three.sessions("next_activity", session_token=guide.state, activity_id="home")
    assert moved.warnings == []
    unreported = await three.sessions("next_activity", session_token=moved.token, activity_id="workflow-end")
    assert "No step_manifest" in unreported.warnings[0]


@proves("navigator.across")
async def test_a_checkpoint_reached_in_navigator_is_answered_in_gates(three: Three) -> None:
    guide = await three.guide().start("tour")
    await guide.step("list", "shine")
    held = await three.gates("get_workflow", session_token=guide.state)
    answered = await three.gates("respond_checkpoint", session_token=guide.state, checkpoint_id="size", option_id="big")

    assert "unresolved checkpoint" in held.text
    assert answered.json["remaining_checkpoints"] == []
    assert (await guide.look()).required == [("complete_step", "ask")]


@proves("navigator.across")
async def test_what_gates_arms_holds_navigator_until_it_is_answered(three: Three) -> None:
    token = (await three.gates("start_session", workflow_id="ward")).token
    token = (await three.gates("next_activity", session_token=token, activity_id="door")).token
    guide = await three.guide(token).look()
    assert guide.required == [("respond_to_checkpoint", "open")]
    assert guide.last["checkpoint"]["answered_by"] == "person"
    await three.gates("respond_checkpoint", session_token=guide.state, checkpoint_id="slow", option_id="wait")
    dismissed = {"checkpoint_id": "cold", "condition_not_met": True}
    await three.gates("respond_checkpoint", session_token=guide.state, **dismissed)

    assert (await guide.look()).required == [("respond_to_checkpoint", "open")]


@proves("navigator.across")
async def test_a_loop_goes_on_in_gates_and_back(three: Three) -> None:
    guide = await at_the_visit(three.guide(), stops=STOPS)
    await guide.advance("each")
    await guide.step("look")
    answer = {"checkpoint_id": "rate", "option_id": "good"}
    assert not (await three.gates("respond_checkpoint", session_token=guide.state, **answer)).is_error
    await guide.step("note")
    await guide.advance("each")
    assert guide.last["position"]["loop"]["iteration"] == 2
    await guide.step("look")
    held = await three.gates("next_activity", session_token=guide.state, activity_id="home")
    assert "unresolved checkpoint" in held.text
    assert not (await three.gates("respond_checkpoint", session_token=guide.state, **answer)).is_error
    entered = await three.gates("next_activity", session_token=guide.state, activity_id="home")
    assert not entered.is_error

    back = await three.guide(entered.token).look()
    assert back.place() == ("tour", "home", "rest")


@proves("navigator.across")
async def test_a_loop_begun_in_gates_goes_on_in_navigator(three: Three) -> None:
    token = (await three.gates("start_session", workflow_id="tour")).token
    variables = {"stops": STOPS, "calm": True}
    first = await three.gates("next_activity", session_token=token, activity_id="pack", variables=variables)
    answer = {"checkpoint_id": "size", "option_id": "big"}
    token = (await three.gates("respond_checkpoint", session_token=first.token, **answer)).token
    token = (await three.gates("next_activity", session_token=token, activity_id="visit")).token

    guide = await three.guide(token).look()
    await guide.say("rate", "good")
    await guide.advance("each")
    await guide.step("look", "note")
    assert guide.required == [("advance_loop", "each")]


@proves("navigator.across")
async def test_every_kind_of_token_is_accepted_in_every_dialect(three: Three) -> None:
    guide = await three.guide().start("camp")
    handle = await three.handle(guide.token)
    for token in (guide.state, guide.token, handle):
        for tool in ("get_workflow_status", "get_workflow", "get_skills", "get_trace"):
            assert not (await three.sessions(tool, session_token=token)).is_error
        assert not (await three.sessions("start_session", session_token=token)).is_error
        assert not (await three.gates("get_trace", session_token=token)).is_error
        assert not (await three.gates("start_session", session_token=token, workflow_id="camp")).is_error
        assert (await three.guide(token).look()).place() == ("camp", None, None)
    trace = (await three.sessions("get_trace", session_token=handle)).json
    assert [call["name"] for call in trace["events"]][:1] == ["nav_start"]
    assert "nav_situation" in [call["name"] for call in trace["events"]]


@proves("navigator.trace")
async def test_the_report_is_the_same_whichever_dialect_was_spoken(three: Three, settings: Settings) -> None:
    await in_navigator(three.guide())
    await in_sessions(three.sessions, arming=False)
    await in_sessions(three.gates, arming=True)
    async with await open_ledger(settings.ledger) as ledger:
        sessions = [event.session for event in await ledger.events(types=["session.started"])]
        led, free, armed = [told(await report_session(ledger, session)) for session in sessions]

    assert led == free == armed
    assert led["visits"][0]["done"] == [{"step_id": "list", "output": "a list"}, {"step_id": "ask", "output": "asked"}]


async def in_navigator(guide: Guide) -> None:
    await guide.start("tour")
    await guide.step("list", output="a list")
    await guide.say("size", "small")
    await guide.step("ask", output="asked")
    await guide.go("home")
    await guide.step("rest", output="rested")
    await guide.go("workflow-end")


async def in_sessions(play: Player, *, arming: bool) -> None:
    token = (await play("start_session", workflow_id="tour")).token
    token = (await play("next_activity", session_token=token, activity_id="pack")).token
    if arming:
        answer = {"checkpoint_id": "size", "option_id": "small"}
        token = (await play("respond_checkpoint", session_token=token, **answer)).token
    else:
        token = (await play("yield_checkpoint", session_token=token, checkpoint_id="size")).token
        token = (await play("respond_checkpoint", checkpoint_handle=token, option_id="small")).token
    packed = [{"step_id": "list", "output": "a list"}, {"step_id": "ask", "output": "asked"}]
    home = {"activity_id": "home", "step_manifest": packed}
    token = (await play("next_activity", session_token=token, **home)).token
    rested = [{"step_id": "rest", "output": "rested"}]
    await play("next_activity", session_token=token, activity_id="workflow-end", step_manifest=rested)


def told(report: Report) -> dict[str, Any]:
    """What the report says, without ids and moments."""
    visits = [
        {
            "activity": visit.activity,
            "asked": visit.steps,
            "done": visit.done,
            "manifest": visit.has_manifest,
            "answers": [(one.checkpoint, one.question, one.option, one.by, one.assurance) for one in visit.answers],
            "differences": visit.differences,
        }
        for visit in report.visits
    ]
    about = {"workflow": report.workflow, "definition": report.definition, "completed": report.completed}
    return {**about, "visits": visits, "variables": report.variables, "refused": report.refused, "agents": report.agents}

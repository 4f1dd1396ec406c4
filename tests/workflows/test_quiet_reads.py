"""Repeated reads that change nothing: one event stands for all of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.engine.record import Record
from fidelio.ledger import open_ledger
from fidelio.ledger.audit import verify_session
from fidelio.ledger.model import Event
from fidelio.settings import Settings
from fidelio.surfaces.mcp.dialects import load_tools
from fidelio.workflows.moves import Move
from fidelio.workflows.quiet_reads import LONGEST_MS, MAX_SESSIONS, QuietReads, Read
from fidelio.workflows.service import WorkflowService
from fidelio.workflows.start import StartInput
from fidelio.workflows.trace import MAX_CALLS, list_calls
from tests.dialects.conftest import Player, library, playing, settings
from tests.dialects.gates.conftest import answer_all
from tests.support import proves

__all__ = ["library", "settings"]
REPEATS = 40
SESSION_READS: dict[str, dict[str, dict[str, Any]]] = {
    "sessions": {
        "get_workflow_status": {},
        "get_trace": {},
        "get_workflow": {},
        "get_activity": {},
        "get_skills": {},
        "get_skill": {},
        "get_resource": {"resource_id": "1"},
        "present_checkpoint": {},
    },
    "gates": {
        "get_trace": {},
        "get_workflow": {},
        "get_checkpoint": {"activity_id": "tune", "checkpoint_id": "how"},
        "get_skills": {},
        "get_skill": {"step_id": "hear"},
        "get_resource": {"resource_index": "1"},
    },
    "navigator": {"nav_situation": {}, "nav_checkpoint": {}, "nav_action": {"action": "get_resource", "index": "1"}},
}
LIBRARY_READS: dict[str, dict[str, dict[str, Any]]] = {
    "sessions": {"discover": {}, "list_workflows": {}, "health_check": {}},
    "gates": {"discover": {}, "list_workflows": {}, "health_check": {}},
    "navigator": {
        "list_workflows": {},
        "get_workflow": {"workflow_id": "score"},
        "get_workflow_activity": {"workflow_id": "score", "activity_id": "tune"},
        "get_checkpoint": {"workflow_id": "score", "activity_id": "tune", "checkpoint_id": "how"},
        "validate_transition": {"workflow_id": "score", "from_activity": "tune", "to_activity": "play"},
        "get_activities": {},
        "get_activity": {"activity_id": "start-workflow"},
        "get_skills": {},
        "list_skills": {"workflow_id": "score"},
        "get_skill": {"workflow_id": "score", "skill_id": "listen"},
        "list_workflow_resources": {"workflow_id": "score"},
        "get_resource": {"workflow_id": "score", "index": "1"},
        "list_templates": {"workflow_id": "score"},
        "discover_resources": {},
        "health_check": {},
    },
}
CHANGES = {
    "sessions": {"start_session", "next_activity", "yield_checkpoint", "resume_checkpoint", "respond_checkpoint"},
    "gates": {"start_session", "next_activity", "respond_checkpoint"},
    "navigator": {"nav_start"},
}


async def begin(play: Player, settings: Settings, dialect: str, tool: str) -> dict[str, str]:
    """The argument that names a session in which the tool can be called: open checkpoints refuse some of them."""
    if dialect == "navigator":
        state = (await play("nav_start", workflow_id="score")).json["state"]
        for checkpoint, option in (("encore", "some"), ("cold", "no_")):
            answer = {"action": "respond_to_checkpoint", "checkpoint_id": checkpoint, "option_id": option}
            state = (await play("nav_action", state=state, **answer)).json["state"]
        return {"state": state}
    if dialect == "gates":
        token = await play.at("tune", agent_id="one") if tool == "get_skill" else await play.start(agent_id="one")
        return {"session_token": await answer_all(play, settings, token) if tool == "get_skill" else token}
    token = await play.at("tune", agent_id="one")
    if tool == "present_checkpoint":
        return {"checkpoint_handle": (await play("yield_checkpoint", session_token=token, checkpoint_id="how")).token}
    return {"session_token": token}


async def stored_calls(settings: Settings, tool: str) -> list[Event]:
    async with await open_ledger(settings.ledger) as ledger:
        (session,) = (await ledger.sessions(kind="workflow")).items
        verdict = await verify_session(ledger, session.id)
        assert verdict.holds, verdict
        return [event for event in await ledger.events(session.id, types=["tool.called"]) if event.body["name"] == tool]


@proves("workflows.quiet-reads")
@pytest.mark.parametrize(("dialect", "tool"), [(dialect, tool) for dialect, tools in SESSION_READS.items() for tool in tools])
async def test_equal_reads_are_one_event_and_a_count_in_every_dialect(
    settings: Settings, library: Path, dialect: str, tool: str
) -> None:
    async with playing(settings, library, dialect=dialect) as play:
        named = await begin(play, settings, dialect, tool)
        for _ in range(REPEATS):
            assert not (await play(tool, **named, **SESSION_READS[dialect][tool])).is_error
    calls = await stored_calls(settings, tool)

    # The first, and what stands for the others; `nav_action` was called before, too.
    assert [event.body.get("reads") for event in calls[-2:]] == [None, REPEATS - 1]
    assert len(calls) == (4 if tool == "nav_action" else 2)


@proves("workflows.quiet-reads")
@pytest.mark.parametrize("dialect", LIBRARY_READS)
async def test_reads_of_the_library_leave_no_event_at_all(settings: Settings, library: Path, dialect: str) -> None:
    async with Application(settings, [str(library)]) as app:
        app.creates_missing_home = True
        names = {tool["name"] for tool in load_tools(dialect, app).table.describe()}
    async with playing(settings, library, dialect=dialect) as play:
        for tool, arguments in LIBRARY_READS[dialect].items():
            assert not (await play(tool, **arguments)).is_error
    async with await open_ledger(settings.ledger) as ledger:
        assert await ledger.wait(after=-1, timeout=0) == 0

    # Every other tool either changes a session, or is read repeatedly in one of these tests.
    assert names - {"get_template"} == {*LIBRARY_READS[dialect], *SESSION_READS[dialect], *CHANGES[dialect]}


@proves("workflows.quiet-reads", "sessions.trace", "gates.trace")
@pytest.mark.parametrize("dialect", ["sessions", "gates"])
async def test_the_trace_has_every_read(settings: Settings, library: Path, dialect: str) -> None:
    async with playing(settings, library, dialect=dialect) as play:
        token = await play.start(agent_id="one")
        for _ in range(4):
            await play("get_workflow", session_token=token)
        for _ in range(3):
            await play("get_skills", session_token=token)
        traces = [(await play("get_trace", session_token=token)).json["events"] for _ in range(2)]
        await play("get_workflow", session_token=token)
        later = (await play("get_trace", session_token=token)).json["events"]

    expected = ["start_session", *["get_workflow"] * 4, *["get_skills"] * 3]
    assert [[call["name"] for call in trace] for trace in traces] == [expected, expected]
    assert [call["name"] for call in later] == [*expected, "get_workflow"]
    assert {call["aid"] for call in later} == {"one"}
    assert len({call["spanId"] for call in later}) == len(later)


@proves("sessions.trace-bounded")
def test_so_many_equal_reads_that_no_reply_holds_them_are_one_entry() -> None:
    def count(reads: int) -> list[int]:
        raw = json.dumps({"name": "get_activity", "reads": reads})
        event = Event(1, "s", 1, "e", "tool.called", "one", 1, raw, None, b"", b"")
        return [call.get("reads", 1) for call in list_calls(event, Record())]

    assert (count(3), count(MAX_CALLS), count(MAX_CALLS + 1)) == ([1, 1, 1], [1] * MAX_CALLS, [MAX_CALLS + 1])


@proves("workflows.quiet-reads")
async def test_what_differs_is_an_event_of_its_own(settings: Settings, library: Path) -> None:
    async with Application(settings, [str(library)]) as app:
        app.creates_missing_home = True
        service = await app.workflows()
        token = (await service.sessions.start(StartInput("score", "one"))).token
        other = (await service.sessions.start(StartInput("score", "two", token))).token
        for called in (token, other, token, other):
            seen = await service.status(called)
        token = (await service.moves.move(token, Move("tune"))).token
        for step in ("hear", None, "hear", None):
            await service.reads.skill(token, step)
        for _ in range(2):
            await service.status(token)
        await service.moves.move(token, Move("tune"))

        assert await count_calls(service, seen.session) == [
            *(("start_session", 1), ("start_session", 1), ("get_workflow_status", 1), ("get_workflow_status", 1)),
            *(("get_workflow_status", 1), ("get_workflow_status", 1), ("next_activity", 1)),
            # The skill of the step and that of the activity are the same: only the first reading changes the session.
            *(("get_skill", 1), ("get_skill", 1), ("get_skill", 2)),
            *(("get_workflow_status", 1), ("get_workflow_status", 1), ("next_activity", 1)),
        ]


async def count_calls(service: WorkflowService, session: str) -> list[tuple[str, int]]:
    events = await service.unit.ledger.events(session, types=["tool.called"])
    return [(str(event.body["name"]), event.body.get("reads", 1)) for event in events]


@proves("workflows.quiet-reads")
async def test_a_repeated_read_sees_what_another_process_has_changed(settings: Settings, library: Path) -> None:
    async with playing(settings, library) as play, playing(settings, library) as elsewhere:
        token = await play.start()
        before = [(await play("get_workflow_status", session_token=token)).json["current_activity"] for _ in range(2)]
        await elsewhere("next_activity", session_token=token, activity_id="tune")
        after = (await play("get_workflow_status", session_token=token)).json["current_activity"]

    assert (before, after) == (["none", "none"], "tune")


@proves("workflows.quiet-reads")
async def test_two_processes_that_poll_do_not_make_an_event_of_each_read(settings: Settings, library: Path) -> None:
    async with playing(settings, library) as play, playing(settings, library) as elsewhere:
        token = await play.at("tune")
        for _ in range(REPEATS):
            for process in (play, elsewhere):
                assert not (await process("get_workflow_status", session_token=token)).is_error
    calls = await stored_calls(settings, "get_workflow_status")

    assert sorted(event.body.get("reads", 1) for event in calls) == [1, 1, REPEATS - 1, REPEATS - 1]


@proves("workflows.quiet-reads")
async def test_a_refused_call_between_equal_reads_is_no_change(settings: Settings, library: Path) -> None:
    async with playing(settings, library) as play:
        token = await play.at("tune")
        for _ in range(3):
            assert not (await play("get_activity", session_token=token)).is_error
            assert (await play("get_resource", session_token=token, resource_id="77")).is_error
    refused = await stored_calls(settings, "get_resource")
    calls = await stored_calls(settings, "get_activity")

    # The second and the third were counted, and are written with what was refused next.
    assert ([event.body.get("reads") for event in calls], len(refused)) == ([None, 1, 1], 3)


@proves("workflows.quiet-reads")
async def test_a_read_after_a_change_by_another_process_is_recorded(settings: Settings, library: Path) -> None:
    async with playing(settings, library) as play, playing(settings, library) as elsewhere:
        token = await play.at("tune")
        for _ in range(2):
            await play("get_workflow_status", session_token=token)
        await elsewhere("next_activity", session_token=token, activity_id="play")
        for _ in range(2):
            await play("get_workflow_status", session_token=token)
    calls = await stored_calls(settings, "get_workflow_status")

    assert [event.body.get("reads") for event in calls] == [None, 1, None, 1]


@proves("workflows.quiet-reads")
async def test_a_read_with_another_warning_is_recorded(settings: Settings, library: Path) -> None:
    async with playing(settings, library) as play:
        token = await play.at("tune")
        for _ in range(3):
            await play("get_resource", session_token=token, resource_id="1")
        file = library / "score" / "resources" / "01-pitch.md"
        file.write_text(file.read_text() + "More.\n")
        warned = [(await play("get_resource", session_token=token, resource_id="1")).warnings for _ in range(3)]
    calls = await stored_calls(settings, "get_resource")

    assert all("has changed since this session loaded it" in warnings[-1] for warnings in warned)
    assert [(event.body.get("reads"), "vw" in event.body) for event in calls] == [
        *((None, False), (2, False), (None, True), (2, False))
    ]


@proves("workflows.quiet-reads")
def test_a_count_is_written_after_a_while_and_sessions_are_bounded() -> None:
    reads, read = QuietReads(), Read("one", "get_activity", "")

    def count(now: int) -> bool:
        return reads.count_if_repeated("s", 1, read, now=now)

    assert not count(0)
    reads.note_commit("s", 1, (), read, now=0)
    assert [count(1), count(LONGEST_MS - 1), count(LONGEST_MS)] == [True, True, False]
    assert reads.list_repeated("s") == {read: 2}
    for number in range(MAX_SESSIONS):
        reads.note_commit(f"s{number}", 1, (), read, now=0)
    assert reads.list_repeated("s") == {}


@proves("workflows.waiting-status")
@pytest.mark.parametrize("answered", [True, False])
async def test_a_status_waits_for_the_answer_to_a_checkpoint(settings: Settings, library: Path, *, answered: bool) -> None:
    async with playing(settings, library) as play, playing(settings, library) as elsewhere:
        token = await play.at("tune")
        yielded = await play("yield_checkpoint", session_token=token, checkpoint_id="how")
        waiting = asyncio.create_task(play("get_workflow_status", session_token=token, wait_seconds=20 if answered else 1))
        if answered:
            await elsewhere("respond_checkpoint", checkpoint_handle=yielded.token, option_id="forte")
        status = (await asyncio.wait_for(waiting, 15)).json

    assert status["open_checkpoint"] == (None if answered else "how")


@proves("workflows.waiting-status")
async def test_a_status_without_an_open_checkpoint_does_not_wait(settings: Settings, library: Path) -> None:
    async with playing(settings, library) as play:
        token = await play.start()
        status = await asyncio.wait_for(play("get_workflow_status", session_token=token, wait_seconds=50), 10)

    assert status.json["status"] == "active"

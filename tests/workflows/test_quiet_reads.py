"""Repeated reads that change nothing: counted in the next event instead of an event each."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fidelio.app.application import Application
from fidelio.settings import Settings
from fidelio.workflows.quiet_reads import LONGEST_MS, QuietReads
from fidelio.workflows.service import WorkflowService
from fidelio.workflows.start import StartInput
from tests.dialects.conftest import library, playing, settings
from tests.support import proves

__all__ = ["library", "settings"]


async def events_of(service: WorkflowService, session: str) -> list[tuple[str, object]]:
    events = await service.unit.ledger.events(session)
    return [(str(event.body["name"]), event.body.get("reads")) for event in events if event.type == "tool.called"]


@proves("workflows.quiet-reads")
async def test_an_agent_that_polls_leaves_one_event_and_a_count(settings: Settings, library: Path) -> None:
    async with Application(settings, [str(library)]) as app:
        app.creates_missing_home = True
        service = await app.workflows()
        token = (await service.sessions.start(StartInput("score", "one"))).token
        for _ in range(5):
            seen = await service.status(token)
        other = (await service.sessions.start(StartInput("score", "two", token))).token
        for one in (token, other, token, other):
            await service.status(one)
        await service.reads.workflow_skills(token, supporting=False)

        assert await events_of(service, seen.session) == [
            ("start_session", None),
            ("get_workflow_status", None),
            ("start_session", {"get_workflow_status": 4}),
            ("get_workflow_status", None),
            ("get_workflow_status", None),
            ("get_skills", {"get_workflow_status": 2}),
        ]
        assert (await service.unit.ledger.session(seen.session)).last_seq > seen.record.seq


@proves("workflows.quiet-reads")
async def test_a_repeated_read_sees_what_another_process_has_changed(settings: Settings, library: Path) -> None:
    async with playing(settings, library) as play, playing(settings, library) as elsewhere:
        token = await play.start()
        before = [(await play("get_workflow_status", session_token=token)).json["current_activity"] for _ in range(2)]
        await elsewhere("next_activity", session_token=token, activity_id="tune")
        after = (await play("get_workflow_status", session_token=token)).json["current_activity"]

    assert (before, after) == (["none", "none"], "tune")


@proves("workflows.quiet-reads")
def test_a_count_is_written_after_a_while_and_sessions_are_bounded() -> None:
    reads = QuietReads()

    assert not reads.count_if_repeated("s", 1, "a", "get_workflow_status", now=LONGEST_MS)
    assert reads.pop_counts("s") == {}


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

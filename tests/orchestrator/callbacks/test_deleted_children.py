"""What a parent hears of a child that somebody deletes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fidelio.ledger.jobs import Assignment
from fidelio.orchestrator.executors.contract import Reporter, Turn, TurnResult
from fidelio.orchestrator.record.model import AgentSession
from fidelio.orchestrator.record.unit_of_work import AgentUnitOfWork, LoadedAgent
from fidelio.orchestrator.runs.callbacks import Callbacks
from fidelio.orchestrator.service.service import AgentService
from tests.orchestrator.fakes import OrchestratorHarness, PausedTurn, echo, start, wait_until, wait_until_finished
from tests.support import proves

Waiting = tuple[AgentSession, AgentSession]


@pytest.fixture
async def waiting(
    harness: OrchestratorHarness, service: AgentService, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Waiting]:
    """A parent at rest, and its child at work. The host never comes to deliver anything by itself."""
    paused = PausedTurn()

    async def never(_: Callbacks, __: Assignment) -> None:
        await asyncio.Event().wait()

    async def part(turn: Turn, reporter: Reporter) -> TurnResult:
        return await (paused.part if turn.prompt == "Sing." else echo)(turn, reporter)

    harness.actor.part = part
    monkeypatch.setattr(Callbacks, "deliver", never)
    async with harness.host(service):
        parent = await start(service, "parent", "Conduct.")
        await wait_until_finished(service, "parent")
        child = await start(service, "child", "Sing.", parent=parent.id, callback=True)
        async with asyncio.timeout(10):
            await paused.entered.wait()
        yield parent, child


@proves("orchestrator.callback-deleted")
async def test_a_parent_is_notified_that_no_callback_will_come(
    harness: OrchestratorHarness, service: AgentService, waiting: Waiting
) -> None:
    parent, child = waiting

    await service.delete("child", by="me")

    await wait_until(service, "parent", lambda session: session.run.number == 2 and session.status == "finished")
    told = harness.actor.turns[-1].prompt
    assert told.startswith(f'<agent-session-ended session="child" id="{child.id}" run="1" state="deleted">')
    assert "deleted by me" in told
    assert harness.actor.turns[-1].session == parent.id


@proves("orchestrator.callback-deleted")
async def test_a_parent_that_deletes_its_child_itself_is_not_notified(service: AgentService, waiting: Waiting) -> None:
    parent, _ = waiting

    await service.delete("child", by=f"agent:{parent.id}")

    now = await service.find("parent")
    assert (now.run.number, now.queued_messages) == (1, 0)


@proves("orchestrator.callback-deleted")
async def test_a_parent_that_is_deleted_with_its_child_is_not_set_to_work(service: AgentService, waiting: Waiting) -> None:
    assert (await service.delete_all(by="me")).count == len(waiting)

    assert not (await service.list()).items


@proves("orchestrator.callback-deleted")
async def test_a_parent_that_had_its_callback_is_not_notified_of_the_deletion(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    parent = await start(hosted, "parent", "Conduct.")
    await wait_until_finished(hosted, "parent")
    await start(hosted, "child", "Sing.", parent=parent.id, callback=True)
    await wait_until(hosted, "parent", lambda session: session.run.number == 2 and session.status == "finished")

    await hosted.delete("child", by="me")

    assert [turn.session for turn in harness.actor.turns].count(parent.id) == 2
    assert (await hosted.find("parent")).run.number == 2


@proves("orchestrator.callback-deleted", "orchestrator.wait")
async def test_waiting_for_a_child_ends_with_its_deletion_however_soon_after_its_end(
    service: AgentService, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, child = waiting
    whole = AgentUnitOfWork.load

    async def gone(unit: AgentUnitOfWork, session: str, **more: Any) -> LoadedAgent:
        if session == child.id and (await unit.ledger.session(session)).status == "stopped":
            await unit.ledger.erase([session], actor="me", reason="")
        return await whole(unit, session, **more)

    watching = asyncio.create_task(service.wait(["child"], mode="all", seconds=20))
    await asyncio.sleep(0)
    monkeypatch.setattr(AgentUnitOfWork, "load", gone)
    asking = asyncio.create_task(service.stop("child", by="me"))

    async with asyncio.timeout(20):
        assert await watching == ()
        await asyncio.gather(asking, return_exceptions=True)

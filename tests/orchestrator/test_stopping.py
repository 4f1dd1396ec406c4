"""Stopping and deleting, from this process and from others."""

from __future__ import annotations

import asyncio

import pytest

from fidelio.errors import AgentSessionNotFound, ExecutorFailure
from fidelio.ledger import open_ledger
from fidelio.orchestrator.service.service import AgentService
from fidelio.settings import AgentLimits
from tests.orchestrator.fakes import OrchestratorHarness, PausedTurn, start, wait_until_finished
from tests.support import proves


async def begun(paused: PausedTurn) -> None:
    async with asyncio.timeout(10):
        await paused.entered.wait()


@proves("orchestrator.stop", "orchestrator.result-error")
async def test_a_stopped_run_says_who_stopped_it(harness: OrchestratorHarness, hosted: AgentService) -> None:
    paused = PausedTurn()
    harness.actor.part = paused.part
    await start(hosted, "aria")
    await begun(paused)

    stopped = await hosted.stop("aria", by="person:anna")

    assert (stopped.status, stopped.run.state, stopped.run.reason) == ("finished", "stopped", "stop.requested")
    assert "person:anna" in stopped.run.detail
    assert paused.left == [stopped.run.id]
    with pytest.raises(ExecutorFailure, match="was stopped"):
        await hosted.result("aria")


@proves("orchestrator.stop")
async def test_stopping_what_has_ended_changes_nothing(hosted: AgentService) -> None:
    await start(hosted, "aria")
    (ended,) = await wait_until_finished(hosted, "aria")

    assert await hosted.stop("aria", by="me") == ended


@proves("orchestrator.stop-queued")
async def test_a_queued_run_that_is_stopped_never_begins(harness: OrchestratorHarness) -> None:
    harness.limits = AgentLimits(per_project=1, total=1)
    service = harness.service()
    paused = PausedTurn()
    harness.actor.part = paused.part
    async with harness.host(service):
        await start(service, "first")
        await begun(paused)
        await start(service, "second")
        stopped = await service.stop("second", by="me")
        paused.go_on.set()
        await wait_until_finished(service, "first")
        await start(service, "third")
        await wait_until_finished(service, "third")
        assert await harness.ledger.jobs() == ()

    assert (stopped.run.state, stopped.run.started_at) == ("stopped", None)
    assert [turn.session for turn in harness.actor.turns] == [(await service.find(name)).id for name in ("first", "third")]


@proves("orchestrator.stop-elsewhere")
async def test_a_run_is_stopped_from_another_process(harness: OrchestratorHarness, hosted: AgentService) -> None:
    paused = PausedTurn()
    harness.actor.part = paused.part
    await start(hosted, "aria")
    await begun(paused)

    async with await open_ledger(harness.home.ledger) as other:
        elsewhere = OrchestratorHarness(other, harness.home, harness.project).service()
        stopped = await elsewhere.stop("aria", by="me")

    assert stopped.run.state == "stopped"
    assert paused.left == [stopped.run.id]


@proves("orchestrator.stop-children")
async def test_stopping_a_session_stops_those_that_it_started(harness: OrchestratorHarness, hosted: AgentService) -> None:
    paused = PausedTurn()
    harness.actor.part = paused.part
    parent = await start(hosted, "parent")
    child = await start(hosted, "child", parent=parent.id, callback=True)
    await start(hosted, "grandchild", parent=child.id)
    await start(hosted, "stranger")

    await hosted.stop("parent", by="me")

    states = {one.name: (one.run.state, one.run.reason) for one in (await hosted.list()).items}
    assert states["parent"] == ("stopped", "stop.requested")
    assert states["child"] == ("stopped", "stop.parent")
    assert states["grandchild"] == ("stopped", "stop.parent")
    assert states["stranger"][0] != "stopped"
    assert (await hosted.find("parent")).queued_messages == 0


@proves("orchestrator.delete")
async def test_a_deleted_session_is_not_found_and_its_name_is_free(harness: OrchestratorHarness, hosted: AgentService) -> None:
    await start(hosted, "aria", "The secret is out.")
    (session,) = await wait_until_finished(hosted, "aria")

    assert (await hosted.delete("aria", by="me")).count == 1

    assert (await hosted.list()).items == ()
    for name in ("aria", session.id):
        with pytest.raises(AgentSessionNotFound, match="Session does not exist"):
            await hosted.find(name)
    assert not any("secret" in (event.raw or "") for event in await harness.ledger.events(session.id))
    assert (await start(hosted, "aria")).id != session.id


@proves("orchestrator.delete")
async def test_deleting_stops_the_agent_first(harness: OrchestratorHarness, hosted: AgentService) -> None:
    paused = PausedTurn()
    harness.actor.part = paused.part
    await start(hosted, "one")
    await start(hosted, "two")
    await begun(paused)

    assert (await hosted.delete_all(by="me")).count == 2

    assert len(paused.left) == len(harness.actor.turns)
    assert (await hosted.list()).items == ()
    assert not await hosted.delete_all()


@proves("orchestrator.delete", "orchestrator.scope")
async def test_deleting_all_of_a_project_leaves_the_others(harness: OrchestratorHarness, service: AgentService) -> None:
    other = harness.project.parent / "other"
    other.mkdir()
    await start(service, "here")
    await start(service, "there", project=str(other))

    assert (await service.delete_all(str(other))).count == 1
    assert [one.name for one in (await service.list()).items] == ["here"]


@proves("orchestrator.delete")
async def test_a_session_without_a_host_is_deleted_too(harness: OrchestratorHarness, service: AgentService) -> None:
    await start(service, "aria")

    assert (await service.delete("aria")).count == 1
    async with harness.host(service):
        await start(service, "other")
        await wait_until_finished(service, "other")
    assert len(harness.actor.turns) == 1

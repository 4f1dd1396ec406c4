"""Stopping and deleting, from this process and from others."""

from __future__ import annotations

import asyncio

import pytest

from fidelio.errors import AgentSessionNotFound, ExecutorFailure
from fidelio.ledger import open_ledger
from fidelio.orchestrator.service.service import AgentService
from fidelio.settings import AgentLimits
from tests.orchestrator.fakes import House, Stage, finished, start
from tests.support import proves


async def begun(stage: Stage) -> None:
    async with asyncio.timeout(10):
        await stage.entered.wait()


@proves("orchestrator.stop", "orchestrator.result-error")
async def test_a_stopped_run_says_who_stopped_it(house: House, hosted: AgentService) -> None:
    stage = Stage()
    house.actor.part = stage.part
    await start(hosted, "aria")
    await begun(stage)

    stopped = await hosted.stop("aria", by="person:anna")

    assert (stopped.status, stopped.run.state, stopped.run.reason) == ("finished", "stopped", "stop.requested")
    assert "person:anna" in stopped.run.detail
    assert stage.left == [stopped.run.id]
    with pytest.raises(ExecutorFailure, match="was stopped"):
        await hosted.result("aria")


@proves("orchestrator.stop")
async def test_stopping_what_has_ended_changes_nothing(hosted: AgentService) -> None:
    await start(hosted, "aria")
    (ended,) = await finished(hosted, "aria")

    assert await hosted.stop("aria", by="me") == ended


@proves("orchestrator.stop-queued")
async def test_a_queued_run_that_is_stopped_never_begins(house: House) -> None:
    house.limits = AgentLimits(per_project=1, total=1)
    service = house.service()
    stage = Stage()
    house.actor.part = stage.part
    async with house.host(service):
        await start(service, "first")
        await begun(stage)
        await start(service, "second")
        stopped = await service.stop("second", by="me")
        stage.go_on.set()
        await finished(service, "first")
        await start(service, "third")
        await finished(service, "third")

    assert (stopped.run.state, stopped.run.started_at) == ("stopped", None)
    assert [turn.session for turn in house.actor.turns] == [(await service.find(name)).id for name in ("first", "third")]


@proves("orchestrator.stop-elsewhere")
async def test_a_run_is_stopped_from_another_process(house: House, hosted: AgentService) -> None:
    stage = Stage()
    house.actor.part = stage.part
    await start(hosted, "aria")
    await begun(stage)

    async with await open_ledger(house.home.ledger) as other:
        elsewhere = House(other, house.home, house.project).service()
        stopped = await elsewhere.stop("aria", by="me")

    assert stopped.run.state == "stopped"
    assert stage.left == [stopped.run.id]


@proves("orchestrator.stop-children")
async def test_stopping_a_session_stops_those_that_it_started(house: House, hosted: AgentService) -> None:
    stage = Stage()
    house.actor.part = stage.part
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
async def test_a_deleted_session_is_gone_and_its_name_is_free(house: House, hosted: AgentService) -> None:
    await start(hosted, "aria", "The secret is out.")
    (session,) = await finished(hosted, "aria")

    assert (await hosted.delete("aria", by="me")).count == 1

    assert (await hosted.list()).items == ()
    for name in ("aria", session.id):
        with pytest.raises(AgentSessionNotFound, match="Session does not exist"):
            await hosted.find(name)
    assert not any("secret" in (event.raw or "") for event in await house.ledger.events(session.id))
    assert (await start(hosted, "aria")).id != session.id


@proves("orchestrator.delete")
async def test_deleting_stops_the_agent_first(house: House, hosted: AgentService) -> None:
    stage = Stage()
    house.actor.part = stage.part
    await start(hosted, "one")
    await start(hosted, "two")
    await begun(stage)

    assert (await hosted.delete_all(by="me")).count == 2

    assert len(stage.left) == len(house.actor.turns)
    assert (await hosted.list()).items == ()
    assert not await hosted.delete_all()


@proves("orchestrator.delete", "orchestrator.scope")
async def test_deleting_all_of_a_project_leaves_the_others(house: House, service: AgentService) -> None:
    other = house.project.parent / "other"
    other.mkdir()
    await start(service, "here")
    await start(service, "there", project=str(other))

    assert (await service.delete_all(str(other))).count == 1
    assert [one.name for one in (await service.list()).items] == ["here"]


@proves("orchestrator.delete")
async def test_a_session_without_a_host_is_deleted_too(house: House, service: AgentService) -> None:
    await start(service, "aria")

    assert (await service.delete("aria")).count == 1
    async with house.host(service):
        await start(service, "other")
        await finished(service, "other")
    assert len(house.actor.turns) == 1

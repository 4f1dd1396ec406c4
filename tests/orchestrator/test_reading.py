"""Lists, waits and what is read on the way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fidelio.errors import AgentSessionNotFound, UsageProblem
from fidelio.orchestrator.record.model import AgentSession
from fidelio.orchestrator.service.service import AgentService
from tests.orchestrator.fakes import House, Stage, echo, finished, start
from tests.support import proves


@proves("orchestrator.pages")
async def test_pages_hold_every_session_once_newest_first(service: AgentService) -> None:
    names = [f"s{number}" for number in range(7)]
    for name in names:
        await start(service, name)

    found: list[str] = []
    cursor = None
    while True:
        page = await service.list(cursor=cursor, limit=3)
        assert len(page.items) <= 3
        found += [session.name for session in page.items]
        if (cursor := page.next) is None:
            break
    assert found == names[::-1]


@proves("orchestrator.pages", "orchestrator.status")
async def test_lists_are_filtered(house: House, hosted: AgentService) -> None:
    house.shelf.add("tenor")
    parent = await start(hosted, "done", blueprint="tenor")
    await finished(hosted, "done")
    house.actor.part = Stage().part
    await start(hosted, "busy", parent=parent.id)
    other = house.project.parent / "other"
    other.mkdir()
    await start(hosted, "there", project=str(other))

    async def names(**filters: Any) -> list[str]:
        return [session.name for session in (await hosted.list(**filters)).items]

    assert await names(status="running") == ["there", "busy"]
    assert await names(status="finished") == ["done"]
    assert await names(status="succeeded") == ["done"]
    assert await names(status="lost") == []
    assert await names(blueprint="tenor") == ["done"]
    assert await names(parent=parent.id) == ["busy"]
    assert await names(project=str(other)) == ["there"]


@proves("orchestrator.pages")
async def test_a_state_that_does_not_exist_is_refused_with_those_that_do(service: AgentService) -> None:
    with pytest.raises(UsageProblem, match=r"finished.*succeeded"):
        await service.list(status="asleep")


@proves("orchestrator.scope")
async def test_a_name_is_found_anywhere_without_looking_at_every_session(house: House, service: AgentService) -> None:
    other = house.project.parent / "other"
    other.mkdir()
    session = await start(service, "solo", project=str(other))
    await start(service, "aria")

    assert (await service.find("solo")).id == session.id
    with pytest.raises(AgentSessionNotFound):
        await service.find("nobody")


@proves("orchestrator.pages")
async def test_a_filter_that_leaves_much_out_still_fills_the_page(house: House, service: AgentService) -> None:
    house.shelf.add("tenor")
    for number in range(12):
        await start(service, f"s{number}", blueprint="tenor" if number % 4 == 0 else None)

    page = await service.list(blueprint="tenor", limit=2)
    rest = await service.list(blueprint="tenor", limit=2, cursor=page.next)

    assert [session.name for session in (*page.items, *rest.items)] == ["s8", "s4", "s0"]


@proves("orchestrator.wait")
async def test_waiting_for_any_returns_with_the_first(house: House, hosted: AgentService) -> None:
    stage = Stage()
    house.actor.part = stage.part
    await start(hosted, "slow")
    async with asyncio.timeout(10):
        await stage.entered.wait()
    house.actor.part = echo
    await start(hosted, "fast")

    slow, fast = await hosted.wait(["slow", "fast"], mode="any", seconds=20)

    assert (slow.status, fast.status) == ("running", "finished")


@proves("orchestrator.wait")
async def test_waiting_for_all_returns_when_the_time_is_up(house: House, hosted: AgentService) -> None:
    house.actor.part = Stage().part
    await start(hosted, "slow")

    (slow,) = await hosted.wait(["slow"], mode="all", seconds=0.05)
    assert slow.status == "running"


@proves("orchestrator.wait")
async def test_waiting_for_what_has_finished_returns_at_once(hosted: AgentService) -> None:
    await start(hosted, "aria")
    await finished(hosted, "aria")

    (session,) = await hosted.wait(["aria"], seconds=None)
    assert session.status == "finished"


@proves("orchestrator.wait")
async def test_whoever_waits_is_kept_informed(house: House, hosted: AgentService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fidelio.orchestrator.service.wait.NOTICE_SECONDS", 0.01)
    stage = Stage()
    house.actor.part = stage.part
    told: list[str] = []

    async def notice(sessions: tuple[AgentSession, ...]) -> None:
        told.extend(session.run.state for session in sessions)
        stage.go_on.set()

    await start(hosted, "aria")
    await hosted.wait(["aria"], seconds=20, on_progress=notice)
    assert told


@proves("orchestrator.wait")
async def test_waiting_ends_when_the_session_is_deleted(house: House, hosted: AgentService) -> None:
    house.actor.part = Stage().part
    await start(hosted, "aria")
    waiting = asyncio.create_task(hosted.wait(["aria"], seconds=20))
    await hosted.delete("aria")

    async with asyncio.timeout(10):
        assert all(session.status == "finished" for session in await waiting)


@proves("orchestrator.wait")
async def test_waiting_for_nobody_or_for_a_stranger_is_refused(service: AgentService) -> None:
    with pytest.raises(UsageProblem):
        await service.wait([], seconds=1)
    with pytest.raises(AgentSessionNotFound):
        await service.wait(["nobody"], seconds=1)


@proves("orchestrator.usage")
async def test_events_are_read_from_where_one_stopped(hosted: AgentService) -> None:
    await start(hosted, "aria")
    await finished(hosted, "aria")

    first = await hosted.events("aria", limit=2)
    rest = await hosted.events("aria", after=first[-1].seq)
    assert [event.type for event in (*first, *rest)] == [
        "session.created",
        "run.queued",
        "run.starting",
        "run.conversation",
        "agent.said",
        "run.succeeded",
    ]

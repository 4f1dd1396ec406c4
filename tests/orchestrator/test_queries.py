"""Lists, waits and what is read on the way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fidelio.errors import AgentSessionNotFound, UsageProblem
from fidelio.orchestrator.record.model import AgentSession
from fidelio.orchestrator.service.service import AgentService
from tests.orchestrator.fakes import OrchestratorHarness, PausedTurn, echo, start, wait_until_finished
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
async def test_lists_are_filtered(harness: OrchestratorHarness, hosted: AgentService) -> None:
    parent = await start(hosted, "done")
    await wait_until_finished(hosted, "done")
    harness.actor.part = PausedTurn().part
    await start(hosted, "busy", parent=parent.id)
    other = harness.project.parent / "other"
    other.mkdir()
    await start(hosted, "there", project=str(other))

    async def names(**filters: Any) -> list[str]:
        return [session.name for session in (await hosted.list(**filters)).items]

    assert await names(status="running") == ["there", "busy"]
    assert await names(status="finished") == ["done"]
    assert await names(status="succeeded") == ["done"]
    assert await names(status="lost") == []
    assert await names(parent=parent.id) == ["busy"]
    assert await names(project=str(other)) == ["there"]


@proves("orchestrator.pages")
async def test_a_state_that_does_not_exist_is_refused_with_those_that_do(service: AgentService) -> None:
    with pytest.raises(UsageProblem, match=r"finished.*succeeded"):
        await service.list(status="asleep")


@proves("orchestrator.scope")
async def test_a_name_is_found_anywhere_without_looking_at_every_session(
    harness: OrchestratorHarness, service: AgentService
) -> None:
    other = harness.project.parent / "other"
    other.mkdir()
    session = await start(service, "solo", project=str(other))
    await start(service, "aria")

    assert (await service.find("solo")).id == session.id
    with pytest.raises(AgentSessionNotFound):
        await service.find("nobody")


@proves("orchestrator.pages")
async def test_a_filter_that_leaves_much_out_still_fills_the_page(service: AgentService) -> None:
    for number in range(12):
        await start(service, f"s{number}")
        if number % 4 == 0:
            await service.stop(f"s{number}")

    page = await service.list(status="finished", limit=2)
    rest = await service.list(status="finished", limit=2, cursor=page.next)

    assert [session.name for session in (*page.items, *rest.items)] == ["s8", "s4", "s0"]


@proves("orchestrator.wait")
async def test_waiting_for_any_returns_with_the_first(harness: OrchestratorHarness, hosted: AgentService) -> None:
    paused = PausedTurn()
    harness.actor.part = paused.part
    await start(hosted, "slow")
    async with asyncio.timeout(10):
        await paused.entered.wait()
    harness.actor.part = echo
    await start(hosted, "fast")

    slow, fast = await hosted.wait(["slow", "fast"], mode="any", seconds=20)

    assert (slow.status, fast.status) == ("running", "finished")


@proves("orchestrator.wait")
async def test_waiting_for_all_returns_when_the_time_is_up(harness: OrchestratorHarness, hosted: AgentService) -> None:
    harness.actor.part = PausedTurn().part
    await start(hosted, "slow")

    (slow,) = await hosted.wait(["slow"], mode="all", seconds=0.05)
    assert slow.status == "running"


@proves("orchestrator.wait")
async def test_waiting_for_what_has_finished_returns_at_once(hosted: AgentService) -> None:
    await start(hosted, "aria")
    await wait_until_finished(hosted, "aria")

    (session,) = await hosted.wait(["aria"], seconds=None)
    assert session.status == "finished"


@proves("orchestrator.wait")
async def test_waiting_reports_progress(
    harness: OrchestratorHarness, hosted: AgentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fidelio.orchestrator.service.wait.NOTICE_SECONDS", 0.01)
    paused = PausedTurn()
    harness.actor.part = paused.part
    told: list[str] = []

    async def notice(sessions: tuple[AgentSession, ...]) -> None:
        told.extend(session.run.state for session in sessions)
        paused.go_on.set()

    await start(hosted, "aria")
    await hosted.wait(["aria"], seconds=20, on_progress=notice)
    assert told


@proves("orchestrator.wait")
async def test_waiting_ends_when_the_session_is_deleted(harness: OrchestratorHarness, hosted: AgentService) -> None:
    harness.actor.part = PausedTurn().part
    await start(hosted, "aria")
    waiting = asyncio.create_task(hosted.wait(["aria"], seconds=20))
    await hosted.delete("aria")

    async with asyncio.timeout(10):
        assert all(session.status == "finished" for session in await waiting)


@proves("orchestrator.wait")
async def test_waiting_for_no_session_or_an_unknown_session_is_refused(service: AgentService) -> None:
    with pytest.raises(UsageProblem):
        await service.wait([], seconds=1)
    with pytest.raises(AgentSessionNotFound):
        await service.wait(["nobody"], seconds=1)


@proves("orchestrator.usage")
async def test_events_are_read_after_a_sequence_number(hosted: AgentService) -> None:
    await start(hosted, "aria")
    await wait_until_finished(hosted, "aria")

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

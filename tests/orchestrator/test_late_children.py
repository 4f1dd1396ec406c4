"""Children that a session starts while somebody stops it."""

from __future__ import annotations

import asyncio

import pytest

from fidelio.errors import UsageProblem
from fidelio.orchestrator.executors.contract import Reporter, Turn, TurnResult
from fidelio.orchestrator.service.service import AgentService
from fidelio.orchestrator.service.start import SessionStarter
from tests.orchestrator.fakes import OrchestratorHarness, PausedTurn, start, wait_until_finished
from tests.support import proves


async def hear(event: asyncio.Event) -> None:
    async with asyncio.timeout(20):
        await event.wait()


@proves("families.late-children", "orchestrator.stop-children")
async def test_a_child_that_is_started_while_its_parent_ends_is_stopped_as_well(
    harness: OrchestratorHarness, hosted: AgentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    conducting, singing = PausedTurn(), PausedTurn()
    # The start of a child that was under way when the wish to stop its parent was written.
    monkeypatch.setattr("fidelio.orchestrator.service.start.require_child_allowed", lambda *_, **__: 1)
    monkeypatch.setattr("fidelio.orchestrator.runs.run.has_stopped_parent", _no)

    async def part(turn: Turn, reporter: Reporter) -> TurnResult:
        if turn.prompt != "Conduct.":
            return await singing.part(turn, reporter)
        try:
            return await conducting.part(turn, reporter)
        finally:
            await start(hosted, "child", parent=turn.session)
            await hear(singing.entered)

    harness.actor.part = part
    await start(hosted, "parent", "Conduct.")
    await hear(conducting.entered)

    stopped = await hosted.stop("parent", by="me")

    child = await hosted.find("child")
    assert (stopped.run.state, child.run.state, child.run.reason) == ("stopped", "stopped", "stop.parent")
    assert singing.left == [child.run.id]


@proves("families.late-children")
async def test_a_session_that_is_being_stopped_cannot_start_sessions(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    paused = PausedTurn()
    refused: list[str] = []

    async def part(turn: Turn, reporter: Reporter) -> TurnResult:
        try:
            return await paused.part(turn, reporter)
        finally:
            with pytest.raises(UsageProblem, match="parent was stopped, and cannot start sessions") as problem:
                await start(hosted, "child", parent=turn.session)
            refused.append(str(problem.value.remedy))

    harness.actor.part = part
    parent = await start(hosted, "parent")
    await hear(paused.entered)

    await hosted.stop("parent", by="me")

    assert len(refused) == 1
    with pytest.raises(UsageProblem, match="was stopped"):
        await start(hosted, "child", parent=parent.id)


@proves("families.late-children")
async def test_a_child_whose_start_was_under_way_when_its_parent_was_stopped_never_begins(
    harness: OrchestratorHarness, hosted: AgentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await start(hosted, "parent", "Conduct.")
    await wait_until_finished(hosted, "parent")
    whole = SessionStarter._create
    paused = PausedTurn()
    harness.actor.part = paused.part

    async def stopped_first(starting: SessionStarter, *given: object) -> object:
        await hosted.resume("parent", "Go on.")
        await hear(paused.entered)
        monkeypatch.setattr(SessionStarter, "_create", whole)
        await hosted.stop("parent", by="me")
        return await whole(starting, *given)  # type: ignore[arg-type]  # arguments of the replaced method, forwarded unchanged

    monkeypatch.setattr(SessionStarter, "_create", stopped_first)
    await start(hosted, "child", parent=parent.id)

    (child,) = await wait_until_finished(hosted, "child")

    assert (child.run.state, child.run.reason, child.run.started_at) == ("stopped", "stop.parent", None)
    paused.go_on.set()
    await hosted.resume("child", "Sing after all.")
    assert (await wait_until_finished(hosted, "child"))[0].run.state == "succeeded"


async def _no(*_: object) -> bool:
    return False

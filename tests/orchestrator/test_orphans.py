"""Runs that are ended while nobody hosts: with everything that a host would write."""

from __future__ import annotations

import asyncio
from typing import Any

from fidelio.orchestrator.executors.contract import AgentQuestion, Reporter, Turn, TurnResult
from fidelio.orchestrator.service.service import AgentService
from tests.orchestrator.adoption import MISSING_PROCESS, AdoptingExecutor
from tests.orchestrator.fakes import OrchestratorHarness, TurnFunction, start, wait_until, wait_until_finished
from tests.orchestrator.worktrees.test_worktrees import repository, writing
from tests.support import proves

HOW = AgentQuestion(key="how", kind="question", text="How loud?")


async def asking(turn: Turn, reporter: Reporter) -> TurnResult:
    await reporter.report_process(MISSING_PROCESS)
    (turn.directory / "score.txt").write_text("forte\n", "utf-8")
    return TurnResult(text=(await reporter.ask(HOW)).text)


async def left_asking(harness: OrchestratorHarness, part: TurnFunction, **more: Any) -> AgentService:
    """A run without a host, whose agent waits for an answer."""
    harness.actor = AdoptingExecutor(part=part)
    service = harness.service()
    async with harness.host(service):
        await start(service, "aria", **more)
        await wait_until(service, "aria", lambda session: session.question is not None)
    return service


@proves("orchestrator.stop-elsewhere", "orchestrator.worktree")
async def test_a_run_that_is_stopped_without_a_host_says_what_it_has_changed(harness: OrchestratorHarness) -> None:
    repository(harness.project)
    service = await left_asking(harness, asking, worktree=True)

    stopped = await service.stop("aria", by="person:anna")

    assert (stopped.run.state, stopped.run.reason) == ("stopped", "stop.requested")
    assert "person:anna" in stopped.run.detail
    assert "score.txt" in stopped.changes


@proves("orchestrator.stop-elsewhere", "orchestrator.questions-end")
async def test_a_run_whose_question_was_answered_is_stopped_without_a_host(harness: OrchestratorHarness) -> None:
    service = await left_asking(harness, asking)
    request = (await service.find("aria")).question
    await service.answer("aria", text="Softly.", by="me", channel="cli")

    stopped = await service.stop("aria", by="me")

    assert (stopped.run.state, stopped.question) == ("stopped", None)
    assert (await harness.ledger.request(request or "")).state == "answered"


@proves("orchestrator.stop-elsewhere")
async def test_what_processes_left_for_their_host_goes_with_a_run_that_is_stopped_without_one(
    harness: OrchestratorHarness,
) -> None:
    service = await left_asking(harness, asking)
    session = await service.find("aria")
    spool = harness.home.runs / session.id / "1" / "1"
    await asyncio.to_thread(spool.mkdir, parents=True)

    await service.stop("aria", by="me")

    assert not spool.exists()


@proves("orchestrator.stop-queued", "orchestrator.worktree")
async def test_a_queued_run_that_is_stopped_leaves_the_changes_of_the_one_before(
    harness: OrchestratorHarness, service: AgentService
) -> None:
    repository(harness.project)
    harness.actor.part = writing
    async with harness.host(service):
        await start(service, "aria", worktree=True)
        (before,) = await wait_until_finished(service, "aria")
    await service.resume("aria", "More.")

    stopped = await service.stop("aria", by="me")

    assert (stopped.run.number, stopped.run.state) == (2, "stopped")
    assert stopped.changes == before.changes != ""

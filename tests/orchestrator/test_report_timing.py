"""What an agent tells at an awkward moment: too soon after the last time, or while it is being interrupted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from fidelio.errors import AgentError, ExecutorFailure
from fidelio.orchestrator.blueprints.model import Limits
from fidelio.orchestrator.executors.command import CommandExecutor
from fidelio.orchestrator.executors.contract import Reporter, Turn, TurnResult
from fidelio.orchestrator.record.model import Usage
from fidelio.orchestrator.runs.reporter import RunReporter
from fidelio.orchestrator.service.service import AgentService
from tests.orchestrator.fakes import OrchestratorHarness, PausedTurn, start, wait_until, wait_until_finished
from tests.orchestrator.questions.test_withdrawn import MAY_I
from tests.support import proves


@proves("orchestrator.usage")
async def test_a_usage_that_comes_too_soon_is_seen_after_a_pause_although_nothing_follows_it(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    paused = PausedTurn()

    async def part(turn: Turn, reporter: Reporter) -> TurnResult:
        for tokens in (5, 50, 500):
            await reporter.report_usage(Usage(input_tokens=tokens))
        return await paused.part(turn, reporter)

    harness.actor.part = part
    await start(hosted, "aria")
    working = await wait_until(hosted, "aria", lambda session: session.run.usage.input_tokens == 500)
    paused.go_on.set()
    (session,) = await wait_until_finished(hosted, "aria")
    told = [event for event in await hosted.events("aria") if event.type == "run.used"]

    assert (working.run.state, session.run.usage.input_tokens) == ("running", 500)
    assert len(told) == 2


@dataclass
class Unrecorded:
    """Asks, and is cancelled while its question cannot be recorded."""

    asking: asyncio.Event = field(default_factory=asyncio.Event)
    fail: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: bool = False

    async def part(self, _: Turn, reporter: Reporter) -> TurnResult:
        task = asyncio.create_task(reporter.ask(MAY_I))
        await self.asking.wait()
        task.cancel()
        await asyncio.sleep(0)
        self.fail.set()
        await asyncio.wait({task})
        self.cancelled = task.cancelled()
        return TurnResult(text="never mind")

    async def open(self, *_: Any) -> str:
        self.asking.set()
        await self.fail.wait()
        raise ExecutorFailure("The question cannot be recorded.")


@proves("orchestrator.questions")
async def test_a_question_that_cannot_be_recorded_does_not_replace_a_cancellation(
    harness: OrchestratorHarness, hosted: AgentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Unrecorded()
    monkeypatch.setattr(RunReporter, "_open_question", agent.open)
    harness.actor.part = agent.part
    await start(hosted, "aria")
    (session,) = await wait_until_finished(hosted, "aria")

    assert (session.run.state, agent.cancelled) == ("succeeded", True)


@proves("orchestrator.result-error")
@pytest.mark.parametrize("way", ["stop", "limit"])
async def test_what_a_program_has_printed_is_the_partial_output_of_its_run(harness: OrchestratorHarness, way: str) -> None:
    harness.others["command"] = CommandExecutor()
    limits = Limits(wall_seconds=0.5 if way == "limit" else 60)
    program = ["/bin/sh", "-c", "echo half of the work; echo > begun; sleep 60"]
    harness.blueprints.add("program", options={"command": program}, limits=limits)
    service = harness.service()
    async with harness.host(service):
        await start(service, "aria", blueprint="program", executor="command")
        if way == "stop":
            await wait_until(service, "aria", lambda session: session.run.state == "running")
            async with asyncio.timeout(20):
                while not (harness.project / "begun").exists():  # noqa: ASYNC110  # another process creates the file and cannot notify us
                    await asyncio.sleep(0.01)
            await service.stop("aria")
        (session,) = await wait_until_finished(service, "aria")
        with pytest.raises(AgentError) as caught:
            await service.result("aria")

    assert session.run.state == ("stopped" if way == "stop" else "failed")
    assert isinstance(caught.value, ExecutorFailure)
    assert caught.value.partial == "half of the work\n"

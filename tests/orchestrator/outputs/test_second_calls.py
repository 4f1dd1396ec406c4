"""Runs whose executor is called a second time, because the first result did not fit, and what counts for both."""

from __future__ import annotations

import asyncio

import pytest

from fidelio.clock import now_ms
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Limits
from fidelio.orchestrator.executors.contract import Reporter, Turn, TurnResult
from fidelio.orchestrator.record.model import AgentSession, Usage
from tests.orchestrator.adoption import MISSING_PROCESS, AdoptingExecutor, EndlessTurn
from tests.orchestrator.fakes import OrchestratorHarness, start, wait_until_finished
from tests.support import proves

OBJECT = {"type": "object", "required": ["a"]}


async def unfitting(turn: Turn, reporter: Reporter) -> TurnResult:
    await reporter.report_conversation("c")
    await reporter.report_output(100)
    await reporter.report_usage(Usage(turns=1, input_tokens=100, cost_usd=0.5))
    return TurnResult(text="no JSON")


async def fitting(turn: Turn, reporter: Reporter) -> TurnResult:
    await reporter.report_output(7)
    await reporter.report_usage(Usage(turns=1, input_tokens=7, cost_usd=0.25))
    return TurnResult(text="", data={"a": 1})


async def adopted_in_part_two(harness: OrchestratorHarness) -> AgentSession:
    """A run whose second part outlives its host."""
    harness.actor = AdoptingExecutor(again=fitting)
    working = EndlessTurn()

    async def part(turn: Turn, reporter: Reporter) -> TurnResult:
        return await (unfitting if len(harness.actor.turns) == 1 else working.part)(turn, reporter)

    harness.actor.part = part
    service = harness.service()
    async with harness.host(service):
        await start(service, "aria", blueprint="careful")
        await working.begun()
    async with harness.host(service):
        (session,) = await wait_until_finished(service, "aria")
    return session


@proves("orchestrator.usage-whole", "orchestrator.usage")
async def test_what_the_first_part_has_spent_still_counts_when_the_second_is_adopted(harness: OrchestratorHarness) -> None:
    harness.blueprints.add("careful", output_schema=OBJECT)

    session = await adopted_in_part_two(harness)

    assert session.run.state == "succeeded"
    assert session.run.usage == Usage(turns=2, input_tokens=107, cost_usd=0.75)


@proves("orchestrator.usage-whole", "orchestrator.limits")
@pytest.mark.parametrize(
    ("limits", "reason"), [(Limits(tokens=105), "limit.tokens"), (Limits(output_bytes=105), "limit.output_bytes")]
)
async def test_limits_hold_for_both_parts_together_when_the_second_is_adopted(
    harness: OrchestratorHarness, limits: Limits, reason: str
) -> None:
    harness.blueprints.add("careful", output_schema=OBJECT, limits=limits)

    session = await adopted_in_part_two(harness)

    assert (session.run.state, session.run.reason) == ("failed", reason)


async def asked_again_after_adoption(harness: OrchestratorHarness, part: object, *, later_ms: int = 0) -> AgentSession:
    """A run whose first part ended while nobody watched, with a result that does not fit."""
    harness.actor = actor = AdoptingExecutor(again=unfitting)
    working = EndlessTurn()
    actor.part = working.part
    service = harness.service()
    async with harness.host(service):
        await start(service, "aria", blueprint="careful")
        await working.begun()
    actor.part = part  # type: ignore[assignment]  # the fake takes any coroutine function
    later = harness.service(clock=lambda: now_ms() + later_ms)
    async with harness.host(later):
        (session,) = await wait_until_finished(later, "aria")
    return session


@proves("orchestrator.secrets-again", "orchestrator.output-schema")
async def test_an_adopted_agent_that_is_asked_again_has_its_secrets(
    harness: OrchestratorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOICE_KEY", "do-re-mi")
    server = McpServer(command="voice", env={"KEY": "${VOICE_KEY}"})
    harness.blueprints.add("careful", output_schema=OBJECT, inherit=("VOICE_KEY",), mcp_servers={"voice": server})

    session = await asked_again_after_adoption(harness, fitting)

    assert session.run.state == "succeeded"
    assert harness.actor.turns[-1].blueprint.mcp_servers["voice"].env == {"KEY": "do-re-mi"}


@proves("orchestrator.limits", "orchestrator.output-schema")
async def test_an_agent_that_is_asked_again_is_held_to_the_time_of_its_run(harness: OrchestratorHarness) -> None:
    async def for_ever(turn: Turn, reporter: Reporter) -> TurnResult:
        await reporter.report_process(MISSING_PROCESS)
        await asyncio.Event().wait()
        raise AssertionError

    harness.blueprints.add("careful", output_schema=OBJECT, limits=Limits(wall_seconds=60))

    session = await asked_again_after_adoption(harness, for_ever, later_ms=3_600_000)

    assert (session.run.state, session.run.reason) == ("failed", "limit.wall_seconds")

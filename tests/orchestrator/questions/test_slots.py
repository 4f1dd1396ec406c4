"""Places while people think."""

from __future__ import annotations

import asyncio

from fidelio.orchestrator.executors.contract import AgentQuestion, Reporter, Turn, TurnResult
from fidelio.settings import AgentLimits
from tests.orchestrator.adoption import MISSING_PROCESS, AdoptingExecutor
from tests.orchestrator.fakes import OrchestratorHarness, PausedTurn, start, wait_until, wait_until_finished
from tests.support import proves

ONE = AgentLimits(per_project=1, total=1)
HOW = AgentQuestion(key="how", kind="question", text="How loud?")


async def asking(turn: Turn, reporter: Reporter) -> TurnResult:
    await reporter.report_process(MISSING_PROCESS)
    return TurnResult(text=(await reporter.ask(HOW)).text)


async def singing(turn: Turn, reporter: Reporter) -> TurnResult:
    return await asking(turn, reporter) if turn.prompt == "Ask." else TurnResult(text="la")


@proves("families.people-take-no-place")
async def test_a_session_that_waits_for_a_person_occupies_no_slot(harness: OrchestratorHarness) -> None:
    harness.limits = ONE
    harness.actor.part = singing
    service = harness.service()
    async with harness.host(service):
        for name in ("first", "second"):
            await start(service, name, "Ask.")
        await start(service, "third", "Sing.")
        assert (await wait_until_finished(service, "third"))[0].run.state == "succeeded"
        for name in ("first", "second"):
            await wait_until(service, name, lambda session: session.question is not None)
            await service.answer(name, text="Softly.", by="me", channel="cli")
        assert [one.run.state for one in await wait_until_finished(service, "first", "second")] == ["succeeded"] * 2


@proves("families.people-take-no-place")
async def test_a_session_that_continues_occupies_a_slot_again(harness: OrchestratorHarness) -> None:
    harness.limits = ONE
    service = harness.service()
    paused = PausedTurn()

    async def part(turn: Turn, reporter: Reporter) -> TurnResult:
        if turn.prompt == "Ask.":
            await reporter.ask(HOW)
            return await paused.part(turn, reporter)
        return TurnResult(text="la")

    harness.actor.part = part
    async with harness.host(service):
        await start(service, "first", "Ask.")
        await wait_until(service, "first", lambda session: session.question is not None)
        await service.answer("first", text="Softly.", by="me", channel="cli")
        async with asyncio.timeout(20):
            await paused.entered.wait()
        await start(service, "second", "Sing.")
        (waiting,) = await service.wait(["second"], seconds=0.3)
        assert waiting.run.state == "queued"
        paused.go_on.set()
        await start(service, "third", "Sing.")
        assert {one.run.state for one in await wait_until_finished(service, "first", "second", "third")} == {"succeeded"}


@proves("families.people-take-no-place")
async def test_an_adopted_session_that_waits_for_a_person_occupies_no_slot(harness: OrchestratorHarness) -> None:
    harness.limits = ONE
    adopted = asyncio.Event()

    async def again(turn: Turn, reporter: Reporter) -> TurnResult:
        adopted.set()
        return await asking(turn, reporter)

    harness.actor = AdoptingExecutor(part=singing, again=again)
    service = harness.service()
    async with harness.host(service):
        await start(service, "first", "Ask.")
        await wait_until(service, "first", lambda session: session.question is not None)
    async with harness.host(service):
        async with asyncio.timeout(20):
            await adopted.wait()
        await start(service, "second", "Sing.")
        assert (await wait_until_finished(service, "second"))[0].run.state == "succeeded"
        assert (await service.find("first")).run.state == "waiting"

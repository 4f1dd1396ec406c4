"""Things that happen at the same moment."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from fidelio.errors import LedgerBusy
from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, CommitResult
from fidelio.orchestrator.executors.contract import Reporter, Turn, TurnResult
from fidelio.orchestrator.service.service import AgentService
from tests.orchestrator.fakes import OrchestratorHarness, PausedTurn, start, wait_until, wait_until_finished
from tests.support import proves


@proves("orchestrator.messages", "orchestrator.once")
async def test_every_message_reaches_exactly_one_turn_whenever_it_is_sent(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    await start(hosted, "aria", "first")
    texts = [f"<{number}>" for number in range(40)]

    async def sending(part: list[str]) -> None:
        for text in part:
            await hosted.send("aria", text)

    await asyncio.gather(*(sending(texts[place::4]) for place in range(4)))
    await wait_until(hosted, "aria", lambda session: session.status == "finished" and not session.queued_messages)

    heard = Counter(word for turn in harness.actor.turns for word in turn.prompt.split("\n\n"))
    assert heard == Counter(["first", *texts])


@proves("orchestrator.stop", "orchestrator.one-run")
async def test_a_stop_at_the_moment_of_the_end_leaves_one_end(harness: OrchestratorHarness, hosted: AgentService) -> None:
    for number in range(15):
        paused = PausedTurn()
        harness.actor.part = paused.part
        await start(hosted, f"s{number}")
        async with asyncio.timeout(10):
            await paused.entered.wait()
        paused.go_on.set()
        await hosted.stop(f"s{number}", by="me")
        (session,) = await wait_until_finished(hosted, f"s{number}")
        ends = [event for event in await hosted.events(session.id) if event.type.startswith(("run.s", "run.f", "run.l"))]

        assert session.run.state in ("succeeded", "stopped")
        assert len([event for event in ends if event.type not in ("run.starting", "run.stop-requested")]) == 1


@proves("orchestrator.once")
async def test_concurrent_reports_are_recorded_completely(harness: OrchestratorHarness, hosted: AgentService) -> None:
    async def part(turn: Turn, reporter: Reporter) -> TurnResult:
        await asyncio.gather(*(reporter.report_message(str(number) * 5_000) for number in range(20)))
        return TurnResult(text="done")

    harness.actor.part = part
    await start(hosted, "aria")
    await wait_until_finished(hosted, "aria")

    said = [event.body["said"]["text"][0] for event in await hosted.events("aria") if event.type == "agent.said"]
    assert Counter(said) == Counter(str(number)[0] for number in range(20))


class Faulty:
    """A ledger whose commits fail for a moment."""

    def __init__(self, ledger: Ledger, faults: int) -> None:
        self._ledger, self.faults = ledger, faults

    def __getattr__(self, name: str) -> object:
        return getattr(self._ledger, name)

    async def commit(self, *changes: Change) -> tuple[CommitResult, ...]:
        if self.faults and any(event.type == "agent.said" for change in changes for event in change.events):
            self.faults -= 1
            raise LedgerBusy("Somebody else writes.")
        return await self._ledger.commit(*changes)


@proves("orchestrator.once", "orchestrator.result")
async def test_an_agent_does_not_lose_its_work_to_a_database_that_is_busy_for_a_moment(
    harness: OrchestratorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fidelio.retry._PAUSES", (0.0,) * 5)
    harness.ledger = Faulty(harness.ledger, 3)  # type: ignore[assignment]  # the fake delegates to the ledger everything that it does not break
    service = harness.service()
    async with harness.host(service):
        await start(service, "aria", "Sing.")
        (session,) = await wait_until_finished(service, "aria")

    assert (session.run.state, session.run.last_activity) == ("succeeded", "Sing.")

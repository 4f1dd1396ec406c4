"""Questions that an agent no longer asks, and those that only lose sight of whoever passed them on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, CommitResult, OpenRequest, Request
from fidelio.orchestrator.executors.contract import AgentQuestion, Reply, Reporter, Turn, TurnResult
from fidelio.orchestrator.service.service import AgentService
from tests.orchestrator.adoption import MISSING_PROCESS, AdoptingExecutor
from tests.orchestrator.fakes import TIMEOUT_SECONDS, OrchestratorHarness, TurnFunction, start, wait_until, wait_until_finished
from tests.support import proves

MAY_I = AgentQuestion(key="1", kind="permission", text="May I sing?", options=(("yes", "Go on"), ("no", "Stop")))
MAY_I_TOO = AgentQuestion(key="2", kind="question", text="And dance?")


async def gone(task: asyncio.Task[Reply]) -> None:
    task.cancel()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await asyncio.wait({task})
    assert task.cancelled()


class Fickle:
    """Asks, thinks better of it when told so, and then works on until it may end."""

    def __init__(self, *others: AgentQuestion) -> None:
        self._others = others
        self.withdraw, self.withdrawn, self.go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def part(self, _: Turn, reporter: Reporter) -> TurnResult:
        asking = asyncio.create_task(reporter.ask(MAY_I))
        others = [asyncio.create_task(reporter.ask(other)) for other in self._others]
        await self.withdraw.wait()
        await gone(asking)
        self.withdrawn.set()
        replies = [(await other).text for other in others]
        await self.go_on.wait()
        await reporter.report_message("Never mind.")
        return TurnResult(text="".join(replies) or "silence")


async def asked(harness: OrchestratorHarness, wanted: int = 1) -> dict[str, Request]:
    """Everything that was asked, by its text, once there is so much of it."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        position = await harness.ledger.wait(after=-1, timeout=0)
        while len(found := (await harness.ledger.requests(state=None)).items) < wanted:
            position = await harness.ledger.wait(after=position, timeout=TIMEOUT_SECONDS)
    return {request.question: request for request in found}


@proves("orchestrator.questions-withdrawn")
async def test_a_question_that_the_agent_withdraws_is_dismissed_while_the_agent_works_on(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    fickle = Fickle()
    harness.actor.part = fickle.part
    await start(hosted, "aria")
    waiting = await wait_until(hosted, "aria", lambda session: session.question is not None)

    fickle.withdraw.set()
    working = await wait_until(hosted, "aria", lambda session: session.question is None)
    request = await harness.ledger.request(waiting.question or "")
    fickle.go_on.set()
    (session,) = await wait_until_finished(hosted, "aria")

    assert (working.run.state, request.state, request.answered_by) == ("running", "dismissed", "agent")
    assert session.run.state == "succeeded"


@proves("orchestrator.questions-withdrawn")
async def test_another_question_of_the_agent_still_waits(harness: OrchestratorHarness, hosted: AgentService) -> None:
    fickle = Fickle(MAY_I_TOO)
    harness.actor.part = fickle.part
    await start(hosted, "aria")
    questions = await asked(harness, 2)

    fickle.withdraw.set()
    await wait_until(hosted, "aria", lambda session: session.question == questions["And dance?"].id)
    fickle.go_on.set()
    await hosted.answer("aria", text="Please.", by="me", channel="cli")
    await wait_until_finished(hosted, "aria")

    assert (await hosted.result("aria")).text == "Please."


class Slow:
    """A ledger that takes its time to say that a question was recorded."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self.recorded, self.go_on = ledger, asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._ledger, name)

    async def commit(self, *changes: Change) -> tuple[CommitResult, ...]:
        done = await self._ledger.commit(*changes)
        if any(isinstance(request, OpenRequest) for change in changes for request in change.requests):
            self.recorded.set()
            await self.go_on.wait()
        return done


@proves("orchestrator.questions-withdrawn")
async def test_a_question_that_is_withdrawn_while_it_is_opened_is_dismissed(harness: OrchestratorHarness) -> None:
    slow = Slow(harness.ledger)
    harness.ledger = slow  # type: ignore[assignment]  # the fake delegates to the ledger

    async def part(_: Turn, reporter: Reporter) -> TurnResult:
        asking = asyncio.create_task(reporter.ask(MAY_I))
        await slow.recorded.wait()
        asking.cancel()
        slow.go_on.set()
        await gone(asking)
        await reporter.report_message("Never mind.")
        return TurnResult(text=(await harness.ledger.requests(state=None)).items[0].state)

    harness.actor.part = part
    service = harness.service()
    async with harness.host(service):
        await start(service, "aria")
        await wait_until_finished(service, "aria")

    assert (await service.result("aria")).text == "dismissed"


@proves("orchestrator.questions-withdrawn")
async def test_an_answer_that_came_first_does_not_keep_the_run_waiting(
    harness: OrchestratorHarness, hosted: AgentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(_: str) -> Request:
        await asyncio.Event().wait()
        raise AssertionError

    fickle = Fickle()
    harness.actor.part = fickle.part
    monkeypatch.setattr(hosted.context.inbox, "wait_until_closed", deaf)
    await start(hosted, "aria")
    waiting = await wait_until(hosted, "aria", lambda session: session.question is not None)
    await hosted.answer("aria", option="yes", by="me", channel="cli")

    fickle.withdraw.set()
    working = await wait_until(hosted, "aria", lambda session: session.question is None)
    fickle.go_on.set()
    (session,) = await wait_until_finished(hosted, "aria")

    assert (working.run.state, session.run.state) == ("running", "succeeded")
    assert (await harness.ledger.request(waiting.question or "")).state == "answered"


def with_process(part: TurnFunction) -> TurnFunction:
    async def having(turn: Turn, reporter: Reporter) -> TurnResult:
        await reporter.report_process(MISSING_PROCESS)
        return await part(turn, reporter)

    return having


async def through_two_hosts(
    harness: OrchestratorHarness, first: TurnFunction, second: TurnFunction, until_left: Callable[[], object]
) -> AgentService:
    harness.actor = AdoptingExecutor(part=with_process(first), again=second)
    service = harness.service()
    async with harness.host(service):
        await start(service, "aria")
        await until_left()  # type: ignore[misc]  # what the first host has to see before it goes
    return service


async def asking(turn: Turn, reporter: Reporter) -> TurnResult:
    return TurnResult(text=(await reporter.ask(MAY_I)).option)


@proves("orchestrator.questions-withdrawn", "orchestrator.questions")
async def test_a_question_stays_open_when_only_the_host_goes(harness: OrchestratorHarness) -> None:
    service = await through_two_hosts(harness, asking, asking, lambda: asked(harness))
    (request,) = (await harness.ledger.requests()).items

    async with harness.host(service):
        await service.answer("aria", option="yes", by="me", channel="cli")
        await wait_until_finished(service, "aria")

    assert (await service.result("aria")).text == "yes"
    assert [one.id for one in (await harness.ledger.requests(state=None)).items] == [request.id]


@proves("orchestrator.questions-withdrawn", "orchestrator.adopt")
async def test_a_withdrawn_question_that_is_replayed_is_withdrawn_again(harness: OrchestratorHarness) -> None:
    before = Fickle()

    async def withdrawn() -> None:
        await asked(harness)
        before.withdraw.set()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await before.withdrawn.wait()

    async def telling_again(_: Turn, reporter: Reporter) -> TurnResult:
        asking = asyncio.create_task(reporter.ask(MAY_I))
        done, _still = await asyncio.wait({asking}, timeout=0.2)  # the point is that nothing happens meanwhile
        await gone(asking)
        return TurnResult(text=f"{len(done)} answers")

    service = await through_two_hosts(harness, before.part, telling_again, withdrawn)
    async with harness.host(service):
        await wait_until_finished(service, "aria")

    assert (await service.result("aria")).text == "0 answers"


@proves("orchestrator.questions-end")
async def test_stopping_a_run_dismisses_its_question(harness: OrchestratorHarness, hosted: AgentService) -> None:
    harness.actor.part = asking
    await start(hosted, "aria")
    await asked(harness)

    await hosted.stop("aria", by="me")

    (request,) = (await harness.ledger.requests(state=None)).items
    assert (request.state, request.answered_by) == ("dismissed", "host")

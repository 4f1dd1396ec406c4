"""What agents ask people."""

from __future__ import annotations

import asyncio

import pytest

from fidelio.errors import UsageProblem
from fidelio.inbox import Inbox
from fidelio.ledger import open_ledger
from fidelio.orchestrator.blueprints.model import Limits
from fidelio.orchestrator.executors.contract import AgentQuestion, Reporter, Turn, TurnResult
from fidelio.orchestrator.record.record import RUN_WAITING
from fidelio.orchestrator.service.service import AgentService
from tests.orchestrator.fakes import OrchestratorHarness, start, wait_until, wait_until_finished
from tests.support import proves

MAY_I = AgentQuestion(key="1", kind="permission", text="May I sing?", options=(("yes", "Go on"), ("no", "Stop")))
HOW = AgentQuestion(key="how\n" * 100, kind="question", text="How loud?")


async def asking(turn: Turn, reporter: Reporter) -> TurnResult:
    reply = await reporter.ask(MAY_I)
    return TurnResult(text=f"{reply.option}/{reply.text}")


async def asking_twice_at_once(turn: Turn, reporter: Reporter) -> TurnResult:
    may, how = await asyncio.gather(reporter.ask(MAY_I), reporter.ask(HOW))
    return TurnResult(text=f"{may.option}, {how.text}")


@proves("orchestrator.questions", "orchestrator.wait")
async def test_an_agent_waits_for_an_answer_and_goes_on_with_it(harness: OrchestratorHarness, hosted: AgentService) -> None:
    harness.actor.part = asking
    await start(hosted, "aria")

    (waiting,) = await hosted.wait(["aria"], seconds=20)
    (request,) = (await hosted.context.inbox.list_requests()).items
    await hosted.answer("aria", option="yes", by="person:anna", channel="cli")
    (session,) = await wait_until_finished(hosted, "aria")

    assert (waiting.status, waiting.run.state, waiting.question) == ("running", "waiting", request.id)
    assert (request.kind, request.question, [one["id"] for one in request.options]) == (
        "permission",
        "May I sing?",
        ["yes", "no"],
    )
    assert (session.run.state, session.question) == ("succeeded", None)
    assert (await hosted.result("aria")).text == "yes/"


@proves("orchestrator.questions")
async def test_an_answer_from_another_process_is_heard(harness: OrchestratorHarness, hosted: AgentService) -> None:
    harness.actor.part = asking
    await start(hosted, "aria")
    waiting = await wait_until(hosted, "aria", lambda session: session.question is not None)

    async with await open_ledger(harness.home.ledger) as other:
        await Inbox(other).answer(waiting.question or "", "no", by="person:anna", channel="page")
    await wait_until_finished(hosted, "aria")

    assert (await hosted.result("aria")).text == "no/"


@proves("orchestrator.questions")
async def test_several_questions_are_answered_in_any_order(harness: OrchestratorHarness, hosted: AgentService) -> None:
    harness.actor.part = asking_twice_at_once
    await start(hosted, "aria")
    waiting = await wait_until(hosted, "aria", lambda session: session.question is not None)
    texts: dict[str, str] = {}
    async with asyncio.timeout(20):
        async for event in harness.ledger.follow(waiting.id, types=(RUN_WAITING,)):
            asked = await harness.ledger.request(event.body["request"])
            texts[asked.kind] = asked.id
            if len(texts) == 2:
                break

    await hosted.answer("aria", text="Softly.", request=texts["question"], by="me", channel="cli")
    await hosted.answer("aria", option="yes", request=texts["permission"], by="me", channel="cli")
    await wait_until_finished(hosted, "aria")

    assert (await hosted.result("aria")).text == "yes, Softly."


@proves("orchestrator.questions")
async def test_the_next_turn_may_ask_the_same_again(harness: OrchestratorHarness, hosted: AgentService) -> None:
    harness.actor.part = asking
    await start(hosted, "aria")
    for answer in ("yes", "no"):
        await wait_until(hosted, "aria", lambda session: session.question is not None)
        await hosted.answer("aria", option=answer, by="me", channel="cli")
        await wait_until(hosted, "aria", lambda session: session.status == "finished")
        assert (await hosted.result("aria")).text == f"{answer}/"
        if answer == "yes":
            await hosted.resume("aria", "Again.")


@proves("orchestrator.questions-end")
async def test_a_question_of_a_stopped_run_is_dismissed(harness: OrchestratorHarness, hosted: AgentService) -> None:
    harness.actor.part = asking
    await start(hosted, "aria")
    waiting = await wait_until(hosted, "aria", lambda session: session.question is not None)

    stopped = await hosted.stop("aria", by="me")

    assert (stopped.run.state, stopped.question) == ("stopped", None)
    assert (await harness.ledger.request(waiting.question or "")).state == "dismissed"
    assert (await hosted.context.inbox.list_requests()).items == ()


@proves("orchestrator.patience")
async def test_a_run_that_waits_for_a_person_does_not_run_out_of_time(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    harness.blueprints.add("brief", limits=Limits(wall_seconds=0.6))
    harness.actor.part = asking
    await start(hosted, "aria", blueprint="brief")
    await wait_until(hosted, "aria", lambda session: session.question is not None)
    # Longer than the limit of the run: that this time does not count is what is tested.
    await asyncio.sleep(0.8)

    await hosted.answer("aria", option="yes", by="me", channel="cli")
    (session,) = await wait_until_finished(hosted, "aria")
    assert session.run.state == "succeeded"


@proves("orchestrator.questions")
async def test_answering_what_was_not_asked_is_refused(harness: OrchestratorHarness, hosted: AgentService) -> None:
    await start(hosted, "aria")
    await wait_until_finished(hosted, "aria")

    with pytest.raises(UsageProblem, match="asks nothing"):
        await hosted.answer("aria", option="yes", by="me", channel="cli")


@proves("orchestrator.questions", "orchestrator.bounded")
async def test_a_question_about_a_whole_file_is_cut_to_what_a_person_can_look_at(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    async def part(turn: Turn, reporter: Reporter) -> TurnResult:
        detail = {"content": "x" * 2_000_000, "odd": "\0 \ud83d"}
        reply = await reporter.ask(AgentQuestion(key="\0", kind="question", text="y" * 200_000, detail=detail))
        return TurnResult(text=reply.text)

    harness.actor.part = part
    await start(hosted, "aria")
    waiting = await wait_until(hosted, "aria", lambda session: session.question is not None)
    request = await harness.ledger.request(waiting.question or "")
    await hosted.answer("aria", text="Fine.", by="me", channel="cli")
    await wait_until_finished(hosted, "aria")

    assert len(request.question) == 20_000
    assert request.detail["size"] > 2_000_000
    assert (await hosted.result("aria")).text == "Fine."

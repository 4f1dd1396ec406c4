"""What happens in a turn, told as it is seen from outside."""

from __future__ import annotations

import asyncio

import pytest

from fidelio.errors import AgentBusy, ExecutorFailure, UsageProblem
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Limits
from fidelio.orchestrator.executors.contract import Reporter, Turn, TurnResult
from fidelio.orchestrator.record.model import Usage
from fidelio.orchestrator.record.record import AgentRecord, decode_record, fold
from fidelio.orchestrator.service.service import AgentService
from tests.orchestrator.fakes import OrchestratorHarness, PausedTurn, start, wait_until, wait_until_finished
from tests.support import proves


@proves("orchestrator.result", "orchestrator.status")
async def test_a_turn_is_carried_out_and_its_result_can_be_read(harness: OrchestratorHarness, hosted: AgentService) -> None:
    await start(hosted, "aria", "Sing.")
    (session,) = await wait_until_finished(hosted, "aria")
    result = await hosted.result("aria")

    assert (session.status, session.run.state, result.text) == ("finished", "succeeded", "Sing.")
    assert session.conversation == harness.actor.turns[0].fresh


@proves("orchestrator.status", "orchestrator.result")
async def test_a_resumed_session_is_running_again_and_its_result_is_the_new_one(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    await start(hosted, "aria", "Sing.")
    await wait_until_finished(hosted, "aria")
    paused = PausedTurn()
    harness.actor.part = paused.part

    resumed = await hosted.resume("aria", "Louder.")

    assert (resumed.status, resumed.run.number) == ("running", 2)
    with pytest.raises(AgentBusy, match="still running"):
        await hosted.result("aria")
    paused.go_on.set()
    await wait_until_finished(hosted, "aria")
    assert (await hosted.result("aria")).text == "done: Louder."
    assert (await hosted.result("aria", run="1")).text == "Sing."
    assert (await hosted.result("aria", run=resumed.run.id)).text == "done: Louder."
    assert [run.state for run in await hosted.runs("aria")] == ["succeeded", "succeeded"]
    assert harness.actor.turns[1].conversation == harness.actor.turns[0].fresh
    with pytest.raises(UsageProblem, match="runs 1 to 2"):
        await hosted.result("aria", run="3")


@proves("orchestrator.result")
async def test_a_result_is_kept_whole_however_long_it_is(harness: OrchestratorHarness, hosted: AgentService) -> None:
    words = "la " * 100_000 + "\0 and half a pair \ud83d"

    async def part(turn: Turn, reporter: Reporter) -> TurnResult:
        await reporter.report_message(words)
        await reporter.report_tool_call("\ud83d", "sing\0", {"what": "half a pair \ud83d"})
        return TurnResult(text=words, data=["\ud83d"])

    harness.actor.part = part
    session = await start(hosted, "aria", "x" * 200_000)
    await wait_until_finished(hosted, "aria")

    assert (await hosted.result("aria")).text == words.replace("\0", "\ufffd").replace("\ud83d", "?")
    assert (await hosted.result("aria")).data == ["?"]
    assert harness.actor.turns[0].prompt == "x" * 200_000
    assert max(len(event.raw or "") for event in await hosted.events("aria")) < 2_000
    assert len(str((await harness.ledger.session(session.id)).record)) < 2_000


@proves("orchestrator.replay")
async def test_the_stored_record_is_what_the_events_add_up_to(harness: OrchestratorHarness, hosted: AgentService) -> None:
    async def part(turn: Turn, reporter: Reporter) -> TurnResult:
        await reporter.report_conversation("c")
        await reporter.report_tool_call("1", "sing", {"tempo": 3})
        await reporter.report_tool_result("1", ok=True, text="la")
        await reporter.report_usage(Usage(turns=2, input_tokens=5))
        return TurnResult(text="done")

    harness.actor.part = part
    session = await start(hosted, "aria")
    await wait_until_finished(hosted, "aria")
    await hosted.resume("aria", "Again.")
    await wait_until_finished(hosted, "aria")

    stored = decode_record((await harness.ledger.session(session.id)).raw)
    assert fold(AgentRecord(), await harness.ledger.events(session.id)) == stored
    assert stored.run.number == 2


@proves("orchestrator.one-run")
async def test_a_session_at_work_is_not_resumed(harness: OrchestratorHarness, hosted: AgentService) -> None:
    paused = PausedTurn()
    harness.actor.part = paused.part
    await start(hosted, "aria")

    with pytest.raises(AgentBusy, match="send_agent_message"):
        await hosted.resume("aria", "Louder.")


@proves("orchestrator.one-run")
async def test_of_many_who_resume_at_once_one_does(harness: OrchestratorHarness, hosted: AgentService) -> None:
    await start(hosted, "aria")
    await wait_until_finished(hosted, "aria")

    answers = await asyncio.gather(*(hosted.resume("aria", str(number)) for number in range(6)), return_exceptions=True)

    assert sum(isinstance(answer, AgentBusy) for answer in answers) == 5
    await wait_until_finished(hosted, "aria")
    assert len(harness.actor.turns) == 2


@proves("orchestrator.messages")
async def test_messages_to_a_busy_session_are_its_next_turn(harness: OrchestratorHarness, hosted: AgentService) -> None:
    paused = PausedTurn()
    harness.actor.part = paused.part
    await start(hosted, "aria", "Sing.")
    async with asyncio.timeout(10):
        await paused.entered.wait()
    await hosted.send("aria", "Louder.", by="me")
    waiting = await hosted.send("aria", "x" * 10_000, by="me")
    assert (waiting.queued_messages, waiting.run.number) == (2, 1)
    paused.go_on.set()

    (session,) = await wait_until_finished(hosted, "aria")

    assert (session.run.number, session.queued_messages) == (2, 0)
    assert harness.actor.turns[1].prompt == "Louder.\n\n" + "x" * 10_000


@proves("orchestrator.messages")
async def test_a_message_to_a_session_at_rest_begins_a_turn_at_once(harness: OrchestratorHarness, hosted: AgentService) -> None:
    await start(hosted, "aria")
    await wait_until_finished(hosted, "aria")

    sent = await hosted.send("aria", "Louder.")
    await wait_until_finished(hosted, "aria")

    assert (sent.status, sent.run.number) == ("running", 2)
    assert (await hosted.result("aria")).text == "Louder."


@proves("orchestrator.messages")
async def test_a_stop_does_not_begin_the_next_turn_and_keeps_its_messages(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    paused = PausedTurn()
    harness.actor.part = paused.part
    await start(hosted, "aria", "Sing.")
    async with asyncio.timeout(10):
        await paused.entered.wait()
    await hosted.send("aria", "Louder.")

    stopped = await hosted.stop("aria", by="me")
    paused.go_on.set()
    await hosted.resume("aria", "Again.")
    await wait_until_finished(hosted, "aria")

    assert (stopped.run.state, stopped.queued_messages) == ("stopped", 1)
    assert harness.actor.turns[1].prompt == "Louder.\n\nAgain."


@proves("orchestrator.messages", "orchestrator.bounded")
async def test_a_session_takes_only_so_many_messages(service: AgentService) -> None:
    await start(service, "aria")
    for number in range(100):
        await service.send("aria", str(number))

    with pytest.raises(AgentBusy, match="100 messages"):
        await service.send("aria", "one more")


@proves("orchestrator.result-error")
async def test_the_result_of_a_run_that_failed_is_an_error_with_what_was_said(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    async def part(turn: Turn, reporter: Reporter) -> TurnResult:
        await reporter.report_message("I begin.")
        raise ExecutorFailure("The voice broke.", reason="exit.3")

    harness.actor.part = part
    await start(hosted, "aria")
    (session,) = await wait_until_finished(hosted, "aria")

    with pytest.raises(ExecutorFailure, match=r"failed \(exit\.3\): The voice broke") as failure:
        await hosted.result("aria")
    assert (session.status, session.run.state, session.run.reason) == ("finished", "failed", "exit.3")
    assert (failure.value.reason, failure.value.partial) == ("exit.3", "I begin.")


@proves("orchestrator.result-error")
async def test_a_directory_that_vanished_before_its_turn_is_the_reason_of_the_failure(
    harness: OrchestratorHarness, service: AgentService
) -> None:
    await start(service, "aria")
    harness.project.rmdir()

    async with harness.host(service):
        (session,) = await wait_until_finished(service, "aria")

    assert (session.run.state, session.run.reason) == ("failed", "directory.missing")
    assert harness.actor.turns == []


@proves("orchestrator.limits")
@pytest.mark.parametrize(
    ("limits", "usage", "reason"),
    [
        (Limits(turns=3), Usage(turns=4), "limit.turns"),
        (Limits(tokens=10), Usage(input_tokens=6, output_tokens=6), "limit.tokens"),
        (Limits(cost_usd=0.5), Usage(cost_usd=0.6), "limit.cost_usd"),
    ],
)
async def test_a_run_is_ended_at_its_limit(
    harness: OrchestratorHarness, hosted: AgentService, limits: Limits, usage: Usage, reason: str
) -> None:
    async def part(turn: Turn, reporter: Reporter) -> TurnResult:
        await reporter.report_message("I begin.")
        await reporter.report_usage(usage)
        return TurnResult(text="too much")

    harness.blueprints.add("modest", limits=limits)
    harness.actor.part = part
    await start(hosted, "aria", blueprint="modest")
    (session,) = await wait_until_finished(hosted, "aria")

    assert (session.run.state, session.run.reason, session.run.usage) == ("failed", reason, usage)


@proves("orchestrator.limits")
async def test_an_agent_that_does_not_listen_is_interrupted_at_its_limit(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    async def part(turn: Turn, reporter: Reporter) -> TurnResult:
        try:
            await reporter.report_output(11)
        except ExecutorFailure:
            await asyncio.Event().wait()
        return TurnResult(text="too much")

    harness.blueprints.add("modest", limits=Limits(output_bytes=10))
    harness.actor.part = part
    await start(hosted, "aria", blueprint="modest")

    (session,) = await wait_until_finished(hosted, "aria")
    assert session.run.reason == "limit.output_bytes"


@proves("orchestrator.limits")
async def test_a_run_is_ended_when_its_time_is_up(harness: OrchestratorHarness, hosted: AgentService) -> None:
    harness.blueprints.add("brief", limits=Limits(wall_seconds=0.05))
    harness.actor.part = PausedTurn().part
    await start(hosted, "aria", blueprint="brief")

    (session,) = await wait_until_finished(hosted, "aria")
    assert (session.run.state, session.run.reason) == ("failed", "limit.wall_seconds")


@proves("orchestrator.usage")
async def test_usage_and_tool_calls_can_be_seen_while_the_agent_works(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    paused = PausedTurn()

    async def part(turn: Turn, reporter: Reporter) -> TurnResult:
        await reporter.report_usage(Usage(turns=1, cost_usd=0.25))
        await reporter.report_tool_call("1", "sing", {"tempo": 3})
        await reporter.report_tool_result("1", ok=True, text="la")
        return await paused.part(turn, reporter)

    harness.actor.part = part
    await start(hosted, "aria")
    working = await wait_until(hosted, "aria", lambda session: session.run.tool_calls == 1)
    paused.go_on.set()
    (session,) = await wait_until_finished(hosted, "aria")

    assert (working.run.usage.cost_usd, working.run.last_activity) == (0.25, "uses sing")
    assert (session.run.usage.turns, session.run.tool_calls) == (1, 1)
    assert session.run.started_at is not None
    assert session.run.ended_at is not None


@proves("orchestrator.servers")
async def test_servers_given_with_the_start_are_there_in_every_turn_and_in_no_event(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    server = McpServer(url="http://127.0.0.1:1/mcp", headers={"Authorization": "Bearer secret"})
    harness.blueprints.add("worker", mcp_servers={"own": McpServer(command="x")})
    await start(hosted, "aria", blueprint="worker", mcp_servers={"fidelio": server})
    await wait_until_finished(hosted, "aria")
    await hosted.resume("aria", "Again.")
    await wait_until_finished(hosted, "aria")

    assert [turn.blueprint.mcp_servers["fidelio"] for turn in harness.actor.turns] == [server, server]
    assert all("own" in turn.blueprint.mcp_servers for turn in harness.actor.turns)
    assert not any("secret" in (event.raw or "") for event in await hosted.events("aria"))

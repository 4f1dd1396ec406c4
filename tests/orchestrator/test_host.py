"""The one process that carries out agents, and the next one."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from fidelio.app.agents import open_agents
from fidelio.errors import ConversationLost
from fidelio.ledger import open_ledger
from fidelio.ledger.model import Change, Lease, NewEvent, NewJob, Retry
from fidelio.locks import worker_lock
from fidelio.orchestrator.executors.contract import Availability, Reporter, Turn, TurnResult
from fidelio.orchestrator.record.model import StartAgent
from fidelio.orchestrator.record.record import AGENT_SAID
from fidelio.orchestrator.record.rules import MAX_CONSECUTIVE_RESUMES
from fidelio.orchestrator.record.unit_of_work import RUN_JOB
from fidelio.orchestrator.runs.host_process import spawn_worker, work_until_idle
from fidelio.orchestrator.service.service import AgentService
from fidelio.settings import AgentLimits, load_settings
from tests.orchestrator.fakes import OrchestratorHarness, PausedTurn, echo, start, wait_until_finished
from tests.support import proves


@proves("orchestrator.host")
async def test_of_two_hosts_one_carries_out_and_the_other_takes_over(
    harness: OrchestratorHarness, service: AgentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fidelio.orchestrator.runs.host._RETRY_SECONDS", 0.01)
    async with harness.host(service) as first:
        await start(service, "first")
        await wait_until_finished(service, "first")
        async with harness.host(harness.service()) as other:
            await start(service, "aria")
            await wait_until_finished(service, "aria")
            hosting = [other.is_hosting]
            await first.__aexit__(None, None, None)
            await start(service, "bass")
            await wait_until_finished(service, "bass")
            hosting.append(other.is_hosting)
    assert hosting == [False, True]
    assert len(harness.actor.turns) == 3


@proves("orchestrator.host", "orchestrator.durable-start")
async def test_what_was_asked_for_without_a_host_is_carried_out_by_the_next_in_order(harness: OrchestratorHarness) -> None:
    harness.limits = AgentLimits(per_project=1)
    service = harness.service()
    for name in ("one", "two", "three"):
        await start(service, name, name)

    async with harness.host(service):
        await wait_until_finished(service, "one", "two", "three")

    assert [turn.prompt for turn in harness.actor.turns] == ["one", "two", "three"]


@proves("orchestrator.fair")
async def test_no_more_are_at_work_than_was_set(harness: OrchestratorHarness) -> None:
    harness.limits = AgentLimits(per_project=2, total=3)
    service = harness.service()
    other = harness.project.parent / "other"
    other.mkdir()
    at_work: list[str] = []
    most: list[int] = []

    async def part(turn: Turn, reporter: Reporter) -> TurnResult:
        at_work.append(str(turn.directory))
        most.append(max(len(at_work), 10 * at_work.count(str(harness.project))))
        await reporter.report_message("la")
        at_work.remove(str(turn.directory))
        return TurnResult(text="la")

    harness.actor.part = part
    for number in range(6):
        await start(service, f"here{number}")
        await start(service, f"there{number}", project=str(other))
    names = [session.id for session in (await service.list()).items]
    async with harness.host(service):
        await wait_until_finished(service, *names)

    assert len(most) == 12
    assert max(most) <= 20
    assert all(count <= 3 for count in most if count < 10)


@proves("orchestrator.host-leaves")
@pytest.mark.parametrize(("stop", "reason"), [(False, "stop.host"), (True, "stop.requested")])
async def test_a_turn_in_the_process_of_a_host_that_is_ended_is_stopped(
    harness: OrchestratorHarness, service: AgentService, *, stop: bool, reason: str
) -> None:
    paused = PausedTurn()
    harness.actor.part = paused.part
    async with harness.host(service, grace=0.05):
        await start(service, "aria")
        async with asyncio.timeout(10):
            await paused.entered.wait()
        if stop:
            await service.request_stop("aria", by="cli")

    session = await service.find("aria")
    assert (session.status, session.run.state, session.run.reason) == ("finished", "stopped", reason)
    assert paused.left == [session.run.id]


@proves("orchestrator.host-leaves")
async def test_a_turn_that_ends_within_the_grace_is_not_lost(harness: OrchestratorHarness, service: AgentService) -> None:
    paused = PausedTurn()
    harness.actor.part = paused.part
    async with harness.host(service, grace=20):
        await start(service, "aria")
        async with asyncio.timeout(10):
            await paused.entered.wait()
        asyncio.get_running_loop().call_later(0.05, paused.go_on.set)

    assert (await service.find("aria")).run.state == "succeeded"


@proves("orchestrator.resume-lost", "orchestrator.once")
async def test_a_run_that_was_cut_off_is_resumed_as_a_new_run_where_the_blueprint_allows_it(
    harness: OrchestratorHarness, service: AgentService
) -> None:
    harness.blueprints.add("steady", resume_lost=True)
    paused = PausedTurn()
    harness.actor.part = paused.part
    async with harness.host(service, grace=0.05):
        await start(service, "aria", "Sing.", blueprint="steady")
        async with asyncio.timeout(10):
            await paused.entered.wait()
    harness.actor.part = echo
    async with harness.host(service):
        await wait_until_finished(service, "aria")

    first, second = harness.actor.turns
    assert [run.state for run in await service.runs("aria")] == ["stopped", "succeeded"]
    assert second.run != first.run
    assert second.conversation == first.fresh
    assert "cut off" in second.prompt
    assert "Sing." in second.prompt


@proves("orchestrator.resume-lost")
async def test_a_run_that_was_cut_off_before_it_began_is_begun_as_asked(
    harness: OrchestratorHarness, service: AgentService
) -> None:
    harness.blueprints.add("steady", resume_lost=True)
    paused = PausedTurn()

    async def silent(turn: Turn, reporter: Reporter) -> TurnResult:
        paused.entered.set()
        await paused.go_on.wait()
        return TurnResult(text="never")

    async def forgetful(turn: Turn, reporter: Reporter) -> TurnResult:
        if turn.conversation is not None:
            raise ConversationLost("Who?", reason="conversation-lost")
        return await echo(turn, reporter)

    harness.actor.part = silent
    async with harness.host(service, grace=0.05):
        await start(service, "aria", "Sing.", blueprint="steady")
        async with asyncio.timeout(10):
            await paused.entered.wait()
    harness.actor.part = forgetful
    async with harness.host(service):
        await wait_until_finished(service, "aria")

    assert [turn.conversation for turn in harness.actor.turns] == [None, harness.actor.turns[0].fresh, None]
    assert harness.actor.turns[2].prompt == "Sing."
    assert (await service.result("aria")).text == "Sing."


@proves("orchestrator.resume-lost", "orchestrator.once")
async def test_a_conversation_that_was_known_once_is_not_begun_anew(
    harness: OrchestratorHarness, service: AgentService
) -> None:
    harness.blueprints.add("steady", resume_lost=True)
    paused = PausedTurn()

    async def forgetful(turn: Turn, reporter: Reporter) -> TurnResult:
        raise ConversationLost("Who?", reason="conversation-lost")

    async with harness.host(service, grace=0.05):
        await start(service, "aria", "Sing.", blueprint="steady")
        await wait_until_finished(service, "aria")
        harness.actor.part = paused.part
        await service.resume("aria", "Louder.")
        async with asyncio.timeout(10):
            await paused.entered.wait()
    harness.actor.part = forgetful
    async with harness.host(service):
        (session,) = await wait_until_finished(service, "aria")

    assert (session.run.state, session.run.reason) == ("failed", "conversation-lost")
    assert len(harness.actor.turns) == 3


@proves("orchestrator.resume-lost")
async def test_a_run_that_is_cut_off_every_time_is_not_resumed_for_ever(
    harness: OrchestratorHarness, service: AgentService
) -> None:
    harness.blueprints.add("steady", resume_lost=True)
    await start(service, "aria", blueprint="steady")
    for _ in range(MAX_CONSECUTIVE_RESUMES + 1):
        paused = PausedTurn()
        harness.actor.part = paused.part
        async with harness.host(service, grace=0.01):
            async with asyncio.timeout(10):
                await paused.entered.wait()

    session = await service.find("aria")
    assert (session.run.number, session.run.state) == (MAX_CONSECUTIVE_RESUMES + 1, "stopped")


@proves("orchestrator.lost", "orchestrator.once")
async def test_an_executor_that_breaks_in_an_unforeseen_way_does_not_begin_again(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    async def broken(turn: Turn, reporter: Reporter) -> TurnResult:
        await reporter.report_message("I begin.")
        raise ZeroDivisionError("a slip of ours")

    harness.actor.part = broken
    await start(hosted, "aria")
    (session,) = await wait_until_finished(hosted, "aria")

    assert (session.run.state, len(harness.actor.turns)) == ("lost", 1)
    assert "a slip of ours" in session.run.detail


@proves("orchestrator.status")
async def test_a_run_that_cannot_begin_in_an_unforeseen_way_is_not_queued_for_ever(
    harness: OrchestratorHarness, service: AgentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: object) -> Availability:
        raise ZeroDivisionError("a slip of ours")

    monkeypatch.setattr("fidelio.ledger.jobs.FIRST_BACKOFF_MS", 1)
    await start(service, "aria")
    monkeypatch.setattr(harness.actor, "availability", broken)
    async with harness.host(service):
        (session,) = await wait_until_finished(service, "aria")

    assert (session.run.state, session.run.reason) == ("failed", "begin.failed")
    assert "a slip of ours" in session.run.detail


@proves("orchestrator.many")
async def test_two_hundred_sessions_at_once_lose_nothing(harness: OrchestratorHarness, hosted: AgentService) -> None:
    together = asyncio.Barrier(200)

    async def part(turn: Turn, reporter: Reporter) -> TurnResult:
        await together.wait()
        for number in range(3):
            await reporter.report_message(f"{turn.prompt} {number}")
        return TurnResult(text=turn.prompt)

    harness.actor.part = part
    names = [f"s{number}" for number in range(200)]
    await asyncio.gather(*(start(hosted, name, name) for name in names))
    sessions = await hosted.wait(names, mode="all", seconds=60)

    assert {session.run.state for session in sessions} == {"succeeded"}
    for session in sessions:
        said = [event.body["said"]["text"] for event in await hosted.events(session.id) if event.type == "agent.said"]
        assert said == [f"{session.name} {number}" for number in range(3)]


@proves("orchestrator.worker")
async def test_a_worker_does_what_is_there_and_ends(harness: OrchestratorHarness, service: AgentService) -> None:
    await start(service, "aria")

    async with asyncio.timeout(20):
        await work_until_idle(service.context, idle_seconds=0.05)

    assert (await service.find("aria")).run.state == "succeeded"


@proves("orchestrator.worker")
async def test_a_second_worker_exits_at_once(harness: OrchestratorHarness, service: AgentService) -> None:
    lock = worker_lock(harness.home)
    assert lock.acquire()
    await start(service, "aria")

    async with asyncio.timeout(20):
        await work_until_idle(service.context, idle_seconds=60)

    lock.release()
    assert (await service.find("aria")).run.state == "queued"


@proves("orchestrator.worker")
async def test_a_worker_that_outlives_its_parent_does_the_work(tmp_path: Path) -> None:
    settings = load_settings(str(tmp_path / "home"))
    async with await open_ledger(settings.home.ensure().ledger) as ledger:
        service = open_agents(settings, ledger)
        await service.start(StartAgent(name="aria", prompt="Sing.", blueprint="echo", project=str(tmp_path)))
        worker = spawn_worker(settings.home)
        try:
            (session,) = await service.wait(["aria"], str(tmp_path), seconds=40)
            result = await service.result("aria", str(tmp_path))
        finally:
            os.kill(worker, signal.SIGTERM)
            await asyncio.to_thread(os.waitpid, worker, 0)

    assert session.run.state == "succeeded"
    assert "Sing." in result.text


@proves("orchestrator.once")
async def test_a_job_that_is_left_over_from_a_run_that_has_ended_does_nothing(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    await start(hosted, "aria")
    (session,) = await wait_until_finished(hosted, "aria")
    job = NewJob(kind=RUN_JOB, session=session.id, payload={"run": session.run.id})
    await harness.ledger.commit(Change(session=session.id, events=(NewEvent(type="nudge"),), jobs=(job,)))
    await start(hosted, "bass")
    await wait_until_finished(hosted, "bass")

    assert len(harness.actor.turns) == 2
    assert (await hosted.find("aria")).run == session.run


@proves("orchestrator.host", "orchestrator.once")
async def test_a_host_whose_run_was_taken_over_writes_nothing_more(harness: OrchestratorHarness, hosted: AgentService) -> None:
    paused = PausedTurn()
    harness.actor.part = paused.part
    session = await start(hosted, "aria")
    async with asyncio.timeout(10):
        await paused.entered.wait()
    (job,) = await harness.ledger.jobs(session=session.id)
    fence = job.lease_fence
    lease = Lease(job=job.id, kind=RUN_JOB, session=session.id, payload={}, attempt=1, fence=fence, owner="", expires=0)
    await harness.ledger.settle(lease, Retry(due=0, error="Taken over."))
    paused.go_on.set()

    (ended,) = await wait_until_finished(hosted, "aria")
    assert (ended.run.state, len(harness.actor.turns)) == ("lost", 1)
    assert AGENT_SAID not in [event.type for event in await hosted.events("aria")]

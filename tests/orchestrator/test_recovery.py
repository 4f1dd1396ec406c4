"""Processes of agents that outlive their host, and those that do not."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fidelio.clock import now_ms
from fidelio.ledger import open_ledger
from fidelio.orchestrator.record.record import AGENT_SAID
from fidelio.orchestrator.runs.host import AgentHost
from fidelio.orchestrator.service.service import AgentService
from fidelio.processes.spooled import find_marked
from tests.orchestrator.fakes import start, wait_until, wait_until_finished
from tests.orchestrator.hosting_process import kill, real_service, spawn_host
from tests.support import proves


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    return place


@pytest.fixture
async def real(tmp_path: Path, project: Path) -> AsyncIterator[AgentService]:
    """A service with the real executors, and no host."""
    (tmp_path / "home").mkdir()
    async with await open_ledger(tmp_path / "home" / "ledger.db") as ledger:
        yield real_service(ledger, tmp_path / "home", project)


def home_of(service: AgentService) -> Path:
    return service.context.home.path


async def said(service: AgentService, name: str) -> list[str]:
    return [event.body["said"]["text"] for event in await service.events(name) if event.type == AGENT_SAID]


async def gone(run: str) -> None:
    """Returns when no process of the run is left."""
    async with asyncio.timeout(20):
        while find_marked(run):  # noqa: ASYNC110  # a process that is not our child cannot be awaited
            await asyncio.sleep(0.01)


async def at_work(service: AgentService, name: str) -> str:
    """The run of a session whose agent has said its first word."""
    session = await wait_until(service, name, lambda one: one.run.last_activity != "")
    return session.run.id


@proves("orchestrator.adopt", "orchestrator.once")
async def test_a_process_that_outlived_its_host_is_adopted_and_what_it_says_is_recorded_once(
    real: AgentService, project: Path
) -> None:
    host = await asyncio.to_thread(spawn_host, home_of(real), project)
    await start(real, "aria", blueprint="waiting")
    run = await at_work(real, "aria")
    kill(host)
    assert find_marked(run)

    async with AgentHost(real.context):
        (project / "go").touch()
        (session,) = await wait_until_finished(real, "aria")

    assert (session.run.id, session.run.state) == (run, "succeeded")
    assert await said(real, "aria") == ["one", "two"]
    assert find_marked(run) == []


@proves("orchestrator.adopt")
async def test_a_result_that_came_without_a_host_is_not_lost(real: AgentService, project: Path) -> None:
    host = await asyncio.to_thread(spawn_host, home_of(real), project)
    await start(real, "aria", blueprint="waiting")
    run = await at_work(real, "aria")
    kill(host)
    (project / "go").touch()
    await gone(run)

    async with AgentHost(real.context):
        await wait_until_finished(real, "aria")

    assert (await real.result("aria")).text == "sung"
    assert await said(real, "aria") == ["one", "two"]


@proves("orchestrator.adopt", "orchestrator.limits")
async def test_a_result_is_read_however_late_and_an_agent_at_work_is_held_to_its_time(
    real: AgentService, project: Path
) -> None:
    (project / "elsewhere").mkdir()
    host = await asyncio.to_thread(spawn_host, home_of(real), project)
    await start(real, "done", blueprint="brief")
    await start(real, "late", blueprint="brief", project=str(project / "elsewhere"))
    done, late = await at_work(real, "done"), await at_work(real, "late")
    kill(host)
    (project / "go").touch()
    await gone(done)

    tomorrow = real_service(real.context.ledger, home_of(real), project, clock=lambda: now_ms() + 86_400_000)
    async with AgentHost(tomorrow.context):
        _, session = await wait_until_finished(tomorrow, "done", "late")

    assert (await real.result("done")).text == "sung"
    assert (session.run.reason, find_marked(late)) == ("limit.wall_seconds", [])


@proves("orchestrator.lost")
async def test_a_process_that_died_with_its_host_is_lost(real: AgentService, project: Path) -> None:
    host = await asyncio.to_thread(spawn_host, home_of(real), project)
    await start(real, "aria", blueprint="waiting")
    run = await at_work(real, "aria")
    kill(host)
    for process in find_marked(run):
        os.kill(process.pid, signal.SIGKILL)

    async with AgentHost(real.context):
        (session,) = await wait_until_finished(real, "aria")

    assert (session.run.state, session.run.reason) == ("lost", "lost.process")
    assert await said(real, "aria") == ["one"]


@proves("orchestrator.host-leaves", "orchestrator.adopt")
async def test_a_host_that_ends_leaves_processes_at_work_for_the_next(real: AgentService, project: Path) -> None:
    async with AgentHost(real.context):
        await start(real, "aria", blueprint="waiting")
        run = await at_work(real, "aria")
    assert (await real.find("aria")).run.state == "running"
    assert find_marked(run)

    async with AgentHost(real.context):
        (project / "go").touch()
        await wait_until_finished(real, "aria")

    assert (await real.result("aria")).text == "sung"
    assert await said(real, "aria") == ["one", "two"]


@proves("orchestrator.stop")
async def test_stopping_ends_the_process_and_everything_it_started(real: AgentService) -> None:
    async with AgentHost(real.context):
        await start(real, "aria", blueprint="waiting")
        run = await at_work(real, "aria")

        stopped = await real.stop("aria", by="me")

    assert stopped.run.state == "stopped"
    assert find_marked(run) == []
    assert not (home_of(real) / "runs" / stopped.id / "1").exists()


@proves("orchestrator.stop-elsewhere")
async def test_a_process_without_a_host_is_stopped_all_the_same(real: AgentService, project: Path) -> None:
    host = await asyncio.to_thread(spawn_host, home_of(real), project)
    await start(real, "aria", blueprint="waiting")
    run = await at_work(real, "aria")
    kill(host)

    stopped = await real.stop("aria", by="me")

    assert (stopped.run.state, find_marked(run)) == ("stopped", [])


@proves("orchestrator.stop-elsewhere")
async def test_a_stop_without_a_host_is_carried_out_by_the_next_host(real: AgentService, project: Path) -> None:
    host = await asyncio.to_thread(spawn_host, home_of(real), project)
    await start(real, "aria", blueprint="waiting")
    run = await at_work(real, "aria")
    await real.send("aria", "Louder.")
    os.kill(host.pid, signal.SIGSTOP)
    await real._stopper._request_stop(await real.queries.find("aria"), "me", "stop.requested")
    kill(host)

    async with AgentHost(real.context):
        (session,) = await wait_until_finished(real, "aria")

    assert (session.run.state, session.queued_messages, find_marked(run)) == ("stopped", 1, [])


@proves("orchestrator.questions", "orchestrator.adopt")
@pytest.mark.parametrize("answered_before", [True, False])
async def test_a_question_outlives_the_host_that_asked_it(real: AgentService, project: Path, answered_before: bool) -> None:
    host = await asyncio.to_thread(spawn_host, home_of(real), project)
    await start(real, "aria", blueprint="asking")
    asked = (await wait_until(real, "aria", lambda one: one.question is not None)).question
    kill(host)
    if answered_before:
        await real.answer("aria", option="soft", by="me", channel="cli")

    async with AgentHost(real.context):
        if not answered_before:
            assert (await real.find("aria")).question == asked
            await real.answer("aria", option="soft", by="me", channel="cli")
        await wait_until(real, "aria", lambda one: one.status == "finished")

    assert (await real.result("aria")).text == "soft"

"""The queue of runs: each with the job that carries it out, and a slot only while it works."""

from __future__ import annotations

import asyncio

import pytest

from fidelio.errors import AgentSessionNotFound, render
from fidelio.ledger.model import Completion
from fidelio.orchestrator.executors.contract import Reporter, Turn, TurnResult
from fidelio.orchestrator.record.model import AgentSession, Run, RunState
from fidelio.orchestrator.record.unit_of_work import RUN_JOB
from fidelio.orchestrator.runs.admission import explain_waiting
from fidelio.orchestrator.service.service import AgentService
from fidelio.settings import AgentLimits
from tests.orchestrator.fakes import OrchestratorHarness, PausedTurn, echo, start, wait_until_finished
from tests.support import proves

ONE = AgentLimits(per_project=1, total=1)


async def drop_jobs(harness: OrchestratorHarness) -> None:
    """Leave the queued runs as earlier versions did, which queued the job only when the run could begin."""
    while lease := await harness.ledger.claim("earlier", (RUN_JOB,), lease_ms=1_000):
        await harness.ledger.settle(lease, Completion())


async def delete_as_soon_as_it_is_there(service: AgentService, name: str) -> None:
    while True:
        try:
            await service.delete(name)
        except AgentSessionNotFound:
            await asyncio.sleep(0)
        else:
            return


@proves("orchestrator.queued-job")
async def test_every_run_is_queued_with_its_job(harness: OrchestratorHarness, service: AgentService) -> None:
    queued = [(await start(service, "aria")).run.id]
    queued.append((await start(service, "bass", parent="aria")).run.id)
    await service.stop("bass")
    queued += [(await service.resume("bass", "Sing on.")).run.id]
    await service.stop("bass")
    queued += [(await service.send("bass", "Sing on.")).run.id]

    jobs = await harness.ledger.jobs()
    project = str(harness.project)
    assert [(job.kind, job.payload) for job in jobs] == [
        (RUN_JOB, {"run": run, "project": project, "depth": depth}) for run, depth in zip(queued, (0, 1, 1, 1), strict=True)
    ]


@proves("orchestrator.queued-job")
async def test_a_host_queues_the_jobs_that_earlier_versions_did_not_queue(harness: OrchestratorHarness) -> None:
    harness.limits = ONE
    service = harness.service()
    for name in ("one", "two", "three"):
        await start(service, name, name)
    await drop_jobs(harness)
    async with harness.host(service):
        await wait_until_finished(service, "one", "two", "three")

    assert [turn.prompt for turn in harness.actor.turns] == ["one", "two", "three"]
    assert await harness.ledger.jobs() == ()


@proves("orchestrator.fair")
async def test_many_runs_of_a_project_do_not_hide_the_first_run_of_another(
    harness: OrchestratorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fidelio.ledger.paging.PAGE", 3)
    harness.limits = AgentLimits(per_project=1, total=2)
    service = harness.service()
    other = harness.project.parent / "other"
    other.mkdir()
    paused = PausedTurn()

    async def part(turn: Turn, reporter: Reporter) -> TurnResult:
        return await (paused.part if turn.directory == harness.project else echo)(turn, reporter)

    harness.actor.part = part
    for number in range(12):
        await start(service, f"here{number}")
    await start(service, "there", project=str(other))
    async with harness.host(service):
        (session,) = await wait_until_finished(service, "there")

    assert session.run.state == "succeeded"
    assert len(harness.actor.turns) == 2


@proves("orchestrator.freed-slots")
async def test_sessions_that_are_deleted_while_they_start_leave_no_slot_occupied(harness: OrchestratorHarness) -> None:
    harness.limits = ONE
    service = harness.service()
    paused = PausedTurn()
    harness.actor.part = paused.part
    async with harness.host(service), asyncio.timeout(60):
        names = [f"s{number}" for number in range(20)]
        deletions = [delete_as_soon_as_it_is_there(service, name) for name in names]
        await asyncio.gather(*deletions, *(start(service, name) for name in names))
        harness.actor.part = echo
        await start(service, "last")
        (session,) = await wait_until_finished(service, "last")

    assert session.run.state == "succeeded"
    assert await harness.ledger.jobs() == ()


@proves("orchestrator.freed-slots")
async def test_a_session_that_is_erased_under_its_host_frees_its_slot(harness: OrchestratorHarness) -> None:
    harness.limits = ONE
    service = harness.service()
    paused = PausedTurn()
    harness.actor.part = paused.part
    async with harness.host(service):
        session = await start(service, "first")
        async with asyncio.timeout(20):
            await paused.entered.wait()
        harness.actor.part = echo
        await start(service, "second")
        await harness.ledger.erase([session.id], actor="me", reason="Gone.")
        assert (await wait_until_finished(service, "second"))[0].run.state == "succeeded"


@proves("orchestrator.freed-slots")
async def test_a_deleted_session_with_children_and_queued_runs_frees_all_its_slots(
    harness: OrchestratorHarness,
) -> None:
    harness.limits = AgentLimits(per_project=2, total=2)
    service = harness.service()
    paused = PausedTurn()
    harness.actor.part = paused.part
    async with harness.host(service), asyncio.timeout(60):
        await start(service, "parent")
        await paused.entered.wait()
        for number in range(6):
            await start(service, f"child{number}", parent="parent")
            await start(service, f"other{number}")
            await service.send(f"other{number}", "and then this")
        await service.delete_all()
        harness.actor.part = echo
        for name in ("one", "two", "three"):
            await start(service, name)
        sessions = await wait_until_finished(service, "one", "two", "three")

    assert {session.run.state for session in sessions} == {"succeeded"}
    assert await harness.ledger.jobs() == ()


@proves("orchestrator.why-queued")
async def test_a_queued_session_says_which_runs_hold_the_slots(harness: OrchestratorHarness) -> None:
    harness.limits = ONE
    service = harness.service()
    paused = PausedTurn()
    harness.actor.part = paused.part
    alone = await start(service, "alone")
    before = await service.explain_waiting([alone])
    async with harness.host(service), asyncio.timeout(20):
        await paused.entered.wait()
        second = await start(service, "second")
        busy = await service.send("alone", "and then this")
        found = await service.explain_waiting((await service.list()).items)
        await service.delete_all()

    assert before[alone.id] == "Its agent host is being started."
    assert found[second.id] == "alone holds the only slot in this project (FIDELIO_AGENTS_PER_PROJECT)."
    assert found[busy.id] == "Its messages wait until the running turn has ended."


@proves("orchestrator.why-queued")
@pytest.mark.parametrize(
    ("limits", "elsewhere", "reason"),
    [
        (AgentLimits(per_project=1, total=9), 0, "a0 holds the only slot in this project (FIDELIO_AGENTS_PER_PROJECT)."),
        (AgentLimits(per_project=9, total=2), 2, "a0, a1 hold the 2 slots in all projects (FIDELIO_AGENTS_TOTAL)."),
        (AgentLimits(per_project=9, total=9), 2, "The agent host starts it in a moment."),
    ],
)
def test_the_reason_names_the_limit_that_is_reached(limits: AgentLimits, elsewhere: int, reason: str) -> None:
    def agent(name: str, state: RunState, *, project: str = "here", depth: int = 0) -> AgentSession:
        run = Run(id=f"{name}/1", number=1, state=state)
        return AgentSession(id=name, name=name, project=project, blueprint="", executor="", run=run, depth=depth)

    holders = [agent(f"a{at}", "running", project="there" if elsewhere else "here") for at in range(elsewhere or 1)]
    deeper = [agent(f"d{at}", "running", depth=1) for at in range(20)]

    assert explain_waiting(agent("x", "queued"), [*deeper, *holders], limits, hosted=True, now=0) == reason
    assert explain_waiting(agent("x", "running"), holders, limits, hosted=True, now=0) == ""
    missing = explain_waiting(agent("x", "queued"), holders, limits, hosted=False, now=60_000)
    assert render(missing, "fidelio") == "No agent host runs for this home. Start one with `fidelio work`."

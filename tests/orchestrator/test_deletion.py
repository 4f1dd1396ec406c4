"""Deleting sessions while others set them to work: nobody goes on working for a session that is gone."""

from __future__ import annotations

import asyncio
import os

import pytest

from fidelio.errors import SequenceConflict, SessionNotFound, UsageProblem
from fidelio.orchestrator.executors.contract import Reporter, Turn, TurnResult
from fidelio.orchestrator.runs import worktrees
from fidelio.orchestrator.runs.run import RunController
from fidelio.orchestrator.service.delete import SessionDeleter
from fidelio.orchestrator.service.service import AgentService
from fidelio.processes.table import AGENT_MARKER, find_marked
from tests.orchestrator.adoption import AdoptingExecutor, EndlessTurn
from tests.orchestrator.fakes import OrchestratorHarness, PausedTurn, start, wait_until_finished
from tests.orchestrator.worktrees.test_worktrees import repository
from tests.support import proves


async def hear(event: asyncio.Event) -> None:
    async with asyncio.timeout(20):
        await event.wait()


async def agent_process(run: str) -> asyncio.subprocess.Process:
    """A process that carries the mark of a run and does not end by itself."""
    environment, pipe = {**os.environ, AGENT_MARKER: run}, asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", "echo begun; read _"), env=environment, stdin=pipe, stdout=pipe, start_new_session=True
    )
    assert process.stdout is not None
    # A process shows its environment only at the end of `exec`.
    async with asyncio.timeout(20):
        await process.stdout.readline()
    return process


async def nothing(_: object) -> None:
    """Takes note of nothing."""


async def is_ended(process: asyncio.subprocess.Process) -> bool:
    async with asyncio.timeout(20):
        return await process.wait() != 0


@proves("families.erased-at-rest")
async def test_a_session_that_is_set_to_work_while_it_is_deleted_is_stopped_and_goes(
    harness: OrchestratorHarness, hosted: AgentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    await start(hosted, "aria")
    await wait_until_finished(hosted, "aria")
    paused = PausedTurn()
    harness.actor.part = paused.part
    whole = SessionDeleter._erase_unchanged

    async def resumed_first(deletion: SessionDeleter, *given: object, **more: object) -> None:
        if not paused.entered.is_set():
            await hosted.resume("aria", "Sing on.")
            await hear(paused.entered)
        await whole(deletion, *given, **more)  # type: ignore[arg-type]  # arguments of the replaced method, forwarded unchanged

    monkeypatch.setattr(SessionDeleter, "_erase_unchanged", resumed_first)

    assert (await hosted.delete("aria")).count == 1

    assert [run.rpartition(".")[2] for run in paused.left] == ["2"]
    assert not (await hosted.list()).items


@proves("families.erased-at-rest")
async def test_a_parent_that_goes_with_its_child_is_not_called_back(harness: OrchestratorHarness, hosted: AgentService) -> None:
    parent = await start(hosted, "parent", "Conduct.")
    await wait_until_finished(hosted, "parent")
    paused = PausedTurn()
    harness.actor.part = paused.part
    await start(hosted, "child", parent=parent.id, callback=True)
    await hear(paused.entered)

    assert (await hosted.delete_all()).count == 2

    assert [turn.session for turn in harness.actor.turns].count(parent.id) == 1


@proves("families.erased-at-rest")
async def test_a_session_that_is_resumed_again_and_again_is_not_deleted(
    hosted: AgentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    await start(hosted, "aria")
    await wait_until_finished(hosted, "aria")
    whole = SessionDeleter._erase_unchanged

    async def resumed_first(deletion: SessionDeleter, *given: object, **more: object) -> None:
        await hosted.send("aria", "Sing on.")
        await whole(deletion, *given, **more)  # type: ignore[arg-type]  # arguments of the replaced method, forwarded unchanged

    monkeypatch.setattr(SessionDeleter, "_erase_unchanged", resumed_first)
    monkeypatch.setattr("fidelio.orchestrator.service.delete._MAX_ATTEMPTS", 3)

    with pytest.raises(SequenceConflict):
        await hosted.delete("aria")

    assert (await hosted.find("aria")).run.number > 1


@proves("families.no-agent-without-record")
async def test_a_host_ends_the_agent_of_a_session_that_is_erased_under_it(
    harness: OrchestratorHarness, hosted: AgentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not only when it finds much later that it has lost its right to the run.
    monkeypatch.setattr(RunController, "_handle_interruption", nothing)
    paused = PausedTurn()
    harness.actor.part = paused.part
    session = await start(hosted, "aria")
    await hear(paused.entered)
    process = await agent_process(session.run.id)

    await harness.ledger.erase([session.id], actor="me", reason="x")

    assert await is_ended(process)
    assert paused.left == [session.run.id]


@proves("families.no-agent-without-record")
async def test_a_host_that_ends_leaves_no_process_of_a_deleted_session(
    harness: OrchestratorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = EndlessTurn()
    harness.actor = AdoptingExecutor(part=working.part)
    service = harness.service()
    async with harness.host(service) as host:
        session = await start(service, "aria")
        await hear(working.entered)
        process = await agent_process(session.run.id)
        # It hears nothing any more of what is written, as it is when it is just about to end.
        monkeypatch.setattr(host._loop, "_handle_event", nothing)
        await harness.ledger.erase([session.id], actor="me", reason="x")

    assert await is_ended(process)


@proves("families.no-agent-without-record")
async def test_the_next_host_ends_only_the_processes_of_deleted_sessions(
    harness: OrchestratorHarness, service: AgentService
) -> None:
    session = await start(service, "aria")
    await service.delete("aria")
    left, other = await agent_process(session.run.id), await agent_process("s_0123456789ab.1")
    try:
        async with harness.host(service):
            assert await is_ended(left)
        assert find_marked("s_0123456789ab.1")
    finally:
        other.kill()
        await other.wait()


@proves("families.other-records")
async def test_a_host_keeps_the_files_of_sessions_in_another_ledger(
    harness: OrchestratorHarness, service: AgentService
) -> None:
    session = await start(service, "aria")
    ours, other = (harness.home.runs / name / "1" / "1" for name in (session.id, "s_0123456789ab"))
    for place in (ours, other):
        await asyncio.to_thread(place.mkdir, parents=True)

    async with harness.host(service):
        await wait_until_finished(service, "aria")

    assert not await asyncio.to_thread(ours.exists)
    assert await asyncio.to_thread(other.exists)


@proves("families.own-line")
async def test_an_agent_that_deletes_all_leaves_itself_and_those_it_works_for(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    paused = PausedTurn()
    harness.actor.part = paused.part
    above = await start(hosted, "above")
    own = await start(hosted, "own", parent=above.id)
    await start(hosted, "below", parent=own.id)
    await start(hosted, "beside")

    deleted = await hosted.delete_all(by=f"agent:{own.id}")

    assert (deleted.count, sorted(deleted.skipped)) == (2, ["above", "own"])
    assert {one.name: one.status for one in (await hosted.list()).items} == {"above": "running", "own": "running"}


@proves("families.own-line")
@pytest.mark.parametrize("name", ["above", "own"])
async def test_an_agent_cannot_end_itself_or_those_it_works_for(
    harness: OrchestratorHarness, hosted: AgentService, name: str
) -> None:
    paused = PausedTurn()
    harness.actor.part = paused.part
    above = await start(hosted, "above")
    own = await start(hosted, "own", parent=above.id)

    for call in (hosted.stop, hosted.delete):
        with pytest.raises(UsageProblem, match=f"{name} makes this call itself, or started the session that does"):
            await call(name, by=f"agent:{own.id}")

    assert (await hosted.find(name)).status == "running"
    assert (await hosted.stop(name, by="agent:s_0123456789ab")).run.state == "stopped"


@proves("orchestrator.delete", "orchestrator.worktree-kept")
async def test_many_worktrees_go_at_once_and_only_those_without_changes(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    async def part(turn: Turn, _: Reporter) -> TurnResult:
        if turn.prompt == "Write.":
            (turn.directory / "score.txt").write_text("forte\n", "utf-8")
        return TurnResult(text="")

    repository(harness.project)
    harness.actor.part = part
    names = [f"singer-{number}" for number in range(12)]
    for name in names:
        await start(hosted, name, "Write." if name == "singer-7" else "Rest.", worktree=True)
    sessions = await wait_until_finished(hosted, *names)
    kept = next(one.worktree for one in sessions if one.name == "singer-7")

    deleted = await hosted.delete_all()

    assert (deleted.count, deleted.retained_worktrees) == (12, (kept,))
    assert [str(place) for place in await asyncio.to_thread(sorted, harness.home.worktrees.iterdir())] == [kept]
    _, branches = await worktrees._git(str(harness.project), "branch", "--list", "fidelio/*", "--format=%(refname:short)")
    assert branches == "fidelio/singer-7"


@proves("orchestrator.delete")
async def test_two_concurrent_deletions_of_the_same_sessions_succeed(hosted: AgentService) -> None:
    names = [f"singer-{number}" for number in range(5)]
    for name in names:
        await start(hosted, name)
    await wait_until_finished(hosted, *names)

    one, other = await asyncio.gather(hosted.delete_all(), hosted.delete_all())

    assert max(one.count, other.count) == 5
    with pytest.raises(SessionNotFound):
        await hosted.context.unit.load((await hosted.context.ledger.sessions(status="deleted")).items[0].id)

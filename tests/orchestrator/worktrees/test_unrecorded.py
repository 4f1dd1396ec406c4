"""Worktrees that were made, or half made, when somebody decided otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fidelio.orchestrator.executors.contract import Reporter, Turn, TurnResult
from fidelio.orchestrator.runs import worktrees
from fidelio.orchestrator.runs.preparation import sweep_worktrees
from fidelio.orchestrator.service.service import AgentService
from tests.orchestrator.fakes import TIMEOUT_SECONDS, OrchestratorHarness, PausedTurn, start, wait_until_finished
from tests.orchestrator.worktrees.test_worktrees import git, repository
from tests.support import proves


class Gate:
    """Holds git back once it has made a worktree, until the test lets it go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made, self.go_on = asyncio.Event(), asyncio.Event()
        self._git = worktrees._git
        monkeypatch.setattr(worktrees, "_git", self.git)

    async def git(self, directory: str, *arguments: str) -> tuple[int, str]:
        done = await self._git(directory, *arguments)
        if arguments[:2] == ("worktree", "add"):
            self.made.set()
            await self.go_on.wait()
        return done

    async def reached(self) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await self.made.wait()


def left(harness: OrchestratorHarness) -> tuple[list[Path], str]:
    """Worktrees and branches that are there."""
    return sorted(harness.home.worktrees.iterdir()), git(harness.project, "branch", "--list", "fidelio/*")


async def stop(service: AgentService) -> object:
    return await service.stop("aria", by="me")


async def delete(service: AgentService) -> object:
    return await service.delete("aria", by="me")


@proves("orchestrator.worktree-taken-back")
@pytest.mark.parametrize("decide", [stop, delete])
async def test_a_run_that_is_stopped_or_deleted_while_its_worktree_is_made_leaves_none(
    harness: OrchestratorHarness, monkeypatch: pytest.MonkeyPatch, decide: Callable[[AgentService], Awaitable[object]]
) -> None:
    repository(harness.project)
    gate = Gate(monkeypatch)
    service = harness.service()
    async with harness.host(service, grace=TIMEOUT_SECONDS):
        await start(service, "aria", worktree=True)
        await gate.reached()
        await decide(service)
        gate.go_on.set()

    assert left(harness) == ([], "")
    assert harness.actor.turns == []


@proves("orchestrator.worktree-taken-back")
async def test_a_host_that_ends_while_it_makes_a_worktree_leaves_none_and_the_next_makes_it(
    harness: OrchestratorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository(harness.project)
    gate = Gate(monkeypatch)
    service = harness.service()
    async with harness.host(service, grace=0):
        await start(service, "aria", worktree=True)
        await gate.reached()
    assert left(harness) == ([], "")

    gate.go_on.set()
    async with harness.host(service):
        (session,) = await wait_until_finished(service, "aria")

    assert session.run.state == "succeeded"
    assert left(harness) == ([Path(session.worktree or "")], "+ fidelio/aria")


async def killed_in_between(harness: OrchestratorHarness, service: AgentService) -> worktrees.Worktree:
    """A worktree of the session aria as a host leaves it that is killed before it can say so."""
    at = await service.queries.find("aria")
    return await worktrees.create(at.record.project, harness.home.worktrees, "aria", at.id)


@proves("orchestrator.worktree-swept")
@pytest.mark.parametrize("decide", [stop, delete])
async def test_what_a_killed_host_has_not_recorded_is_swept_by_the_next(
    harness: OrchestratorHarness, service: AgentService, decide: Callable[[AgentService], Awaitable[object]]
) -> None:
    repository(harness.project)
    await start(service, "aria", worktree=True)
    await killed_in_between(harness, service)
    await decide(service)

    await sweep_worktrees(service.context)

    assert left(harness) == ([], "")


@proves("orchestrator.worktree-swept")
async def test_a_run_that_is_still_to_begin_gets_a_worktree_of_its_own(
    harness: OrchestratorHarness, service: AgentService
) -> None:
    repository(harness.project)
    await start(service, "aria", worktree=True)
    unfinished = await killed_in_between(harness, service)
    (Path(unfinished.path) / "score.txt").unlink()

    async with harness.host(service):
        (session,) = await wait_until_finished(service, "aria")

    assert session.run.state == "succeeded"
    assert session.worktree != unfinished.path
    assert (Path(session.worktree or "") / "score.txt").exists()


@proves("orchestrator.worktree-swept", "orchestrator.worktree-kept")
@pytest.mark.parametrize("change", ["file", "commit"])
async def test_nothing_with_a_change_in_it_is_swept(harness: OrchestratorHarness, service: AgentService, change: str) -> None:
    repository(harness.project)
    await start(service, "aria", worktree=True)
    place = Path((await killed_in_between(harness, service)).path)
    if change == "file":
        (place / "note.txt").write_text("la\n", "utf-8")
    else:
        git(place, "commit", "--quiet", "--allow-empty", "-m", "More")
    await delete(service)

    await sweep_worktrees(service.context)

    assert place in left(harness)[0]


@proves("orchestrator.worktree-swept")
async def test_a_worktree_that_a_session_refers_to_is_not_swept(harness: OrchestratorHarness, hosted: AgentService) -> None:
    repository(harness.project)
    await start(hosted, "aria", worktree=True)
    (session,) = await wait_until_finished(hosted, "aria")
    at = await hosted.queries.find("aria")
    # As if the host had been killed after it recorded the worktree and before it took its note away.
    worktrees.write_note(worktrees.WorktreeNote(at.id, at.record.project, worktrees.recorded_worktree(at.record)))

    await sweep_worktrees(hosted.context)

    assert left(harness) == ([Path(session.worktree or "")], "+ fidelio/aria")


@proves("orchestrator.worktree-swept")
async def test_a_worktree_of_a_session_in_another_ledger_is_not_swept(
    harness: OrchestratorHarness, service: AgentService
) -> None:
    repository(harness.project)
    made = await worktrees.create(str(harness.project), harness.home.worktrees, "aria", "s_of_another_record")

    await sweep_worktrees(service.context)

    assert Path(made.path) in left(harness)[0]


@proves("orchestrator.worktree-swept")
async def test_a_note_that_cannot_be_read_hides_no_other(harness: OrchestratorHarness, service: AgentService) -> None:
    repository(harness.project)
    await start(service, "aria", worktree=True)
    await killed_in_between(harness, service)
    await stop(service)
    odd = [harness.home.worktrees / "a.note", harness.home.worktrees / "b.note"]
    odd[0].write_text('{"session"', "utf-8")
    odd[1].mkdir()

    await sweep_worktrees(service.context)

    assert left(harness) == (odd, "")


@proves("orchestrator.worktree-swept")
async def test_a_host_sweeps_before_it_begins_anything(harness: OrchestratorHarness, service: AgentService) -> None:
    repository(harness.project)
    await start(service, "aria", worktree=True)
    await killed_in_between(harness, service)

    async with harness.host(service):
        (session,) = await wait_until_finished(service, "aria")

    assert left(harness) == ([Path(session.worktree or "")], "+ fidelio/aria")


@proves("orchestrator.worktree-kept", "orchestrator.delete")
async def test_a_session_that_got_its_worktree_after_it_was_looked_up_is_deleted_with_it(
    harness: OrchestratorHarness, service: AgentService
) -> None:
    repository(harness.project)
    paused = PausedTurn()
    harness.actor.part = paused.part
    await start(service, "aria", worktree=True)
    queued = await service.queries.find("aria")
    async with harness.host(service):
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await paused.entered.wait()
        deleted = await service._deleter.delete(queued, by="me")

    assert deleted.retained_worktrees == ()
    assert left(harness) == ([], "")


@proves("orchestrator.worktree-kept")
async def test_commits_on_a_branch_that_the_agent_has_left_are_kept(harness: OrchestratorHarness, hosted: AgentService) -> None:
    async def leaving_its_branch(turn: Turn, reporter: Reporter) -> TurnResult:
        git(turn.directory, "commit", "--quiet", "--allow-empty", "-m", "More")
        git(turn.directory, "checkout", "--quiet", "--detach", "HEAD~1")
        return TurnResult(text="done")

    repository(harness.project)
    harness.actor.part = leaving_its_branch
    await start(hosted, "aria", worktree=True)
    (session,) = await wait_until_finished(hosted, "aria")

    assert (await hosted.delete("aria")).retained_worktrees == (session.worktree,)
    assert git(harness.project, "log", "-1", "--format=%s", "fidelio/aria") == "More"


@proves("orchestrator.worktree-kept")
async def test_new_files_are_kept_also_where_git_is_told_not_to_show_them(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    async def part(turn: Turn, reporter: Reporter) -> TurnResult:
        (turn.directory / "note.txt").write_text("la\n", "utf-8")
        return TurnResult(text="done")

    repository(harness.project)
    git(harness.project, "config", "status.showUntrackedFiles", "no")
    harness.actor.part = part
    await start(hosted, "aria", worktree=True)
    (session,) = await wait_until_finished(hosted, "aria")

    assert (await hosted.delete("aria")).retained_worktrees == (session.worktree,)


@proves("orchestrator.worktree-taken-back")
async def test_git_is_interrupted_in_the_middle_and_leaves_nothing(harness: OrchestratorHarness) -> None:
    repository(harness.project)
    begun = harness.project.parent / "begun"
    (harness.project / ".gitattributes").write_text("*.txt filter=slow\n", "utf-8")
    git(harness.project, "add", ".gitattributes")
    git(harness.project, "commit", "--quiet", "-m", "Slow")
    git(harness.project, "config", "filter.slow.smudge", f"touch {begun}; exec sleep 600")
    making = asyncio.create_task(worktrees.create(str(harness.project), harness.home.worktrees, "aria", "s_1"))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not begun.exists():  # noqa: ASYNC110  # git has no notification for the file that its filter creates
            await asyncio.sleep(0.01)
        making.cancel()
        await asyncio.wait({making})

    assert making.cancelled()
    assert left(harness) == ([], "")


@proves("orchestrator.worktree-taken-back", "orchestrator.result-error")
async def test_a_project_that_is_in_no_commit_any_more_has_no_worktree_and_leaves_none(
    harness: OrchestratorHarness, service: AgentService
) -> None:
    inner = harness.project / "sketches"
    inner.mkdir()
    (inner / "one.txt").write_text("la\n", "utf-8")
    repository(harness.project)
    await start(service, "aria", worktree=True, project=str(inner))
    git(harness.project, "rm", "--quiet", "--cached", "-r", "sketches")
    git(harness.project, "commit", "--quiet", "-m", "Without sketches")
    async with harness.host(service):
        (session,) = await wait_until_finished(service, "aria")

    assert (session.run.state, session.run.reason) == ("failed", "worktree.failed")
    assert left(harness) == ([], "")


@proves("orchestrator.worktree-kept")
async def test_files_that_git_no_longer_knows_as_a_worktree_are_said_to_be_kept(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    async def part(turn: Turn, reporter: Reporter) -> TurnResult:
        (turn.directory / ".git").unlink()
        (turn.directory / "note.txt").write_text("la\n", "utf-8")
        return TurnResult(text="done")

    repository(harness.project)
    harness.actor.part = part
    await start(hosted, "aria", worktree=True)
    (session,) = await wait_until_finished(hosted, "aria")

    assert (await hosted.delete("aria")).retained_worktrees == (session.worktree,)

"""Sessions that work on a branch of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fidelio.orchestrator.executors.contract import Reporter, Turn, TurnResult
from fidelio.orchestrator.service.service import AgentService
from tests.orchestrator.fakes import OrchestratorHarness, start, wait_until_finished
from tests.support import proves


def git(place: Path, *arguments: str) -> str:
    who = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    done = subprocess.run(["git", "-C", place, *who, *arguments], check=True, capture_output=True, text=True, timeout=30)
    return done.stdout.strip()


def repository(place: Path) -> None:
    git(place, "init", "--quiet")
    (place / "score.txt").write_text("piano\n", "utf-8")
    git(place, "add", ".")
    git(place, "commit", "--quiet", "-m", "The score")


async def writing(turn: Turn, reporter: Reporter) -> TurnResult:
    await reporter.report_conversation(turn.conversation or turn.fresh)
    (turn.directory / "score.txt").write_text("forte\n", "utf-8")
    (turn.directory / f"note-{len(list(turn.directory.iterdir()))}.txt").write_text("la\n", "utf-8")
    return TurnResult(text=str(turn.directory))


@proves("orchestrator.worktree")
async def test_a_session_works_on_its_own_branch_and_says_what_changed(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    repository(harness.project)
    harness.actor.part = writing
    await start(hosted, "aria", worktree=True)
    (session,) = await wait_until_finished(hosted, "aria")
    place = Path(session.worktree or "")
    await hosted.resume("aria", "More.")
    (again,) = await wait_until_finished(hosted, "aria")

    assert place.parent == harness.home.worktrees
    assert [turn.directory for turn in harness.actor.turns] == [place, place]
    assert git(place, "rev-parse", "--abbrev-ref", "HEAD") == "fidelio/aria"
    assert (harness.project / "score.txt").read_text("utf-8") == "piano\n"
    assert "score.txt" in session.changes
    assert session.changes.count("note-") == 1
    assert again.changes.count("note-") == 2


@proves("orchestrator.worktree-kept")
async def test_a_worktree_with_changes_outlives_its_session(harness: OrchestratorHarness, hosted: AgentService) -> None:
    repository(harness.project)
    harness.actor.part = writing
    await start(hosted, "aria", worktree=True)
    (session,) = await wait_until_finished(hosted, "aria")

    deleted = await hosted.delete("aria")

    assert deleted.retained_worktrees == (session.worktree,)
    assert (Path(session.worktree or "") / "score.txt").read_text("utf-8") == "forte\n"


@proves("orchestrator.worktree-kept")
async def test_a_worktree_with_a_commit_outlives_its_session(harness: OrchestratorHarness, hosted: AgentService) -> None:
    async def committing(turn: Turn, reporter: Reporter) -> TurnResult:
        git(turn.directory, "commit", "--quiet", "--allow-empty", "-m", "More")
        return TurnResult(text="done")

    repository(harness.project)
    harness.actor.part = committing
    await start(hosted, "aria", worktree=True)
    (session,) = await wait_until_finished(hosted, "aria")

    assert (await hosted.delete("aria")).retained_worktrees == (session.worktree,)


@proves("orchestrator.worktree-kept")
async def test_a_worktree_without_changes_goes_with_its_session(harness: OrchestratorHarness, hosted: AgentService) -> None:
    repository(harness.project)
    harness.blueprints.add("careful", worktree=True)
    await start(hosted, "aria", blueprint="careful")
    (session,) = await wait_until_finished(hosted, "aria")

    deleted = await hosted.delete("aria")

    assert session.worktree is not None
    assert (deleted.retained_worktrees, list(harness.home.worktrees.iterdir())) == ((), [])
    assert git(harness.project, "branch", "--list", "fidelio/*") == ""


@proves("orchestrator.worktree")
async def test_the_branch_that_an_earlier_session_left_is_not_touched(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    repository(harness.project)
    harness.actor.part = writing
    git(harness.project, "branch", "fidelio/aria")
    head = git(harness.project, "rev-parse", "fidelio/aria")
    session = await start(hosted, "aria", worktree=True)
    await wait_until_finished(hosted, "aria")

    assert git(harness.project, "rev-parse", "fidelio/aria") == head
    assert git(harness.project, "branch", "--list", "fidelio/aria-*").endswith(session.id.removeprefix("s_"))


@proves("orchestrator.worktree", "orchestrator.result-error")
async def test_a_worktree_that_cannot_be_made_is_the_reason_of_the_failure(
    harness: OrchestratorHarness, service: AgentService
) -> None:
    repository(harness.project)
    await start(service, "aria", worktree=True)
    harness.home.worktrees.write_text("in the way", "utf-8")

    async with harness.host(service):
        (session,) = await wait_until_finished(service, "aria")

    assert session.run.state == "failed"
    assert harness.actor.turns == []


@proves("orchestrator.worktree")
async def test_a_project_inside_a_repository_has_the_same_path_in_the_worktree(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    inner = harness.project / "parts" / "tenor"
    inner.mkdir(parents=True)
    (inner / "voice.txt").write_text("la\n", "utf-8")
    repository(harness.project)
    await start(hosted, "aria", worktree=True, project=str(inner))
    (session,) = await wait_until_finished(hosted, "aria")

    assert harness.actor.turns[0].directory == Path(session.worktree or "") / "parts" / "tenor"
    assert (harness.actor.turns[0].directory / "voice.txt").exists()


@proves("orchestrator.worktree")
async def test_many_sessions_of_one_repository_get_their_worktrees_at_once(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    repository(harness.project)
    harness.actor.part = writing
    names = [f"s{number}" for number in range(6)]
    for name in names:
        await start(hosted, name, worktree=True)
    sessions = await wait_until_finished(hosted, *names)

    assert [session.run.state for session in sessions] == ["succeeded"] * 6
    assert len({session.worktree for session in sessions}) == 6


@proves("orchestrator.worktree", "orchestrator.worktree-kept")
async def test_a_worktree_that_its_agent_has_spoilt_keeps_no_run_from_its_end(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    async def spoiling(turn: Turn, reporter: Reporter) -> TurnResult:
        index = Path(git(turn.directory, "rev-parse", "--absolute-git-dir")) / "index"
        index.write_text("junk")
        return TurnResult(text="done")

    repository(harness.project)
    harness.actor.part = spoiling
    await start(hosted, "aria", worktree=True)
    (session,) = await wait_until_finished(hosted, "aria")

    assert session.run.state == "succeeded"
    assert "cannot be read" in session.changes
    assert (await hosted.delete("aria")).retained_worktrees == (session.worktree,)


@proves("orchestrator.environment")
async def test_no_program_of_an_agent_sees_our_secrets_through_git(
    harness: OrchestratorHarness, hosted: AgentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "leaked")
    repository(harness.project)
    seen = harness.project.parent / "seen"
    hook = harness.project / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nenv > {seen}\n")
    hook.chmod(0o755)
    await start(hosted, "aria", worktree=True)
    await wait_until_finished(hosted, "aria")

    assert not seen.exists()

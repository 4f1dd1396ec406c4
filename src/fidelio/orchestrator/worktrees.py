"""A copy of the project's files for a session alone, so that agents do not tread on each other or on the person beside them.

It is a git worktree on a branch of its own. It stays from turn to turn, says after each what has changed, and goes with its
session, unless something in it would be lost.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec

from fidelio.errors import ExecutorFailure, UsageProblem
from fidelio.orchestrator.environment import harmless
from fidelio.orchestrator.record import Record
from fidelio.orchestrator.rules import NO_WORKTREE
from fidelio.orchestrator.texts import one_line

_SECONDS = 60.0
_CHANGED_FILES = 200


class Worktree(msgspec.Struct, frozen=True):
    """Where it lies, its branch, the commit it began from, and where in the repository the project is."""

    path: str
    branch: str
    base: str
    prefix: str = ""

    @property
    def directory(self) -> str:
        """Where the agent works: the same place in the worktree that the project is in the repository."""
        return os.path.join(self.path, self.prefix).rstrip("/")  # noqa: PTH118  # a string is what is recorded


def recorded(record: Record) -> Worktree:
    return Worktree(record.worktree, record.branch, record.base, record.prefix)


async def require_repository(project: str) -> None:
    """Raises where no worktree can be made: not a git repository, or one without a commit."""
    code, _ = await _git(project, "rev-parse", "--verify", "HEAD^{commit}")
    if code:
        raise UsageProblem(
            f"A worktree was asked for, and {project} is no git repository with a commit.",
            remedy="Run `git init` and commit there, or start the session without a worktree.",
        )


async def create(project: str, place: Path, name: str, session: str) -> Worktree:
    """Makes the worktree, or finds the one that was made before a crash."""
    path = str(place / session)
    prefix = await _read(project, "rev-parse", "--show-prefix")
    if (place / session / ".git").exists():
        branch = await _read(path, "rev-parse", "--abbrev-ref", "HEAD")
        return Worktree(path, branch, await _read(path, "rev-parse", "HEAD"), prefix)
    base = await _read(project, "rev-parse", "HEAD")
    branch = await _free_branch(project, f"fidelio/{name}", session)
    await _read(project, "worktree", "add", "--quiet", "-b", branch, path, base)
    return Worktree(path, branch, base, prefix)


async def changes(worktree: Worktree) -> str:
    """What differs from where it began, in a few lines; empty when nothing does. Never fails, whatever was done to it."""
    code, _ = await _git(worktree.path, "rev-parse", "HEAD")
    if code:
        return "The worktree is gone."
    try:
        return await _changes(worktree)
    except ExecutorFailure as failure:
        return f"What has changed cannot be read: {failure.sentence}"


async def _changes(worktree: Worktree) -> str:
    committed = await _read(
        worktree.path, "diff", "--no-ext-diff", "--no-textconv", "--stat=100", "--stat-count=40", worktree.base
    )
    status = await _read(worktree.path, "status", "--porcelain", "--untracked-files=all")
    new = [line[3:] for line in status.splitlines() if line.startswith("??")]
    lines = [committed] if committed else []
    if new:
        more = f" and {len(new) - 20} more" if len(new) > 20 else ""
        lines.append(f"New files: {', '.join(new[:20])}{more}")
    return "\n".join(lines)[: _CHANGED_FILES * 40]


async def remove(project: str, worktree: Worktree) -> bool:
    """Takes the worktree and its branch away. False: something in it would be lost, so it stays."""
    code, head = await _git(worktree.path, "rev-parse", "HEAD")
    if code:
        return True
    code, status = await _git(worktree.path, "status", "--porcelain", "--ignored=no")
    if code or status or head != worktree.base:
        return False
    code, _ = await _git(project, "worktree", "remove", worktree.path)
    if code:
        return False
    await _git(project, "branch", "--delete", "--force", worktree.branch)
    return True


async def _free_branch(project: str, wanted: str, session: str) -> str:
    """A branch that an earlier session of this name has left is somebody's work."""
    code, _ = await _git(project, "show-ref", "--verify", "--quiet", f"refs/heads/{wanted}")
    return wanted if code else f"{wanted}-{session.removeprefix('s_')}"


async def _read(directory: str, *arguments: str) -> str:
    code, said = await _git(directory, *arguments)
    if code:
        raise ExecutorFailure(f"git {arguments[0]} failed in {directory}: {one_line(said, 400)}", reason=NO_WORKTREE)
    return said


async def _git(directory: str, *arguments: str) -> tuple[int, str]:
    """Exit code, and what was printed. Nothing asks for a password, and no program that an agent put there sees our secrets."""
    try:
        process = await asyncio.create_subprocess_exec(
            *("git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-C", directory, *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=harmless(os.environ) | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
        )
    except OSError as error:
        return 127, str(error)
    try:
        async with asyncio.timeout(_SECONDS):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return 124, f"git took longer than {_SECONDS:.0f} seconds"
    return process.returncode or 0, said.decode("utf-8", "replace").strip()

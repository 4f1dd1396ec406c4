"""A copy of the project's files for a session alone, so that agents do not tread on each other or on the person beside them.

It is a git worktree on a branch of its own. It stays from turn to turn, says after each what has changed, and goes with its
session, unless something in it would be lost. Until it is on record whose it is, a note lies beside it: so nobody has to guess
what a killed process has left.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, count
from pathlib import Path

import msgspec

from fidelio.errors import ExecutorFailure, UsageProblem
from fidelio.ledger.long_text import one_line
from fidelio.orchestrator.record.record import AgentRecord
from fidelio.orchestrator.record.rules import WORKTREE_FAILED
from fidelio.orchestrator.runs.environment import filter_environment

_SECONDS = 60.0
_GRACE_SECONDS = 5.0
_CHANGED_FILES = 200
_NOTE = ".note"
_BRANCHES = "fidelio"
_COMMIT = "Commit something in it, or start the session without a worktree."


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


class WorktreeNote(msgspec.Struct, frozen=True):
    """Lies beside a worktree that is being made, until it is on record whose it is."""

    session: str
    project: str
    worktree: Worktree


def recorded_worktree(record: AgentRecord) -> Worktree:
    return Worktree(record.worktree, record.branch, record.base, record.prefix)


async def require_repository(project: str) -> None:
    """Raises where no worktree can be made: no repository, none with the project in a commit, none with a free branch."""
    code, _ = await _git(project, "rev-parse", "--verify", "HEAD^{commit}")
    if code:
        raise UsageProblem(
            f"A worktree was asked for, and {project} is no git repository with a commit.",
            remedy="Run `git init` and commit there, or start the session without a worktree.",
        )
    _, prefix = await _git(project, "rev-parse", "--show-prefix")
    code, _ = await _git(project, "rev-parse", "--verify", "--quiet", f"HEAD:{prefix.rstrip('/')}")
    if code:
        raise UsageProblem(_not_committed(prefix), remedy=_COMMIT)
    missing, _ = await _git(project, "show-ref", "--verify", "--quiet", f"refs/heads/{_BRANCHES}")
    if not missing:
        raise UsageProblem(
            f"A worktree needs a branch {_BRANCHES}/..., and {project} has one that is called {_BRANCHES}.",
            remedy=f"Rename it (`git branch --move {_BRANCHES} other-name`), or start the session without a worktree.",
        )


async def create(project: str, place: Path, name: str, session: str) -> Worktree:
    """Makes the worktree, and first a note of it, which stays until somebody calls `settle`."""
    path = _free_path(place, session)
    prefix = await _run_git(project, "rev-parse", "--show-prefix")
    base = await _run_git(project, "rev-parse", "HEAD")
    branch = await _free_branch(project, f"{_BRANCHES}/{name}", path.name)
    made = Worktree(str(path), branch, base, prefix)
    write_note(WorktreeNote(session, project, made))
    try:
        await _run_git(project, "worktree", "add", "--quiet", "-b", branch, made.path, base)
        _require_project(made)
    except BaseException:
        # Also when we are told to stop: nobody else knows of it yet.
        await discard(project, made)
        raise
    return made


async def settle(record: AgentRecord, made: Worktree | None) -> None:
    """What was made for a session is on record now, or it is taken back."""
    if made is not None and made.path == record.worktree:
        remove_note(made)
    elif made is not None:
        await discard(record.project, made)


async def discard(project: str, made: Worktree) -> None:
    """Removes what nobody has worked in. Where that is not sure, it stays with its note, for somebody to try again."""
    if await remove(project, made):
        remove_note(made)


def write_note(note: WorktreeNote) -> None:
    try:
        _note_file(note.worktree).parent.mkdir(parents=True, exist_ok=True)
        _note_file(note.worktree).write_bytes(msgspec.json.encode(note))
    except OSError as error:
        raise ExecutorFailure(f"No worktree can be made: {error}.", reason=WORKTREE_FAILED) from error


def remove_note(made: Worktree) -> None:
    # Where that fails the next host finds that it is on record, and a run need not wait for it.
    with suppress(OSError):
        _note_file(made).unlink(missing_ok=True)


def read_notes(place: Path) -> Iterator[WorktreeNote]:
    """Everything that was being made when whoever made it came to an end."""
    for file in sorted(place.glob(f"*{_NOTE}")):
        try:
            yield msgspec.json.decode(file.read_bytes(), type=WorktreeNote)
        except (OSError, msgspec.DecodeError):
            # Cut off before anything was made, or nothing that we have written.
            continue


async def summarize_changes(worktree: Worktree) -> str:
    """What differs from where it began, in a few lines; empty when nothing does. Never fails, whatever was done to it."""
    code, _ = await _git(worktree.path, "rev-parse", "HEAD")
    if code:
        return "The worktree is gone."
    try:
        return await _diff_summary(worktree)
    except ExecutorFailure as failure:
        return f"What has changed cannot be read: {failure.sentence}"


async def _diff_summary(worktree: Worktree) -> str:
    committed = await _run_git(
        worktree.path, "diff", "--no-ext-diff", "--no-textconv", "--stat=100", "--stat-count=40", worktree.base
    )
    status = await _run_git(worktree.path, "status", "--porcelain", "--untracked-files=all")
    new = [line[3:] for line in status.splitlines() if line.startswith("??")]
    lines = [committed] if committed else []
    if new:
        more = f" and {len(new) - 20} more" if len(new) > 20 else ""
        lines.append(f"New files: {', '.join(new[:20])}{more}")
    return "\n".join(lines)[: _CHANGED_FILES * 40]


async def remove(project: str, worktree: Worktree) -> bool:
    """Takes the worktree and its branch away. False: something in it would be lost, so it stays."""
    code, tip = await _git(project, "for-each-ref", "--format=%(objectname)", f"refs/heads/{worktree.branch}")
    if code:
        # The repository does not answer, or is gone itself.
        return not _path_exists(worktree)
    if _path_exists(worktree):
        if tip not in ("", worktree.base) or not await _is_unchanged(worktree):
            return False
        code, _ = await _git(project, "worktree", "remove", worktree.path)
        if code:
            return False
    if tip == worktree.base:
        await _git(project, "branch", "--delete", "--force", worktree.branch)
    return True


async def _is_unchanged(worktree: Worktree) -> bool:
    code, head = await _git(worktree.path, "rev-parse", "HEAD")
    if code or head != worktree.base:
        return False
    # Said in so many words, because people can tell git not to show new files.
    code, status = await _git(worktree.path, "status", "--porcelain", "--untracked-files=normal", "--ignored=no")
    return not code and not status


def _path_exists(worktree: Worktree) -> bool:
    return os.path.lexists(worktree.path)


def _note_file(worktree: Worktree) -> Path:
    return Path(worktree.path + _NOTE)


def _free_path(place: Path, session: str) -> Path:
    """What lies there already was left by somebody who was killed, perhaps with a git that is still busy in it."""
    names = chain((session,), (f"{session}-{number}" for number in count(2)))
    return next(path for name in names if not os.path.lexists(path := place / name))


def _require_project(made: Worktree) -> None:
    if not Path(made.directory).is_dir():
        raise ExecutorFailure(_not_committed(made.prefix), reason=WORKTREE_FAILED, remedy=_COMMIT)


def _not_committed(prefix: str) -> str:
    return f"The directory {prefix} is not in the last commit, and so not in a worktree."


async def _free_branch(project: str, wanted: str, place: str) -> str:
    """A branch that an earlier session of this name has left is somebody's work."""
    # Also finds one whose name goes on after a slash, beside which git makes no branch of this name.
    _, taken = await _git(project, "for-each-ref", "--count=1", f"refs/heads/{wanted}")
    return f"{wanted}-{place.removeprefix('s_')}" if taken else wanted


async def _run_git(directory: str, *arguments: str) -> str:
    code, said = await _git(directory, *arguments)
    if code:
        raise ExecutorFailure(f"git {arguments[0]} failed in {directory}: {one_line(said, 400)}", reason=WORKTREE_FAILED)
    return said


async def _git(directory: str, *arguments: str) -> tuple[int, str]:
    """Exit code, and what was printed. Nothing asks for a password, and no program that an agent put there sees our secrets."""
    try:
        process = await asyncio.create_subprocess_exec(
            *("git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-C", directory, *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            env=filter_environment(os.environ) | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
        )
    except OSError as error:
        return 127, str(error)
    try:
        async with asyncio.timeout(_SECONDS):
            said, _ = await process.communicate()
    except TimeoutError:
        await _interrupt(process)
        return 124, f"git took longer than {_SECONDS:.0f} seconds"
    except asyncio.CancelledError:
        await _interrupt(process)
        raise
    return process.returncode or 0, said.decode("utf-8", "replace").strip()


async def _interrupt(process: asyncio.subprocess.Process) -> None:
    """Asks git and its helpers to end, so that it takes away what it has half done; and kills it when it does not listen."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                await process.wait()
                return

"""Git worktrees of sessions: separate checkouts, so that agents do not change the same files as others.

Each is on a branch of its own. It stays for all runs of the session and is removed with it, unless it holds changes. Until the
worktree is in the record of its session, a note file next to it names the session: so what a killed process left can be found.
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
from fidelio.ledger.long_text import shorten_to_line
from fidelio.orchestrator.record.record import AgentRecord
from fidelio.orchestrator.record.rules import WORKTREE_FAILED
from fidelio.orchestrator.runs.environment import filter_environment

_SECONDS = 60.0
_GRACE_SECONDS = 5.0
_CHANGED_FILES = 200
MOST_DIFF = 1 << 20
_NOTE = ".note"
_BRANCHES = "fidelio"
_COMMIT = "Commit something in it, or start the session without a worktree."


class Worktree(msgspec.Struct, frozen=True):
    """Its path, its branch, the commit it was created from, and the path of the project inside the repository."""

    path: str
    branch: str
    base: str
    prefix: str = ""

    @property
    def directory(self) -> str:
        """The working directory of the agent: the project inside the worktree."""
        return os.path.join(self.path, self.prefix).rstrip("/")  # noqa: PTH118  # a string is recorded


class WorktreeNote(msgspec.Struct, frozen=True):
    """The note file of a worktree that is not in the record of its session yet."""

    session: str
    project: str
    worktree: Worktree


def recorded_worktree(record: AgentRecord) -> Worktree:
    return Worktree(record.worktree, record.branch, record.base, record.prefix)


async def require_repository(project: str) -> None:
    """Raise if no worktree can be created: no repository, the project is in no commit, or the branch name is taken."""
    code, _ = await _git(project, "rev-parse", "--verify", "HEAD^{commit}")
    if code:
        raise UsageProblem(
            f"A worktree needs a git repository with a commit, and {project} is none.",
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


async def create(project: str, parent: Path, name: str, session: str) -> Worktree:
    """Create the worktree, and before it a note, which stays until `settle` is called."""
    path = _free_path(parent, session)
    prefix = await _run_git(project, "rev-parse", "--show-prefix")
    base = await _run_git(project, "rev-parse", "HEAD")
    branch = await _free_branch(project, f"{_BRANCHES}/{name}", path.name)
    worktree = Worktree(str(path), branch, base, prefix)
    write_note(WorktreeNote(session, project, worktree))
    try:
        await _run_git(project, "worktree", "add", "--quiet", "-b", branch, worktree.path, base)
        _require_project(worktree)
    except BaseException:
        # Also on cancellation: no record names the worktree yet.
        await discard(project, worktree)
        raise
    return worktree


async def settle(record: AgentRecord, worktree: Worktree | None) -> None:
    """Remove the note of a new worktree that is in the record now, or else the worktree."""
    if worktree is not None and worktree.path == record.worktree:
        remove_note(worktree)
    elif worktree is not None:
        await discard(record.project, worktree)


async def discard(project: str, worktree: Worktree) -> None:
    """Remove an unused worktree. If it may hold changes, it stays with its note, for a later attempt."""
    if await remove(project, worktree):
        remove_note(worktree)


def write_note(note: WorktreeNote) -> None:
    try:
        _note_file(note.worktree).parent.mkdir(parents=True, exist_ok=True)
        _note_file(note.worktree).write_bytes(msgspec.json.encode(note))
    except OSError as error:
        raise ExecutorFailure(f"No worktree can be created: {error}.", reason=WORKTREE_FAILED) from error


def remove_note(worktree: Worktree) -> None:
    # After a failure the next host finds the worktree in the record and removes the note; a run need not fail.
    with suppress(OSError):
        _note_file(worktree).unlink(missing_ok=True)


def read_notes(parent: Path) -> Iterator[WorktreeNote]:
    """Yield the notes of worktrees that were not recorded before their host ended."""
    for file in sorted(parent.glob(f"*{_NOTE}")):
        try:
            yield msgspec.json.decode(file.read_bytes(), type=WorktreeNote)
        except (OSError, msgspec.DecodeError):
            # Incomplete, so that no worktree was created for it, or not a note of ours.
            continue


async def summarize_changes(worktree: Worktree) -> str:
    """Summarise the changes in a worktree since its base commit; empty without changes. Never raises."""
    code, _ = await _git(worktree.path, "rev-parse", "HEAD")
    if code:
        return "The worktree was deleted."
    try:
        return await _diff_summary(worktree)
    except ExecutorFailure as failure:
        return f"The changes cannot be read: {failure.sentence}"


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


async def read_diff(worktree: Worktree) -> str:
    """The changes in a worktree since its base commit, new files included, as a unified diff of at most `MOST_DIFF` characters.

    Raises `ExecutorFailure` if the worktree was deleted. Nothing is changed, also not the index.
    """
    plain = ("--no-ext-diff", "--no-textconv", "--no-color")
    texts = [await _run_git(worktree.path, "diff", *plain, worktree.base)]
    listed = await _run_git(worktree.path, "ls-files", "--others", "--exclude-standard", "-z")
    for name in filter(None, listed.split("\0")[:_CHANGED_FILES]):
        # Exit code 1 says that the files differ.
        _, text = await _git(worktree.path, "diff", *plain, "--no-index", "--", "/dev/null", name)
        texts.append(text)
        if sum(map(len, texts)) > MOST_DIFF:
            break
    return "\n".join(filter(None, texts))[:MOST_DIFF]


async def remove(project: str, worktree: Worktree) -> bool:
    """Remove the worktree and its branch. False: it may hold changes, so it stays."""
    code, tip = await _git(project, "for-each-ref", "--format=%(objectname)", f"refs/heads/{worktree.branch}")
    if code:
        # The repository cannot be read, or was deleted itself.
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
    # Explicit options, because the configuration of git may hide new files.
    code, status = await _git(worktree.path, "status", "--porcelain", "--untracked-files=normal", "--ignored=no")
    return not code and not status


def _path_exists(worktree: Worktree) -> bool:
    return os.path.lexists(worktree.path)


def _note_file(worktree: Worktree) -> Path:
    return Path(worktree.path + _NOTE)


def _free_path(parent: Path, session: str) -> Path:
    """A path that does not exist: an existing directory was left by a killed process, whose git may still write to it."""
    names = chain((session,), (f"{session}-{number}" for number in count(2)))
    return next(path for name in names if not os.path.lexists(path := parent / name))


def _require_project(worktree: Worktree) -> None:
    if not Path(worktree.directory).is_dir():
        raise ExecutorFailure(_not_committed(worktree.prefix), reason=WORKTREE_FAILED, remedy=_COMMIT)


def _not_committed(prefix: str) -> str:
    return f"The directory {prefix} is not in the last commit, and so not in a worktree."


async def _free_branch(project: str, wanted: str, suffix: str) -> str:
    """A branch name that is not taken: an earlier session of this name may have left its work on that branch."""
    # Also finds branches below `wanted/`, which prevent git from creating this branch.
    _, taken = await _git(project, "for-each-ref", "--count=1", f"refs/heads/{wanted}")
    return f"{wanted}-{suffix.removeprefix('s_')}" if taken else wanted


async def _run_git(directory: str, *arguments: str) -> str:
    code, output = await _git(directory, *arguments)
    if code:
        raise ExecutorFailure(
            f"git {arguments[0]} failed in {directory}: {shorten_to_line(output, 400)}", reason=WORKTREE_FAILED
        )
    return output


async def _git(directory: str, *arguments: str) -> tuple[int, str]:
    """Run git; return its exit code and output. It cannot prompt, and hooks of the repository see no secrets."""
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
            output, _ = await process.communicate()
    except TimeoutError:
        await _interrupt(process)
        return 124, f"git took longer than {_SECONDS:.0f} seconds"
    except asyncio.CancelledError:
        await _interrupt(process)
        raise
    return process.returncode or 0, output.decode("utf-8", "replace").strip()


async def _interrupt(process: asyncio.subprocess.Process) -> None:
    """End git and its helpers with SIGTERM, so that it removes partial work, and then with SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                await process.wait()
                return

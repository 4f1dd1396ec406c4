"""What the agent of a session has made: the changes of its files as a diff, its shared memory with versions, its outcomes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from itertools import takewhile

import msgspec

from fidelio.errors import FidelioError, UsageProblem
from fidelio.ledger.model import Session
from fidelio.orchestrator.runs.worktrees import Worktree, read_diff
from fidelio.runtime.memory.notes import load_note_versions
from fidelio.runtime.memory.session_memory import MemoryVersion
from fidelio.runtime.outcomes.record import Outcome
from fidelio.runtime.project.changes import ProjectChanges
from fidelio.runtime.resources.compare import PAGE_EDITS, compare_texts, render_unified
from fidelio.runtime.resources.versions import Substrate
from fidelio.runtime.wakes.record import QueuedWake, Schedule
from fidelio.surfaces.web.pages import PageContent, PageRequest, PageRoute, Result
from fidelio.surfaces.web.session_views import SessionView

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@", re.ASCII)
_HEADERS = ("diff --git ", "Binary or large file ", "# ")
# Lines of a diff on a page, and versions of the memory.
_MOST_LINES, _MOST_VERSIONS = 4_000, 20


class ChangedFile(msgspec.Struct, frozen=True):
    """A file of a diff."""

    name: str
    lines: tuple[str, ...]

    @property
    def shown(self) -> tuple[str, ...]:
        """The lines without what the page says in words: the names, and the version control's own digests and modes."""
        start = next((at for at, line in enumerate(self.lines) if line.startswith("@@")), None)
        return self.lines if start is None else self.lines[start:]

    @property
    def kind(self) -> str:
        header = self.lines[: len(self.lines) - len(self.shown)]
        if any(line.startswith(("new file", "--- /dev/null")) for line in header):
            return "new"
        return "deleted" if any(line.startswith(("deleted file", "+++ /dev/null")) for line in header) else ""

    @property
    def added(self) -> int:
        return sum(line.startswith("+") for line in self._changed)

    @property
    def removed(self) -> int:
        return sum(line.startswith("-") for line in self._changed)

    @property
    def _changed(self) -> tuple[str, ...]:
        return self.shown if self.shown[:1] and self.shown[0].startswith("@@") else ()


class MemoryEntry(msgspec.Struct, frozen=True):
    """A version of the memory of an agent. `lines` are what it changed, as lines of a diff. `is_first`: it is the oldest."""

    version: MemoryVersion
    stored_at: int
    lines: tuple[str, ...]
    is_first: bool = False


class RuntimeFacts(msgspec.Struct, frozen=True):
    """The outcomes of a runtime agent, and what will wake it."""

    outcomes: tuple[Outcome, ...] = ()
    queued: Sequence[QueuedWake] = ()
    schedules: Sequence[Schedule] = ()


async def load_runtime_facts(request: PageRequest, session: Session) -> RuntimeFacts:
    """Outcomes and queued wakes; none of a session that cannot be read, which must not hide the rest of the page."""
    with suppress(FidelioError):
        record = (await (await request.services.application.runtime()).load(session.id)).record
        return RuntimeFacts(record.outcomes.outcomes, record.wakes.queued, record.wakes.schedules)
    return RuntimeFacts()


async def _show_changes(request: PageRequest) -> Result:
    """The files that an agent has changed, in its worktree or in its copy of the project."""
    session = await (await request.services.records()).find(request.path("session"))
    lines = (await _read_changes(request, session)).rstrip("\n").split("\n")
    files = split_files(lines[:_MOST_LINES]) if lines != [""] else []
    values = {"view": SessionView(session), "files": files, "more": max(0, len(lines) - _MOST_LINES)}
    totals = {"added": sum(file.added for file in files), "removed": sum(file.removed for file in files)}
    return PageContent("changes.html", {**values, **totals})


async def _read_changes(request: PageRequest, session: Session) -> str:
    if session.kind == "runtime":
        context = (await request.services.application.runtime()).context
        return (await ProjectChanges(context).diff(session.id)).text
    record = session.record
    if session.kind != "agent" or not record.get("worktree"):
        raise UsageProblem(
            f"Session {session.id} has no worktree.", remedy="Start an agent whose blueprint has `worktree: true`."
        )
    return await read_diff(
        Worktree(record["worktree"], record.get("branch", ""), record.get("base", ""), record.get("prefix", ""))
    )


def split_files(lines: Sequence[str]) -> list[ChangedFile]:
    """Split a diff by files.

    A line of a file may look like the header of another file, so headers are looked for only where no hunk has lines left.
    """
    files, left, is_open = list[list[str]](), (0, 0), False
    for line in lines:
        if left > (0, 0):
            left = _count_line(left, line)
        elif header := _HUNK.match(line):
            left, is_open = (int(header[1] or 1), int(header[2] or 1)), False
        elif not files or line.startswith(_HEADERS) or (line.startswith("--- ") and not is_open):
            files.append([])
            is_open = line.startswith("diff --git ")
        files = files or [[]]
        files[-1].append(line)
    return [ChangedFile(_find_name(part), tuple(part)) for part in files]


def _count_line(left: tuple[int, int], line: str) -> tuple[int, int]:
    """The lines of the old and of the new file that a hunk still has after this line."""
    old, new = left
    return (max(0, old - (line[:1] in ("-", " ", ""))), max(0, new - (line[:1] in ("+", " ", ""))))


def _find_name(part: Sequence[str]) -> str:
    """The name of the file of a part; of a deleted file its old name."""
    header = takewhile(lambda line: not line.startswith("@@"), part)
    names = [line[4:] for line in header if line.startswith(("+++ ", "--- "))]
    found = next((name for name in reversed(names) if name != "/dev/null"), part[0])
    return found.removeprefix("b/").removeprefix("a/")


async def _show_memory(request: PageRequest) -> Result:
    """The shared memory of the agent: its newest versions, and how each differs from its predecessor."""
    session = await (await request.services.records()).find(request.path("session"))
    if session.kind != "runtime" or not session.record.get("agent"):
        raise UsageProblem(f"Session {session.id} has no memory.", remedy="Agents of the runtime have one.")
    context = (await request.services.application.runtime()).context
    substrate = await Substrate.open(context, session.record.get("project", ""), session.record["agent"])
    versions = await load_note_versions(substrate, _MOST_VERSIONS)
    older = [*(notes for _, notes in versions), ""][1:]
    firsts = [number == len(versions) < _MOST_VERSIONS for number in range(1, len(versions) + 1)]
    entries = [
        MemoryEntry(version, _read_moment(version.created_at), _compare(before, notes), is_first)
        for (version, notes), before, is_first in zip(versions, older, firsts, strict=True)
    ]
    return PageContent("memory.html", {"view": SessionView(session), "entries": entries, "most": _MOST_VERSIONS})


def _read_moment(iso: str) -> int:
    return round(datetime.fromisoformat(iso).timestamp() * 1000)


def _compare(old: str, new: str) -> tuple[str, ...]:
    """The changed lines, without the names of files: notes are no file, and whether they end with a new line is no change."""
    before, after = (f"{text.rstrip()}\n" if text.strip() else "" for text in (old, new))
    lines = render_unified(compare_texts(before, after, most_edits=PAGE_EDITS), "before", "after")
    return tuple(line for line in lines if not line.startswith(("---", "+++")))


ROUTES = (
    PageRoute(path="/sessions/{session}/changes", show=_show_changes),
    PageRoute(path="/sessions/{session}/memory", show=_show_memory),
)

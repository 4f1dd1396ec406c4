"""The diff of a copy on the command line: all of it, or the part about some paths, so that `apply` shows what it writes.

The text is an agent's, so a line of a file may look like the header of another file. Nothing is searched for: the parts are
consumed in the order of the changes, each by the lines that it must begin with, and hunks by the counts in their headers.
Where that does not fit, the whole text is shown rather than too little.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import click
from msgspec.structs import replace

from fidelio.errors import UsageProblem
from fidelio.runtime.project.changes import ProjectChange, ProjectDiff
from fidelio.surfaces.cli.context import escape_text, print_message

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@", re.ASCII)
_NO_NEWLINE = "\\ No newline at end of file"


def print_diff(found: ProjectDiff) -> None:
    """Print a diff. Only LF ends a line; every other line end is escaped."""
    if not found.changes:
        click.echo("The copy has no changes.")
    for line in found.text.split("\n")[:-1]:
        click.echo(escape_text(line))
    for change in found.changes:
        if change.problem:
            print_message(f"{change.path} cannot be brought back: {change.problem}")


def select_paths(found: ProjectDiff, paths: Sequence[str]) -> ProjectDiff:
    """The diff with the changes of these paths, and all of it for none. Its digest still names all changes."""
    known = {change.path: change for change in found.changes}
    for path in paths:
        if path not in known:
            raise UsageProblem(f"{path!r:.200} is not changed.", remedy="Name paths as the diff does, relative to the project.")
    texts = _split(found) if paths else None
    if texts is None:
        return found
    chosen = list(dict.fromkeys(paths))
    text = "".join(texts.get(path, f"# {path} is not shown: the diff is too long.\n") for path in chosen)
    return replace(found, changes=tuple(known[path] for path in chosen), text=text)


def _split(found: ProjectDiff) -> dict[str, str] | None:
    """The text of each change; None if the text is not what the changes say. The last ones of a long diff have none."""
    lines = found.text.split("\n")
    start, texts = 0, dict[str, str]()
    for number, change in enumerate(found.changes):
        if start == len(lines) - 2 and lines[start:] == [f"... and {len(found.changes) - number} more changed paths.", ""]:
            return texts
        end = _find_end(lines, start, change)
        if end is None:
            return None
        texts[change.path] = "".join(f"{line}\n" for line in lines[start:end])
        start = end
    return texts if lines[start:] == [""] else None


def _find_end(lines: Sequence[str], start: int, change: ProjectChange) -> int | None:
    """The line after the part of a change."""
    if change.kind == "refused":
        return _skip(lines, start, f"# {change.path}: not brought back, {change.problem}.")
    for problem in ("was changed on the host", "was deleted on the host", "is not a plain file on the host"):
        after = _skip(lines, start, f"# {change.path} {problem}", whole=False)
        start = start if after is None else after
    for text in (
        f"Binary or large file {change.path}: {change.kind},",
        f"# {change.path}: {change.kind}, {change.size} bytes,",
    ):
        if (end := _skip(lines, start, text, whole=False)) is not None:
            return end
    old = "/dev/null" if change.kind == "added" else f"a/{change.path}"
    new = "/dev/null" if change.kind == "deleted" else f"b/{change.path}"
    end = _skip(lines, start, f"--- {old}\n+++ {new}")
    return None if end is None else _skip_hunks(lines, end)


def _skip(lines: Sequence[str], start: int, text: str, *, whole: bool = True) -> int | None:
    """The line after this text, which may have several lines; None if it is not there. `whole`: its last line has no more."""
    expected = text.split("\n")
    found = "\n".join(lines[start : start + len(expected)])
    return start + len(expected) if (found == text if whole else found.startswith(text)) else None


def _skip_hunks(lines: Sequence[str], start: int) -> int | None:
    while start < len(lines) and (header := _HUNK.fullmatch(lines[start])):
        old, new = (1 if count is None else int(count) for count in header.groups())
        start += 1
        while old > 0 or new > 0 or lines[start : start + 1] == [_NO_NEWLINE]:
            sign = lines[start][:1] if start < len(lines) else ""
            if sign not in (" ", "-", "+", "\\"):
                return None
            old, new, start = old - (sign in " -"), new - (sign in " +"), start + 1
    return start

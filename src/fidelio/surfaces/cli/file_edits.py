"""Planned edits of the files of a project: `fidelio init` writes them, shows them, and says which could not be made.

A file that is not edited safely is left to a person, with the text to write and the place for it.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click
import msgspec
from msgspec.structs import replace

from fidelio.surfaces.cli.contained_files import write_inside
from fidelio.surfaces.cli.context import escape_line, escape_text, print_sentence

# Skipped: the file cannot be edited safely. Failed: the operating system refused.
State = Literal["added", "removed", "kept", "skipped", "failed"]
CHANGES = ("added", "removed")
_UNFINISHED = ("skipped", "failed")


class Edit(msgspec.Struct, frozen=True):
    """A planned or finished change of a file of a client. `title` and `content` name both for people.

    `deletes`: the file has nothing but what is removed, and is deleted. If the edit is skipped, a person can write `snippet` at
    `where`, or delete it if `where` is empty.
    """

    client: str
    file: str
    state: State
    title: str
    content: str
    entry: str = ""
    before: str = ""
    after: str = ""
    reason: str = ""
    where: str = ""
    snippet: str = ""
    deletes: bool = False

    def skip(self, reason: str, where: str, snippet: str) -> Edit:
        """The edit as a change that a person has to make."""
        return replace(self, state="skipped", reason=reason, where=where, snippet=snippet)


def write_edits(project: Path, edits: Sequence[Edit], *, dry_run: bool) -> list[Edit]:
    """Write what changes. Returns the edits as they ended."""
    return [edit if dry_run or edit.state not in CHANGES else _write_edit(project, edit) for edit in edits]


def _write_edit(project: Path, edit: Edit) -> Edit:
    try:
        write_inside(project, edit.file, None if edit.deletes else edit.after.encode())
    except OSError as error:
        return replace(edit, state="failed", reason=f"cannot be written: {error.strerror}")
    return edit


def print_edits(edits: Sequence[Edit], *, dry_run: bool) -> None:
    """Print a sentence about each edit; for a dry run, the differences before them."""
    for edit in edits if dry_run else ():
        lines = difflib.unified_diff(edit.before.splitlines(), edit.after.splitlines(), edit.file, edit.file, lineterm="")
        click.echo("\n".join(map(escape_text, lines))) if edit.state in CHANGES else None
    # All entries that a file cannot get are in one snippet, which is printed once.
    for line in dict.fromkeys(_describe_edit(edit, dry_run=dry_run) for edit in edits):
        click.echo(line)


def _describe_edit(edit: Edit, *, dry_run: bool) -> str:
    title, content = edit.title, edit.content
    match edit.state:
        case "added":
            return f"{title}: {edit.file} {'would get' if dry_run else 'has'} {content}."
        case "removed" if edit.deletes:
            return f"{title}: {edit.file} {'would be' if dry_run else 'was'} deleted, because it had only {content}."
        case "removed":
            return f"{title}: {edit.file} {'would no longer have' if dry_run else 'no longer has'} {content}."
        case "kept":
            return f"{title}: {edit.file} has {content} already; it was not changed."
        case "skipped":
            snippet = "\n".join(f"    {escape_text(line)}" for line in edit.snippet.splitlines())
            advice = f"Write this {edit.where}" if edit.where else "Delete this yourself if nobody needs it"
            return f"{title}: {edit.file} was not changed, because {escape_line(edit.reason)}. {advice}:\n{snippet}"
        case "failed":
            return f"{title}: {edit.file} {edit.reason}. Correct that, then run the command again."


def report_unfinished(edits: Sequence[Edit], problem: str = "have no entry for Fidelio") -> int:
    """Print the files without an entry to standard error, and return the exit code."""
    files = {edit.file for edit in edits}
    unfinished = list(dict.fromkeys(edit.file for edit in edits if edit.state in _UNFINISHED))
    if unfinished:
        count = f"{len(unfinished)} of {len(files)} files"
        print_sentence(f"fidelio: {count} {problem}: {', '.join(unfinished)}.", err=True)
    return 1 if unfinished else 0


def edit_json(edit: Edit) -> dict[str, str]:
    """JSON of an edit."""
    entry = {"entry": edit.entry} if edit.entry else {}
    fields = {"client": edit.client, "file": edit.file, "state": edit.state, "reason": edit.reason, **entry}
    return {**fields, "where": edit.where, "snippet": edit.snippet} if edit.snippet else fields

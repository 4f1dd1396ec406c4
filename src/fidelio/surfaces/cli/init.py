"""`fidelio init`: makes a project ready, so that the agents in it find Fidelio."""

from __future__ import annotations

import difflib
import errno
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import click

from fidelio.errors import HomeProblem
from fidelio.home import DIRECTORY, Home
from fidelio.surfaces.cli.clients import CLIENTS, Client
from fidelio.surfaces.cli.context import json_option, print_json, printable, visible
from fidelio.surfaces.cli.insertion import CannotEdit

# Skipped: we do not dare to edit the file. Failed: the system does not let us.
State = Literal["added", "kept", "skipped", "failed"]
NOT_DONE = ("skipped", "failed")
# The ledger and the keys stay on this machine; workflows are meant to be shared.
IGNORE = "*\n!.gitignore\n!workflows/\n!workflows/**\n"


@dataclass(frozen=True, slots=True)
class Edit:
    """What is to happen to one file. Of one that is skipped, `snippet` is what a person can write `where`."""

    client: str
    file: str
    state: State
    before: str = ""
    after: str = ""
    reason: str = ""
    where: str = ""
    snippet: str = ""


@click.command("init")
@click.option(
    "--client",
    "names",
    type=click.Choice([client.name for client in CLIENTS]),
    multiple=True,
    help="Only for this client (repeatable).",
)
@click.option(
    "--project",
    type=click.Path(file_okay=False, exists=True),
    default=".",
    show_default=True,
    help="The project to make ready.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@json_option
def init_command(names: tuple[str, ...], project: str, dry_run: bool, as_json: bool) -> int:
    """Make a project ready: a home for its sessions, and an MCP entry for each agent.

    Nothing that is there is replaced. A file that cannot be edited safely is left alone, and what to add is shown instead.
    Ends with 1 when a file was left alone or could not be written.
    """
    place = Path(project).absolute()
    edits = [_plan(place, client) for client in CLIENTS if not names or client.name in names]
    if not dry_run:
        make_home(place)
        edits = [_written(place, edit) if edit.state == "added" else edit for edit in edits]
    if as_json:
        print_json({"project": str(place), "dry_run": dry_run, "clients": [_edit_json(edit) for edit in edits]})
    else:
        _print(place, edits, dry_run=dry_run)
    return _conclude(edits)


def make_home(project: Path) -> Home:
    home = Home(project / DIRECTORY).ensure()
    ignore = home.path / ".gitignore"
    try:
        if not ignore.exists():
            ignore.write_text(IGNORE)
        home.workflows.mkdir(exist_ok=True)
    except OSError as error:
        raise HomeProblem(
            f"The home directory {home.path} cannot be written: {error.strerror}.", remedy="Check its owner and mode."
        ) from error
    return home


def own_command() -> list[str]:
    """How another program starts us: by name where that works, so that the file can be shared with others.

    A name that only the activated environment knows does not count: agents are not started from this shell.
    """
    if shutil.which("fidelio", path=_path_of_others()):
        return ["fidelio", "mcp"]
    script = shutil.which("fidelio", path=str(Path(sys.executable).parent))
    return [script, "mcp"] if script else [sys.executable, "-m", "fidelio", "mcp"]


def _path_of_others() -> str:
    """Where programs are looked for, without the environment that we run in."""
    ours, places = Path(sys.prefix).resolve(), os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(place for place in places if place and not Path(place).resolve().is_relative_to(ours))


def _plan(project: Path, client: Client) -> Edit:
    planned = Edit(client.name, client.file, "added")
    try:
        before = _read(project / client.file)
        after = client.add(before, own_command())
    except CannotEdit as error:
        return replace(planned, state="skipped", reason=str(error), where=error.where, snippet=error.snippet)
    except UnicodeDecodeError as error:
        whole = client.add("", own_command())
        return replace(planned, state="skipped", reason=f"it is not UTF-8 ({error})", where="as the whole of it", snippet=whole)
    except OSError as error:
        return replace(planned, state="failed", reason=f"cannot be read: {error.strerror}")
    return replace(planned, state="kept" if after == before else "added", before=before, after=after)


def _read(path: Path) -> str:
    """The text with its line ends as they are; empty where there is no file yet."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        if path.parent.is_symlink() and not path.parent.exists():
            raise FileNotFoundError(errno.ENOENT, f"{path.parent.name} is a link that leads nowhere") from None
        return ""


def _written(project: Path, edit: Edit) -> Edit:
    """Through a draft beside the file, so that a crash leaves the old file or the new one."""
    # Through a link to the file it means.
    path = Path(os.path.realpath(project / edit.file))
    draft = path.with_name(f".{path.name}.fidelio")
    try:
        (project / edit.file).parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(edit.after.encode())
        if path.exists():
            shutil.copymode(path, draft)
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        return replace(edit, state="failed", reason=f"cannot be written: {error.strerror}")
    return edit


def _print(project: Path, edits: Sequence[Edit], *, dry_run: bool) -> None:
    if dry_run:
        for edit in edits:
            lines = difflib.unified_diff(edit.before.splitlines(), edit.after.splitlines(), edit.file, edit.file, lineterm="")
            click.echo("\n".join(map(visible, lines))) if edit.state == "added" else None
    for edit in edits:
        click.echo(_sentence(edit, dry_run=dry_run))
    if not dry_run:
        click.echo(f"Sessions of this project are kept in {project / DIRECTORY}.")
        click.echo("Start your agent here and say: use the fidelio server, list its workflows and start hello.")


def _sentence(edit: Edit, *, dry_run: bool) -> str:
    title = next(client.title for client in CLIENTS if client.name == edit.client)
    match edit.state:
        case "added":
            return f"{title}: {edit.file} {'would get' if dry_run else 'has'} an entry for Fidelio."
        case "kept":
            return f"{title}: {edit.file} has an entry for Fidelio already; it is kept as it is."
        case "skipped":
            snippet = "\n".join(f"    {visible(line)}" for line in edit.snippet.splitlines())
            return f"{title}: {edit.file} is left alone, because {printable(edit.reason)}. Write this {edit.where}:\n{snippet}"
        case "failed":
            return f"{title}: {edit.file} {edit.reason}. Put that right, then repeat."


def _conclude(edits: Sequence[Edit]) -> int:
    """Whoever reads only the end, or only the exit code, learns that something is left to do."""
    left = [edit.file for edit in edits if edit.state in NOT_DONE]
    if left:
        click.echo(f"fidelio: {len(left)} of {len(edits)} files have no entry for Fidelio: {', '.join(left)}.", err=True)
    return 1 if left else 0


def _edit_json(edit: Edit) -> dict[str, str]:
    shown = {"client": edit.client, "file": edit.file, "state": edit.state, "reason": edit.reason}
    return {**shown, "where": edit.where, "snippet": edit.snippet} if edit.snippet else shown

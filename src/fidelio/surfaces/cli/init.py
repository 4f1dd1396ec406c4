"""`fidelio init`: makes a project ready, so that the agents in it find Fidelio."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from fidelio.errors import HomeProblem, UsageProblem
from fidelio.home import DIRECTORY, Home
from fidelio.surfaces.cli.clients import CLIENTS, CannotEdit, Client
from fidelio.surfaces.cli.context import json_option, print_json, visible

State = Literal["added", "kept", "skipped"]
# The ledger and the keys stay on this machine; workflows are meant to be shared.
IGNORE = "*\n!.gitignore\n!workflows/\n!workflows/**\n"


@dataclass(frozen=True, slots=True)
class Edit:
    """What is to happen to one file."""

    client: str
    file: str
    state: State
    before: str
    after: str
    reason: str = ""


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
def init_command(names: tuple[str, ...], project: str, dry_run: bool, as_json: bool) -> None:
    """Make a project ready: a home for its sessions, and an MCP entry for each agent.

    Nothing that is there is replaced. A file that cannot be edited safely is left alone, and what to add is shown instead.
    """
    place = Path(project).absolute()
    edits = [_plan(place, client) for client in CLIENTS if not names or client.name in names]
    if not dry_run:
        make_home(place)
        for edit in edits:
            _write(place, edit)
    if as_json:
        print_json({"project": str(place), "dry_run": dry_run, "clients": [_edit_json(edit) for edit in edits]})
    else:
        _print(place, edits, dry_run=dry_run)


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
    """How another program starts us: by name where that works, so that the file can be shared with others."""
    found = shutil.which("fidelio")
    return ["fidelio", "mcp"] if found else [sys.executable, "-m", "fidelio", "mcp"]


def _plan(project: Path, client: Client) -> Edit:
    path = project / client.file
    try:
        before = path.read_text() if path.exists() else ""
        after = client.add(before, own_command())
    except (CannotEdit, UnicodeDecodeError) as error:
        return Edit(client.name, client.file, "skipped", "", "", str(error))
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error.strerror}.", remedy="Check its owner and mode.") from error
    return Edit(client.name, client.file, "kept" if after == before else "added", before, after)


def _write(project: Path, edit: Edit) -> None:
    """Through a draft beside the file, so that a crash leaves the old file or the new one."""
    if edit.state != "added":
        return
    path = project / edit.file
    draft = path.with_name(f".{path.name}.fidelio")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(edit.after)
        if path.exists():
            shutil.copymode(path, draft)
        os.replace(draft, path.resolve())  # noqa: PTH105  # through a link to the file it means
    except OSError as error:
        raise UsageProblem(f"{path} cannot be written: {error.strerror}.", remedy="Check its owner and mode.") from error


def _print(project: Path, edits: list[Edit], *, dry_run: bool) -> None:
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
            entry = f'"fidelio": command {" ".join(own_command())}'
            return f"{title}: {edit.file} is left alone, because {edit.reason}. Add the server yourself: {entry}."


def _edit_json(edit: Edit) -> dict[str, str]:
    return {"client": edit.client, "file": edit.file, "state": edit.state, "reason": edit.reason}

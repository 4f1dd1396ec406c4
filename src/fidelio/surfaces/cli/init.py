"""`fidelio init`: adds Fidelio to the MCP configuration files of a project, one per client, and makes its home.

An entry is added or left alone, never replaced.
"""

from __future__ import annotations

import difflib
import errno
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import click

from fidelio.errors import HomeProblem
from fidelio.home import DIRECTORY, Home, find_home
from fidelio.surfaces.cli.config_files import CannotEdit, Entry, into_json, into_toml
from fidelio.surfaces.cli.context import CliContext, json_option, pass_cli, print_json, printable, visible
from fidelio.surfaces.commands import own_program, typed

NAME = "fidelio"


@dataclass(frozen=True, slots=True)
class Client:
    """A program that starts MCP servers, and the file in a project that tells it which."""

    name: str
    title: str
    file: str
    table: str
    insert: Callable[[str, Entry], str] = into_json
    kind: str = ""

    def add(self, text: str, command: Sequence[str]) -> str:
        """The text of its file with an entry for Fidelio; raises `CannotEdit` where that is not safe."""
        kind = {"type": self.kind} if self.kind else {}
        return self.insert(text, Entry(self.table, NAME, {**kind, "command": command[0], "args": list(command[1:])}))


CLIENTS = (
    Client("claude", "Claude Code", ".mcp.json", "mcpServers"),
    Client("codex", "Codex", ".codex/config.toml", "mcp_servers", into_toml),
    Client("cursor", "Cursor", ".cursor/mcp.json", "mcpServers"),
    Client("vscode", "VS Code", ".vscode/mcp.json", "servers", kind="stdio"),
    Client("gemini", "Gemini CLI", ".gemini/settings.json", "mcpServers"),
)


# Skipped: we do not dare to edit the file. Failed: the system does not let us.
State = Literal["added", "kept", "skipped", "failed"]
NOT_DONE = ("skipped", "failed")
# The ledger and the keys stay on this machine; workflows and blueprints are meant to be shared.
IGNORE = "*\n!.gitignore\n!workflows/\n!workflows/**\n!agents/\n!agents/**\n"


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


@dataclass(frozen=True, slots=True)
class Residence:
    """Where the sessions of a project are kept. `before` is the home that was in use here and is hidden by this one."""

    home: Home
    is_named: bool
    is_new: bool
    before: Home | None = None

    @property
    def command(self) -> list[str]:
        """What agents start. A project's own home they find by themselves."""
        return [*own_command(), *(["--home", str(self.home.path)] if self.is_named else [])]


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
@pass_cli
def init_command(cli: CliContext, names: tuple[str, ...], project: str, dry_run: bool, as_json: bool) -> int:
    """Make a project ready: a home for its sessions, and an MCP entry for each agent.

    The home is .fidelio in the project; one that is named with --home or FIDELIO_HOME is written into the entries instead.
    Nothing that is there is replaced. A file that cannot be edited safely is left alone, and what to add is shown instead.
    Ends with 1 when a file was left alone or could not be written.
    """
    place = Path(project).absolute()
    residence = _residence(place, cli.home)
    edits = [_plan(place, client, residence.command) for client in CLIENTS if not names or client.name in names]
    if not dry_run:
        residence.home.ensure() if residence.is_named else _furnish(residence.home)
        edits = [_written(place, edit) if edit.state == "added" else edit for edit in edits]
    if as_json:
        where = {"project": str(place), "home": str(residence.home.path)}
        print_json({**where, "dry_run": dry_run, "clients": [_edit_json(edit) for edit in edits]})
    else:
        _print_edits(edits, dry_run=dry_run)
        _print_home(residence, dry_run=dry_run)
    return _conclude(edits)


def _residence(project: Path, asked: str | None) -> Residence:
    own, named = Home(project / DIRECTORY), asked or os.environ.get("FIDELIO_HOME")
    home = Home(Path(os.path.abspath(find_home(named).path))) if named else own  # noqa: PTH100  # Path.absolute leaves the dots in
    is_new = not os.path.lexists(home.path)
    before = _in_use(project) if is_new and not named else None
    return Residence(home, is_named=home != own, is_new=is_new, before=before)


def _in_use(project: Path) -> Home | None:
    """The home that is found from the project as it is, where something was recorded in it."""
    try:
        home = find_home(cwd=project)
    except HomeProblem:
        return None
    return home if os.path.lexists(home.ledger) else None


def _furnish(home: Home) -> None:
    ignore = home.ensure().path / ".gitignore"
    try:
        if not ignore.exists():
            ignore.write_text(IGNORE)
        home.workflows.mkdir(exist_ok=True)
    except OSError as error:
        raise HomeProblem(
            f"The home directory {home.path} cannot be written: {error.strerror}.", remedy="Check its owner and mode."
        ) from error


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


def _plan(project: Path, client: Client, command: Sequence[str]) -> Edit:
    planned = Edit(client.name, client.file, "added")
    try:
        before = _read(project / client.file)
        after = client.add(before, command)
    except CannotEdit as error:
        return replace(planned, state="skipped", reason=str(error), where=error.where, snippet=error.snippet)
    except UnicodeDecodeError as error:
        whole = client.add("", command)
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


def _print_edits(edits: Sequence[Edit], *, dry_run: bool) -> None:
    if dry_run:
        for edit in edits:
            lines = difflib.unified_diff(edit.before.splitlines(), edit.after.splitlines(), edit.file, edit.file, lineterm="")
            click.echo("\n".join(map(visible, lines))) if edit.state == "added" else None
    for edit in edits:
        click.echo(_sentence(edit, dry_run=dry_run))


def _print_home(residence: Residence, *, dry_run: bool) -> None:
    would = f"would be kept in {residence.home.path}{', which would be made' if residence.is_new else ''}"
    click.echo(f"Sessions of this project {would if dry_run else f'are kept in {residence.home.path}'}.")
    if residence.before:
        place = str(residence.before.path)
        click.echo(f"Until now they were kept in {place}. What is there stays there: {typed(own_program(), place)} sessions")
    if not dry_run:
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

"""`fidelio init`: add Fidelio to the MCP configuration files of a project, and create its home.

Every client has its own file. An entry that exists already is never changed.
"""

from __future__ import annotations

import difflib
import errno
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import click
import msgspec
from msgspec.structs import replace

from fidelio.home import load_user_trust
from fidelio.surfaces.cli.config_files import CannotEdit, ConfigEntry, add_to_json, add_to_toml
from fidelio.surfaces.cli.contained_files import find_outside_link, write_inside
from fidelio.surfaces.cli.context import CliContext, escape_line, escape_text, json_option, print_json, with_cli_context
from fidelio.surfaces.cli.project_home import ProjectHome, check_home, choose_home, create_home, describe_former_home
from fidelio.surfaces.commands import add_home_option, find_program

NAME, SANDBOX_NAME = "fidelio", "fidelio-sandbox"
_TITLES = {NAME: "Fidelio", SANDBOX_NAME: "the sandbox of Fidelio"}


class Client(msgspec.Struct, frozen=True):
    """An MCP client and its configuration file in a project."""

    name: str
    title: str
    file: str
    table: str
    insert: Callable[[str, ConfigEntry], str] = add_to_json
    kind: str = ""

    def add(self, text: str, command: Sequence[str], name: str = NAME) -> str:
        """Add an entry for Fidelio to the text of the file. Raises `CannotEdit` if that is not safe."""
        kind = {"type": self.kind} if self.kind else {}
        return self.insert(text, ConfigEntry(self.table, name, {**kind, "command": command[0], "args": list(command[1:])}))


CLIENTS = (
    Client("claude", "Claude Code", ".mcp.json", "mcpServers"),
    Client("codex", "Codex", ".codex/config.toml", "mcp_servers", add_to_toml),
    Client("cursor", "Cursor", ".cursor/mcp.json", "mcpServers"),
    Client("vscode", "VS Code", ".vscode/mcp.json", "servers", kind="stdio"),
    Client("gemini", "Gemini CLI", ".gemini/settings.json", "mcpServers"),
)


# Skipped: the file cannot be edited safely. Failed: the operating system refused.
State = Literal["added", "kept", "skipped", "failed"]
UNFINISHED = ("skipped", "failed")


class Edit(msgspec.Struct, frozen=True):
    """A planned or finished change of a file: an `entry`. If it is skipped, a person can write `snippet` at `where`."""

    client: str
    file: str
    state: State
    entry: str = NAME
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
    help="Write only the file of this client (repeatable).",
)
@click.option(
    "--project",
    type=click.Path(file_okay=False, exists=True),
    default=".",
    show_default=True,
    help="The project to set up.",
)
@click.option(
    "--sandbox",
    is_flag=True,
    help="Also write an entry for a sandbox with a copy of the project: file and shell tools, each command after your yes.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change without changing anything.")
@json_option
@with_cli_context
def init_command(cli: CliContext, names: tuple[str, ...], project: str, sandbox: bool, dry_run: bool, as_json: bool) -> int:
    """Set up a project: a home for its sessions, and an entry for Fidelio in the MCP configuration of each client.

    The home is .fidelio in the project. If another is named with --home or FIDELIO_HOME, the entries use that one. Existing
    entries are never changed. A file that cannot be edited safely is not changed; the command prints what to add to it.

    With --sandbox the agent also gets tools for files and a shell that see only a copy of the project. `fidelio sandbox diff`
    shows what it has changed there, and `fidelio sandbox apply` brings it back.

    Exit code 1: a file could not be edited or written.
    """
    directory = Path(project).absolute()
    chosen = choose_home(directory, cli.home)
    check_home(directory, chosen)
    entries = _list_entries(chosen, sandbox=sandbox)
    clients = [client for client in CLIENTS if not names or client.name in names]
    edits = [edit for client in clients for edit in _plan_edits(directory, client, entries)]
    if not dry_run:
        create_home(chosen)
        edits = [_write_edit(directory, edit) if edit.state == "added" else edit for edit in edits]
    if as_json:
        where = {"project": str(directory), "home": str(chosen.home.path)}
        print_json({**where, "dry_run": dry_run, "clients": [_edit_json(edit) for edit in edits]})
    else:
        _print_edits(edits, dry_run=dry_run)
        _print_home(chosen, dry_run=dry_run)
        if not dry_run:
            _print_hints(sandbox=sandbox)
    return _report_unfinished(edits)


def _list_entries(chosen: ProjectHome, *, sandbox: bool) -> dict[str, list[str]]:
    """The commands that agents start. Without `--home` for the project's own home, which is found by itself."""
    home = ["--home", str(chosen.home.path)] if chosen.is_named else []
    entries = {NAME: [*server_command(), *home]}
    if sandbox:
        # Agents start it in the project, so the file can be shared with people who have it elsewhere.
        entries[SANDBOX_NAME] = [*server_command("--toolset", "sandbox", "--mount", "."), *home]
    return entries


def server_command(*options: str) -> list[str]:
    """The command that starts the MCP server: by name if possible, so that the file can be shared with other people.

    A program of the activated virtual environment is named by its path, because agents are not started from this shell.
    """
    options = options or ("--enforce",)
    if shutil.which("fidelio", path=_path_without_own_environment()):
        return ["fidelio", "mcp", *options]
    script = shutil.which("fidelio", path=str(Path(sys.executable).parent))
    return [*([script] if script else [sys.executable, "-m", "fidelio"]), "mcp", *options]


def _path_without_own_environment() -> str:
    """The PATH without the virtual environment of this process."""
    own, directories = Path(sys.prefix).resolve(), os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(path for path in directories if path and not Path(path).resolve().is_relative_to(own))


def _plan_edits(project: Path, client: Client, entries: Mapping[str, Sequence[str]]) -> list[Edit]:
    """An edit for each entry; each begins with what the previous edit leaves."""
    edits: list[Edit] = []
    for name, command in entries.items():
        before = next((edit.after for edit in reversed(edits) if edit.state == "added"), None)
        edits.append(_plan_edit(project, client, name, command, before))
    return edits


def _plan_edit(project: Path, client: Client, name: str, command: Sequence[str], before: str | None) -> Edit:
    """Plan an entry. `before`: the text of the file after an earlier edit; None reads the file."""
    planned = Edit(client.name, client.file, "added", name)
    try:
        before = _read_config(project, client.file) if before is None else before
        after = client.add(before, command, name)
    except CannotEdit as error:
        return replace(planned, state="skipped", reason=str(error), where=error.where, snippet=error.snippet)
    except UnicodeDecodeError as error:
        whole = client.add("", command, name)
        return replace(
            planned, state="skipped", reason=f"it is not UTF-8 ({error})", where="as its only content", snippet=whole
        )
    except OSError as error:
        return replace(planned, state="failed", reason=f"cannot be read: {error.strerror}")
    return replace(planned, state="kept" if after == before else "added", before=before, after=after)


def _read_config(project: Path, file: str) -> str:
    """The text of a file with its line ends; empty if there is no file."""
    path = project / file
    if link := find_outside_link(project, file):
        raise OSError(errno.ELOOP, link)
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        if path.parent.is_symlink() and not path.parent.exists():
            raise FileNotFoundError(errno.ENOENT, f"{path.parent.name} is a broken symbolic link") from None
        return ""


def _write_edit(project: Path, edit: Edit) -> Edit:
    try:
        write_inside(project, edit.file, edit.after.encode())
    except OSError as error:
        return replace(edit, state="failed", reason=f"cannot be written: {error.strerror}")
    return edit


def _print_edits(edits: Sequence[Edit], *, dry_run: bool) -> None:
    if dry_run:
        for edit in edits:
            lines = difflib.unified_diff(edit.before.splitlines(), edit.after.splitlines(), edit.file, edit.file, lineterm="")
            click.echo("\n".join(map(escape_text, lines))) if edit.state == "added" else None
    for edit in edits:
        click.echo(_describe_edit(edit, dry_run=dry_run))


def _print_home(chosen: ProjectHome, *, dry_run: bool) -> None:
    would = f"would be kept in {chosen.home.path}{', which would be created' if chosen.is_new else ''}"
    click.echo(f"Sessions of this project {would if dry_run else f'are kept in {chosen.home.path}'}.")
    if not (chosen.is_named or chosen.is_new or load_user_trust().trusts(chosen.home.path)):
        program = add_home_option(find_program(), None)
        trust = f"{program} trust {shlex.quote(str(chosen.home.path.parent))}"
        click.echo(f"Its .fidelio was there before, so its workflows and blueprints are not used until you trust them: {trust}")
    if chosen.before:
        click.echo(describe_former_home(chosen.before))


def _print_hints(*, sandbox: bool) -> None:
    click.echo("Start your agent here and say: use the fidelio server, list its workflows and start hello.")
    if sandbox:
        click.echo(f"For the sandbox say: use only the tools of the {SANDBOX_NAME} server, and run the tests of this project.")
        click.echo("Its questions wait in the inbox. The command `sandbox diff` shows what it has changed.")


def _describe_edit(edit: Edit, *, dry_run: bool) -> str:
    title = next(client.title for client in CLIENTS if client.name == edit.client)
    match edit.state:
        case "added":
            return f"{title}: {edit.file} {'would get' if dry_run else 'has'} an entry for {_TITLES[edit.entry]}."
        case "kept":
            return f"{title}: {edit.file} has an entry for {_TITLES[edit.entry]} already; it was not changed."
        case "skipped":
            snippet = "\n".join(f"    {escape_text(line)}" for line in edit.snippet.splitlines())
            return (
                f"{title}: {edit.file} was not changed, because {escape_line(edit.reason)}. Write this {edit.where}:\n{snippet}"
            )
        case "failed":
            return f"{title}: {edit.file} {edit.reason}. Correct that, then run the command again."


def _report_unfinished(edits: Sequence[Edit]) -> int:
    """Print the files without an entry to standard error, and return the exit code."""
    files = {edit.file for edit in edits}
    unfinished = list(dict.fromkeys(edit.file for edit in edits if edit.state in UNFINISHED))
    if unfinished:
        count = f"{len(unfinished)} of {len(files)} files"
        click.echo(f"fidelio: {count} have no entry for Fidelio: {', '.join(unfinished)}.", err=True)
    return 1 if unfinished else 0


def _edit_json(edit: Edit) -> dict[str, str]:
    entry = {} if edit.entry == NAME else {"entry": edit.entry}
    fields = {"client": edit.client, "file": edit.file, "state": edit.state, "reason": edit.reason, **entry}
    return {**fields, "where": edit.where, "snippet": edit.snippet} if edit.snippet else fields

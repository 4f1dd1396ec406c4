"""`fidelio init`: add Fidelio to the MCP configuration files of a project, and create its home.

Every client has its own file; only those of installed clients are written. An entry that exists already is never changed.
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from fidelio.home import load_user_trust
from fidelio.surfaces.cli.config_files import CannotEdit, ConfigEntries, add_to_json, add_to_toml
from fidelio.surfaces.cli.contained_files import find_outside_link
from fidelio.surfaces.cli.context import (
    CliContext,
    escape_line,
    json_option,
    print_json,
    print_sentence,
    with_cli_context,
)
from fidelio.surfaces.cli.file_edits import CHANGES, Edit, State, edit_json, print_edits, report_unfinished, write_edits
from fidelio.surfaces.cli.instructions import INSTRUCTION_FILES, add_paragraph, remove_paragraph
from fidelio.surfaces.cli.project_home import (
    ProjectHome,
    check_home,
    choose_home,
    create_home,
    describe_former_home,
    refuse_nested_home,
)
from fidelio.surfaces.commands import add_home_option, find_program

NAME, SANDBOX_NAME, ORCHESTRATOR_NAME = "fidelio", "fidelio-sandbox", "fidelio-orchestrator"
INSTRUCTIONS = "instructions"
_CONTENTS = {
    NAME: "an entry for Fidelio",
    SANDBOX_NAME: "an entry for the sandbox of Fidelio",
    ORCHESTRATOR_NAME: "an entry for the orchestrator of Fidelio",
    INSTRUCTIONS: "a paragraph about Fidelio",
}


class Client(msgspec.Struct, frozen=True):
    """An MCP client and its configuration file in a project.

    It is installed if a program of `programs` is on the PATH or the directory `traces` is in the home directory of the user.
    """

    name: str
    title: str
    file: str
    table: str
    programs: tuple[str, ...]
    traces: tuple[str, ...]
    insert: Callable[[str, ConfigEntries], str] = add_to_json
    kind: str = ""

    def add(self, text: str, entries: Mapping[str, Sequence[str]]) -> str:
        """Add entries, which are commands, to the text of the file. Raises `CannotEdit` if that is not safe."""
        kind = {"type": self.kind} if self.kind else {}
        members = {name: {**kind, "command": line[0], "args": list(line[1:])} for name, line in entries.items()}
        return self.insert(text, ConfigEntries(self.table, members))

    def is_used(self, project: Path) -> bool:
        """Whether the client is installed, or the project has its file already."""
        home = os.environ.get("HOME", "")
        traces = (os.path.lexists(os.path.join(home, trace)) for trace in self.traces if home)  # noqa: PTH118  # HOME is a text
        return os.path.lexists(project / self.file) or any(map(shutil.which, self.programs)) or any(traces)


CLIENTS = (
    Client("claude", "Claude Code", ".mcp.json", "mcpServers", ("claude",), (".claude", ".claude.json")),
    Client("codex", "Codex", ".codex/config.toml", "mcp_servers", ("codex",), (".codex",), add_to_toml),
    Client("cursor", "Cursor", ".cursor/mcp.json", "mcpServers", ("cursor", "cursor-agent"), (".cursor",)),
    Client("vscode", "VS Code", ".vscode/mcp.json", "servers", ("code", "codium"), (".vscode", ".vscode-server"), kind="stdio"),
    Client("gemini", "Gemini CLI", ".gemini/settings.json", "mcpServers", ("gemini",), (".gemini",)),
)


@click.command("init")
@click.option(
    "--client",
    "names",
    type=click.Choice([client.name for client in CLIENTS]),
    multiple=True,
    help="Write the file of this client, and no other (repeatable).",
)
@click.option("--all", "everything", is_flag=True, help="Write the files of all clients, also of those that are not installed.")
@click.option(
    "--project",
    type=click.Path(file_okay=False, exists=True),
    default=".",
    show_default=True,
    help="The project to set up.",
)
@click.option("--nested", is_flag=True, help="Give the directory a home of its own, although a project around it has one.")
@click.option(
    "--sandbox",
    is_flag=True,
    help="Also write an entry for a sandbox with a copy of the project: file and shell tools, each command after your yes.",
)
@click.option("--orchestrator", is_flag=True, help="Also write an entry for tools that start and watch other agents.")
@click.option(
    "--instructions",
    "added",
    type=click.Choice(INSTRUCTION_FILES),
    multiple=True,
    help="Add a paragraph about Fidelio to this file of instructions (repeatable).",
)
@click.option("--remove-instructions", "remove", is_flag=True, help="Remove that paragraph, and do nothing else.")
@click.option("--dry-run", is_flag=True, help="Show what would change without changing anything.")
@json_option
@with_cli_context
def init_command(cli: CliContext, project: str, dry_run: bool, as_json: bool, remove: bool, **chosen: Any) -> int:
    """Set up a project: a home for its sessions, and an entry for Fidelio in the MCP configuration of each client.

    A client is set up if it is installed or the project has its file already; --all sets up every known client. The home is
    .fidelio in the project. If another is named with --home or FIDELIO_HOME, the entries use that one. Inside of a project that
    has a home, a second home is refused; --nested makes it nevertheless. Existing entries are never changed. A file that cannot
    be edited safely is not changed; the command prints what to add to it.

    With --sandbox the agent also gets tools for files and a shell that see only a copy of the project. `fidelio sandbox diff`
    shows what it has changed there, and `fidelio sandbox apply` brings it back. With --orchestrator it gets tools that start
    other agents and watch them.

    --instructions adds a short paragraph to AGENTS.md or CLAUDE.md, between two comments, and --remove-instructions takes it
    away again. Other text of the file is not changed.

    Exit code 1: a file could not be edited or written.
    """
    options, directory = InitOptions(**chosen, dry_run=dry_run), Path(project).absolute()
    if remove:
        return _remove_instructions(directory, dry_run=dry_run, as_json=as_json)
    home = choose_home(directory, cli.home)
    check_home(directory, home)
    if not options.nested:
        refuse_nested_home(directory, home)
    return _set_up(directory, home, options, as_json=as_json)


class InitOptions(msgspec.Struct, frozen=True):
    """The options of the command that say what is set up."""

    names: tuple[str, ...]
    everything: bool
    nested: bool
    sandbox: bool
    orchestrator: bool
    added: tuple[str, ...]
    dry_run: bool

    def list_clients(self, project: Path) -> list[Client]:
        if self.names:
            return [client for client in CLIENTS if client.name in self.names]
        return [client for client in CLIENTS if self.everything or client.is_used(project)]


def _remove_instructions(project: Path, *, dry_run: bool, as_json: bool) -> int:
    planned = [_plan_instructions(project, file, remove=True) for file in INSTRUCTION_FILES]
    edits = write_edits(project, [edit for edit in planned if edit.state != "kept"], dry_run=dry_run)
    if as_json:
        print_json({"project": str(project), "dry_run": dry_run, INSTRUCTIONS: [edit_json(edit) for edit in edits]})
    elif edits:
        print_edits(edits, dry_run=dry_run)
    else:
        print_sentence(f"Neither {' nor '.join(INSTRUCTION_FILES)} has {_CONTENTS[INSTRUCTIONS]}.")
    return report_unfinished(edits, "were not changed")


def _set_up(project: Path, chosen: ProjectHome, options: InitOptions, *, as_json: bool) -> int:
    entries = _list_entries(chosen, options)
    planned = [edit for client in options.list_clients(project) for edit in _plan_edits(project, client, entries)]
    texts = [_plan_instructions(project, file, remove=False) for file in options.added]
    if not options.dry_run:
        create_home(chosen)
    edits, texts = (write_edits(project, batch, dry_run=options.dry_run) for batch in (planned, texts))
    if as_json:
        where = {"project": str(project), "home": str(chosen.home.path), "absolute": _list_own_paths(entries)}
        lists = {"clients": [edit_json(edit) for edit in edits], INSTRUCTIONS: [edit_json(edit) for edit in texts]}
        print_json({**where, "dry_run": options.dry_run, **lists})
    else:
        print_edits([*edits, *texts], dry_run=options.dry_run)
        _print_clients(project, options)
        _print_home(chosen, dry_run=options.dry_run)
        _print_hints(entries, edits, options)
    return report_unfinished([*edits, *texts])


def _list_entries(chosen: ProjectHome, options: InitOptions) -> dict[str, list[str]]:
    """The commands that agents start. Without `--home` for the project's own home, which is found by itself."""
    home = ["--home", str(chosen.home.path)] if chosen.is_named else []
    entries = {NAME: [*server_command(), *home]}
    if options.sandbox:
        # Agents start it in the project, so the file can be shared with people who have it elsewhere.
        entries[SANDBOX_NAME] = [*server_command("--toolset", "sandbox", "--mount", "."), *home]
    if options.orchestrator:
        entries[ORCHESTRATOR_NAME] = [*server_command("--toolset", "orchestrator"), *home]
    return entries


def _list_own_paths(entries: Mapping[str, Sequence[str]]) -> list[str]:
    """The absolute paths in the entries, which are valid on this machine only."""
    return list(dict.fromkeys(word for command in entries.values() for word in command if Path(word).is_absolute()))


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
    """An edit for each entry; each begins with the text of the previous edit."""
    edits: list[Edit] = []
    for name in entries:
        before = next((edit.after for edit in reversed(edits) if edit.state in CHANGES), None)
        edits.append(_plan_edit(project, client, name, entries, before))
    return edits


def _plan_edit(project: Path, client: Client, name: str, entries: Mapping[str, Sequence[str]], before: str | None) -> Edit:
    """Plan an entry. `before`: the text of the file after an earlier edit; None reads the file."""
    planned = Edit(client.name, client.file, "added", client.title, _CONTENTS[name], "" if name == NAME else name)
    try:
        before = _read_config(project, client.file) if before is None else before
    except UnicodeDecodeError as error:
        return planned.skip(f"it is not UTF-8 ({error})", "as its only content", client.add("", entries))
    except OSError as error:
        return replace(planned, state="failed", reason=f"cannot be read: {error.strerror}")
    try:
        after = client.add(before, {name: entries[name]})
    except CannotEdit:
        return _explain_refusal(planned, client, before, entries)
    return replace(planned, state="kept" if after == before else "added", before=before, after=after)


def _explain_refusal(planned: Edit, client: Client, before: str, entries: Mapping[str, Sequence[str]]) -> Edit:
    """Skip an entry. A person writes all entries that the file lacks at once: each alone would replace the others."""
    try:
        client.add(before, entries)
    except CannotEdit as error:
        return planned.skip(str(error), error.where, error.snippet)
    raise AssertionError(f"{client.file} takes all entries together, and not each.")


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


def _plan_instructions(project: Path, file: str, *, remove: bool) -> Edit:
    state: State = "removed" if remove else "added"
    planned = Edit(INSTRUCTIONS, file, state, "Instructions", _CONTENTS[INSTRUCTIONS], INSTRUCTIONS)
    try:
        before = _read_config(project, file)
        after = remove_paragraph(before) if remove else add_paragraph(before)
    except CannotEdit as error:
        return planned.skip(str(error), error.where, error.snippet)
    except UnicodeDecodeError as error:
        return planned.skip(f"it is not UTF-8 ({error})", "at its end", add_paragraph(""))
    except OSError as error:
        return replace(planned, state="failed", reason=f"cannot be read: {error.strerror}")
    # A link is somebody's way to a file, also to an empty one.
    deletes = remove and not after and not (project / file).is_symlink()
    return replace(planned, state="kept" if after == before else planned.state, before=before, after=after, deletes=deletes)


def _print_clients(project: Path, options: InitOptions) -> None:
    """Say which clients were left out, because a person may miss a client that is not found."""
    left_out = [client.title for client in CLIENTS if client not in options.list_clients(project)]
    if left_out and not options.names:
        print_sentence(f"Not found on this machine, so not set up: {', '.join(left_out)}. --all sets up every client.")


def _print_home(chosen: ProjectHome, *, dry_run: bool) -> None:
    would = f"would be kept in {chosen.home.path}{', which would be created' if chosen.is_new else ''}"
    print_sentence(f"Sessions of this project {would if dry_run else f'are kept in {chosen.home.path}'}.")
    if not (chosen.is_named or chosen.is_new or load_user_trust().trusts(chosen.home.path)):
        program = add_home_option(find_program(), None)
        trust = f"{program} trust {shlex.quote(str(chosen.home.path.parent))}"
        print_sentence(f"Its .fidelio was there before, so its files are not used until you trust them: {trust}")
    if chosen.before:
        print_sentence(describe_former_home(chosen.before))


def _print_hints(entries: Mapping[str, Sequence[str]], edits: Sequence[Edit], options: InitOptions) -> None:
    if edits and (paths := _list_own_paths(entries)):
        named = ", ".join(map(escape_line, paths))
        print_sentence(f"The entries contain paths of this machine, so do not commit them: {named}")
    if options.dry_run:
        return
    if edits:
        print_sentence("Start your agent here and say: use the fidelio server, list its workflows and start hello.")
    if options.sandbox:
        print_sentence(f"For the sandbox say: use only the tools of the {SANDBOX_NAME} server, and run the tests.")
        program = add_home_option(find_program(), None)
        print_sentence(f"Its questions wait in the inbox. `{program} sandbox diff` shows what it has changed.")
    offers = {
        "--sandbox": ("a sandbox with a copy of this project", options.sandbox),
        "--orchestrator": ("tools that start other agents", options.orchestrator),
        "--instructions AGENTS.md": ("a paragraph for agents about the workflows", bool(options.added)),
    }
    if wanted := [f"{option} ({purpose})" for option, (purpose, is_chosen) in offers.items() if not is_chosen]:
        print_sentence(f"More is possible: {', '.join(wanted)}.")

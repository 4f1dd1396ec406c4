"""`fidelio new`: write a small, complete workflow into a project, for a person to change.

A workflow that exists is never changed, and nothing is written through a symbolic link that leads out of the project.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import click

from fidelio.definitions.library import Library, Root
from fidelio.definitions.library.identifiers import check_id
from fidelio.definitions.library.roots import MANIFESTS
from fidelio.definitions.reading.document import detect_format
from fidelio.definitions.reading.positions import MAX_BYTES
from fidelio.definitions.wording import describe_count
from fidelio.errors import BadId, HomeProblem, UsageProblem
from fidelio.home import DIRECTORY, Home
from fidelio.surfaces.cli.contained_files import find_outside_link, write_inside
from fidelio.surfaces.cli.context import (
    CliContext,
    escape_line,
    json_option,
    print_commands,
    print_json,
    print_line,
    print_sentence,
    quote_name,
    relative_path,
    resolve_project,
    with_cli_context,
)
from fidelio.surfaces.cli.project_home import ProjectHome, check_home, choose_home, create_home, describe_former_home
from fidelio.surfaces.cli.references import WORKFLOW
from fidelio.surfaces.commands import find_program

TEMPLATE = Path(__file__).with_name("new_workflow.yaml")
# Where the template has the name of the workflow.
PLACEHOLDER = "NAME"
# Files of a workflow that is copied.
_MOST_FILES = 500
_FIDELITY_LINE = re.compile(r"^fidelity:", re.MULTILINE)
_ID_LINE = re.compile(r"^(\s*\"?id\"?:\s*)(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s#,]+)", re.MULTILINE)


@click.command("new")
@click.argument("name")
@click.option("--from", "source", metavar="WORKFLOW", type=WORKFLOW, help="Copy this workflow instead, with all its files.")
@json_option
@with_cli_context
def new_command(cli: CliContext, name: str, source: str | None, as_json: bool) -> None:
    """Write a small workflow NAME, to be changed into your own, or a copy of another with --from.

    It has three activities and a question that only a person can answer, and its comments explain it. It declares
    `fidelity: enforce`: a server refuses a move that the workflow does not allow.

    It is written into .fidelio/workflows/NAME of the project: into the nearest .fidelio, or a new one in the working directory.
    If a home is named with --home or FIDELIO_HOME, it is written there. An existing workflow is never changed.

    A .fidelio in which nothing was before is trusted then, unless an agent runs the command. Other files that were there before
    do not become trusted, and the command says with which command you trust them.
    """
    workflow, project = _check_name(name), _find_project(cli)
    chosen = choose_home(project, cli.home)
    check_home(project, chosen)
    _refuse_existing(cli, chosen.home, workflow)
    files = _read_template(workflow) if source is None else _read_copy(cli, source, workflow)
    file = _write_workflow(project, chosen, workflow, files)
    commands = _list_next_commands(cli, chosen, workflow)
    if as_json:
        where = {"workflow": workflow, "home": str(chosen.home.path), "file": str(file)}
        print_json({**where, "trusted": chosen.is_trusted(), "next": list(commands)})
    else:
        _print_result(chosen, file, commands, copied=len(files) if source else 0)


def _check_name(name: str) -> str:
    workflow = check_id(name)
    if workflow.startswith("-"):
        raise BadId(f"{workflow!r} begins with a hyphen, so commands take it for an option.", remedy="Begin with a letter.")
    if detect_format(workflow):
        raise BadId(f"{workflow!r} is the name of a file, and a workflow is a directory.", remedy="Leave out the suffix.")
    return workflow


def _find_project(cli: CliContext) -> Path:
    """The project around the nearest `.fidelio` that is used, else the working directory."""
    home = cli.settings.home.path
    is_found = home.name == DIRECTORY and not (cli.home or os.environ.get("FIDELIO_HOME"))
    return home.parent if is_found else Path(resolve_project(None))


def _refuse_existing(cli: CliContext, home: Home, workflow: str) -> None:
    """Refuse the name of any workflow on the search path: a new workflow would be used instead of those before it."""
    # An untrusted home is not on the search path.
    libraries = (Library([Root(home.workflows, "")]), cli.open().open_library())
    files = [entry.file for library in libraries for entry in library.list() if entry.id == workflow]
    if not files and os.path.lexists(home.workflows / workflow):
        files = [str(home.workflows / workflow)]
    if files:
        raise UsageProblem(
            f"The workflow {quote_name(workflow)} exists already: {files[0]}. It was not changed.",
            remedy="Choose another name.",
        )


def _read_template(workflow: str) -> dict[str, bytes]:
    # JSON text is YAML too, whatever is in the name.
    content = TEMPLATE.read_text("utf-8").replace(PLACEHOLDER, json.dumps(workflow, ensure_ascii=False))
    return {"workflow.yaml": content.encode()}


def _read_copy(cli: CliContext, source: str, workflow: str) -> dict[str, bytes]:
    """The files of a workflow. Its manifest gets the new id and declares enforce; everything else stays as it is."""
    manifest = Path(_find_manifest(cli.open().open_library(), source))
    if manifest.name in MANIFESTS:
        files = {str(path.relative_to(manifest.parent)): _read_limited(path) for path in _list_files(manifest.parent)}
        name = manifest.name
    else:
        # A workflow that is a single file: what is beside it are others.
        name = f"workflow{manifest.suffix}"
        files = {name: _read_limited(manifest)}
    id_ = json.dumps(workflow, ensure_ascii=False)
    text = files[name].decode("utf-8")
    found = _ID_LINE.search(text)
    if found is None:
        raise UsageProblem(f"{manifest} has no line with its id.", remedy="Copy its directory yourself, and change the id.")
    is_yaml = manifest.suffix in (".yaml", ".yml")
    level = "\nfidelity: enforce" if is_yaml and not _FIDELITY_LINE.search(text) else ""
    copied = f"{text[: found.start()]}{found[1]}{id_}{level}{text[found.end() :]}"
    return {**files, name: copied.encode()}


def _list_files(directory: Path) -> list[Path]:
    """The files of a workflow, without links and hidden files."""
    found: list[Path] = []
    for path in sorted(directory.rglob("*")):
        is_hidden = any(part.startswith(".") for part in path.relative_to(directory).parts)
        if path.is_file() and not path.is_symlink() and not is_hidden:
            found.append(path)
        if len(found) > _MOST_FILES:
            raise UsageProblem(f"{directory} has more than {_MOST_FILES} files.", remedy="Copy the directory yourself.")
    return found


def _find_manifest(library: Library, source: str) -> str:
    # Raises for a name that does not exist, and suggests others.
    found = library.workflow(source).id
    return next(entry.file for entry in library.list() if entry.id == found)


def _read_limited(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise UsageProblem(f"{path} is larger than {MAX_BYTES} bytes.", remedy="Copy the directory yourself.")
    return content


def _write_workflow(project: Path, chosen: ProjectHome, workflow: str, files: dict[str, bytes]) -> Path:
    base = chosen.home.path if chosen.is_named else project
    directory = chosen.home.workflows / workflow
    manifest = next(name for name in MANIFESTS if name in files)
    path = directory / manifest
    try:
        # Before the home is created: a home with such a link must not become trusted.
        if link := find_outside_link(base, str(path.relative_to(base))):
            raise HomeProblem(f"{link}, and nothing is written there.", remedy="Remove the link.")
        create_home(chosen)
        # Folders are made only below a path without links; those that stay inside are resolved here.
        root = os.path.realpath(base)
        # The manifest comes last: a directory without it is no workflow.
        for name in sorted(files, key=lambda name: (name == manifest, name)):
            target = os.path.relpath(os.path.realpath(directory / name), root)
            write_inside(Path(root), target, files[name], replace=False)
    except OSError as error:
        remedy = "Check the owner and mode of its directory, or choose another name."
        raise HomeProblem(f"{path} cannot be written: {error.strerror}.", remedy=remedy) from error
    return path


def _list_next_commands(cli: CliContext, chosen: ProjectHome, workflow: str) -> dict[str, str]:
    """The commands to type next, and what each does."""
    name = shlex.quote(workflow)
    trust = f"{find_program()} trust {shlex.quote(str(chosen.home.path.parent))}"
    needed = {} if chosen.is_trusted() else {trust: "shows what is in the project, and trusts it"}
    return {
        **needed,
        f"{cli.program} lint": "checks it, after every change",
        f"{cli.program} draw {name}": "draws it",
        f"{cli.program} run {name}": "runs it with agents",
        f"{cli.program} init": f"connects your agent; then say: use fidelio, start {quote_name(workflow)}",
    }


def _print_result(chosen: ProjectHome, file: Path, commands: dict[str, str], *, copied: int) -> None:
    others = f" and {describe_count(copied - 1, 'file')} beside it" if copied > 1 else ""
    print_line(f"Wrote {escape_line(relative_path(file))}{others}")
    if chosen.before:
        print_line(escape_line(describe_former_home(chosen.before)))
    if not chosen.is_trusted():
        print_line(
            f"Nobody has trusted {escape_line(str(chosen.home.path))}, so its workflows are not used until you trust it."
        )
    # A copy has the comments of its author.
    print_sentence("Next:" if copied else "The comments in the file explain every part. Next:")
    print_commands(commands)

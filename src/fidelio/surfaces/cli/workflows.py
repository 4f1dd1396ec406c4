"""Commands over workflow definitions: `fidelio list`, `render_workflow`, `draw` and `lint`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fidelio.definitions.findings import Finding
from fidelio.definitions.models import Definition
from fidelio.errors import UsageProblem
from fidelio.surfaces.cli.context import (
    CliContext,
    here,
    json_option,
    pass_cli,
    print_json,
    print_table,
    printable,
    terminal_width,
    wants_color,
    workflows_option,
)

if TYPE_CHECKING:
    from fidelio.definitions.drawing.graph import Graph
    from fidelio.definitions.library import WorkflowSummary


@click.command("list")
@workflows_option
@json_option
@pass_cli
def list_command(cli: CliContext, directories: tuple[str, ...], with_bundled: bool, as_json: bool) -> None:
    """List the workflows that agents can be led through.

    Only their manifests are read for this; `fidelio lint` and `fidelio doctor` read everything.
    """
    library = cli.open(directories, with_bundled=with_bundled).open_library()
    entries, unlisted = library.list(), library.root_findings()
    for finding in unlisted:
        click.echo(printable(str(finding)), err=True)
    if as_json:
        found = [finding.as_json() for finding in unlisted]
        print_json({"workflows": [_entry_json(entry) for entry in entries], "findings": found})
    elif not entries:
        click.echo("No workflows here. A workflow is a directory with a workflow.yaml, workflow.toon or workflow.json in it.")
    else:
        print_table([_entry_row(entry) for entry in entries], ["id", "version", "from", "title"])
        for entry in entries:
            for finding in entry.findings:
                click.echo(printable(str(finding)), err=True)


@click.command("show")
@click.argument("workflow")
@workflows_option
@json_option
@pass_cli
def show_command(cli: CliContext, workflow: str, directories: tuple[str, ...], with_bundled: bool, as_json: bool) -> None:
    """Show WORKFLOW: its activities, questions, loops and ways, readable in a terminal."""
    from fidelio.definitions.describe import render_workflow
    from fidelio.definitions.drawing.text import UNICODE, choose_signs
    from fidelio.definitions.wording import to_ascii

    library = cli.open(directories, with_bundled=with_bundled).open_library()
    if as_json:
        print_json({**library.snapshot(workflow), "hash": library.content_hash(workflow)})
    else:
        shown = render_workflow(sanitize(library.workflow(workflow)), width=min(terminal_width(), 110), color=wants_color())
        click.echo(shown if choose_signs(sys.stdout.encoding) is UNICODE else to_ascii(shown))


@click.command("draw")
@click.argument("workflow")
@click.option(
    "--format",
    "form",
    type=click.Choice(["svg", "mermaid", "text"]),
    help="What to draw (default: by the name of --output, else text).",
)
@click.option("--output", "-o", type=click.Path(dir_okay=False), help="Write to this file (.svg, .mmd or .txt).")
@workflows_option
@json_option
@pass_cli
def draw_command(
    cli: CliContext,
    /,
    workflow: str,
    form: str | None,
    output: str | None,
    directories: tuple[str, ...],
    with_bundled: bool,
    as_json: bool,
) -> None:
    """Draw WORKFLOW as an SVG picture, a Mermaid flowchart, or text for the terminal."""
    from fidelio.definitions.drawing.graph import build_graph

    chosen = _form(form, output)
    graph = build_graph(sanitize(cli.open(directories, with_bundled=with_bundled).open_library().workflow(workflow)))
    drawn = _drawer(chosen, unicode=as_json or output is not None)(graph)
    if output is not None:
        _save(drawn, output)
    if as_json:
        print_json({"workflow": workflow, "format": chosen, "content": drawn, "file": output})
    elif output is None:
        click.echo(drawn)
    else:
        click.echo(f"Drawn to {output}.", err=True)


@click.command("lint")
@click.argument("directory", required=False, type=click.Path(file_okay=False, exists=True))
@click.option("--with-bundled", is_flag=True, help="With DIRECTORY: its workflows may use the bundled ones.")
@json_option
@pass_cli
def lint_command(cli: CliContext, directory: str | None, with_bundled: bool, as_json: bool) -> int:
    """Check workflow files: those in DIRECTORY, or everything on the search path.

    DIRECTORY is read as `--workflows DIRECTORY` reads it, or is that of a single workflow.

    Each finding names file, line, rule, what is wrong and what to do. Ends with 1 when there are errors, 0 otherwise. What each
    rule means is in docs/reference/lint-rules.md.
    """
    from fidelio.definitions.lint import encode_findings as findings_json
    from fidelio.definitions.lint import format_findings, has_errors

    findings = _lint(cli, directory, with_bundled=with_bundled)
    if as_json:
        print_json(findings_json(findings))
    else:
        click.echo(format_findings(sanitize(findings), color=wants_color(), root=here()))
    return int(has_errors(findings))


def _lint(cli: CliContext, directory: str | None, *, with_bundled: bool) -> tuple[Finding, ...]:
    from fidelio.definitions.library.search_path import bundled_root
    from fidelio.definitions.lint import lint, lint_directory

    if directory is None:
        return lint(cli.open().open_library())
    if not _holds_workflows(Path(directory)):
        raise UsageProblem(
            f"No workflow was found in {directory}.",
            remedy="Give a directory that holds workflows, each in a directory or file of its own, or that of one workflow.",
        )
    return lint_directory(directory, base=(bundled_root(),) if with_bundled else ())


def _holds_workflows(directory: Path) -> bool:
    """Also when it cannot be listed: then that is the finding."""
    from fidelio.definitions.library import Library, Root
    from fidelio.definitions.library.roots import MANIFESTS

    if any((directory / name).is_file() for name in MANIFESTS):
        return True
    library = Library([Root(directory, str(directory))])
    return bool(library.list() or library.root_findings())


def _form(form: str | None, output: str | None) -> str:
    by_name = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid", ".txt": "text"}
    chosen = form or (by_name.get(Path(output).suffix.lower()) if output else "text")
    if chosen is None:
        raise UsageProblem(f"What to draw is not clear from the name {output}.", remedy="Give --format svg, mermaid or text.")
    return chosen


def _save(drawn: str, output: str) -> None:
    try:
        Path(output).write_text(drawn + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageProblem(f"{output} cannot be written: {error.strerror}.", remedy="Choose another file.") from error


def _drawer(form: str, *, unicode: bool) -> Callable[[Graph], str]:
    from fidelio.definitions.drawing.mermaid import draw_mermaid
    from fidelio.definitions.drawing.svg import draw_svg
    from fidelio.definitions.drawing.text import UNICODE, choose_signs, draw_text

    signs = UNICODE if unicode else choose_signs(sys.stdout.encoding)
    width = min(terminal_width(), 110)
    return {"svg": draw_svg, "mermaid": draw_mermaid, "text": lambda graph: draw_text(graph, width, signs=signs)}[form]


def _entry_json(entry: WorkflowSummary) -> dict[str, object]:
    return {
        "id": entry.id,
        "title": entry.title,
        "version": entry.version,
        "description": entry.description,
        "tags": list(entry.tags),
        "from": entry.root,
        "file": entry.file,
        "broken": entry.broken,
        "findings": [finding.as_json() for finding in entry.findings],
    }


def _entry_row(entry: WorkflowSummary) -> dict[str, str]:
    title = f"(broken) {entry.title}" if entry.broken else entry.title
    return {"id": entry.id, "version": entry.version or "-", "from": entry.root, "title": title}


T = TypeVar("T")


def sanitize(part: T) -> T:
    """The same with every text in it printable."""
    cleaned: Any = _sanitize_part(part)
    assert isinstance(cleaned, type(part))
    return cleaned


def _sanitize_part(part: Any) -> Any:
    match part:
        case str():
            return printable(part)
        case Definition():
            fields = {name: _sanitize_part(getattr(part, name)) for name in type(part).model_fields}
            return type(part).model_construct(_fields_set=part.model_fields_set, **fields)
        case Finding():
            return replace(part, file=printable(part.file), sentence=printable(part.sentence), remedy=printable(part.remedy))
        case tuple() | list():
            return type(part)(_sanitize_part(one) for one in part)
        case dict():
            return {_sanitize_part(name): _sanitize_part(value) for name, value in part.items()}
        case _:
            return part

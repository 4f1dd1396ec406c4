"""Commands over definitions: which workflows there are, what one says, how it looks, and what is wrong with it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fidelio.errors import UsageProblem
from fidelio.surfaces.cli.context import (
    App,
    json_option,
    pass_app,
    print_json,
    print_table,
    terminal_width,
    wants_color,
    workflows_option,
)

if TYPE_CHECKING:
    from fidelio.definitions.drawing.graph import Graph
    from fidelio.definitions.library import Entry


@click.command("list")
@workflows_option
@json_option
@pass_app
def list_command(app: App, directories: tuple[str, ...], with_bundled: bool, as_json: bool) -> None:
    """List the workflows that agents can be led through."""
    entries = app.library(directories, with_bundled=with_bundled).list()
    if as_json:
        print_json({"workflows": [_entry_json(entry) for entry in entries]})
    elif not entries:
        click.echo("No workflows here. A workflow is a directory with a workflow.yaml, workflow.toon or workflow.json in it.")
    else:
        print_table([_entry_row(entry) for entry in entries], ["id", "version", "from", "title"])
        for entry in entries:
            for finding in entry.findings:
                click.echo(str(finding), err=True)


@click.command("show")
@click.argument("workflow")
@workflows_option
@json_option
@pass_app
def show_command(app: App, workflow: str, directories: tuple[str, ...], with_bundled: bool, as_json: bool) -> None:
    """Show WORKFLOW: its activities, questions, loops and ways, readable in a terminal."""
    from fidelio.definitions.drawing.text import UNICODE, signs_for
    from fidelio.definitions.show import show
    from fidelio.definitions.wording import in_ascii

    library = app.library(directories, with_bundled=with_bundled)
    if as_json:
        print_json({**library.snapshot(workflow), "hash": library.content_hash(workflow)})
    else:
        shown = show(library.workflow(workflow), width=min(terminal_width(), 110), color=wants_color())
        click.echo(shown if signs_for(sys.stdout.encoding) is UNICODE else in_ascii(shown))


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
@pass_app
def draw_command(
    app: App, workflow: str, form: str | None, output: str | None, directories: tuple[str, ...], with_bundled: bool
) -> None:
    """Draw WORKFLOW as an SVG picture, a Mermaid flowchart, or text for the terminal."""
    from fidelio.definitions.drawing.building import graph_of

    drawn = _drawer(form, output)(graph_of(app.library(directories, with_bundled=with_bundled).workflow(workflow)))
    if output is None:
        click.echo(drawn)
        return
    try:
        Path(output).write_text(drawn + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageProblem(f"{output} cannot be written: {error.strerror}.", remedy="Choose another file.") from error
    click.echo(f"Drawn to {output}.", err=True)


@click.command("lint")
@click.argument("directory", required=False, type=click.Path(file_okay=False, exists=True))
@json_option
@pass_app
def lint_command(app: App, directory: str | None, as_json: bool) -> int:
    """Check workflow files: those in DIRECTORY, or everything on the search path.

    Each finding names file, line, rule, what is wrong and what to do. Ends with 1 when there are errors, 0 otherwise. What each
    rule means is in docs/reference/lint-rules.md.
    """
    from fidelio.definitions.lint import as_json as findings_json
    from fidelio.definitions.lint import format_findings, has_errors, lint, lint_directory

    bundled = app.library().roots[:1]
    findings = lint_directory(directory, base=bundled) if directory else lint(app.library())
    if as_json:
        print_json(findings_json(findings))
    else:
        click.echo(format_findings(findings, color=wants_color(), root=Path.cwd()))
    return int(has_errors(findings))


def _drawer(form: str | None, output: str | None) -> Callable[[Graph], str]:
    from fidelio.definitions.drawing.mermaid import draw_mermaid
    from fidelio.definitions.drawing.svg import draw_svg
    from fidelio.definitions.drawing.text import UNICODE, draw_text, signs_for

    by_name = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid", ".txt": "text"}
    chosen = form or (by_name.get(Path(output).suffix) if output else "text")
    if chosen is None:
        raise UsageProblem(f"What to draw is not clear from the name {output}.", remedy="Give --format svg, mermaid or text.")
    signs = UNICODE if output else signs_for(sys.stdout.encoding)
    width = min(terminal_width(), 110)
    return {"svg": draw_svg, "mermaid": draw_mermaid, "text": lambda graph: draw_text(graph, width, signs=signs)}[chosen]


def _entry_json(entry: Entry) -> dict[str, object]:
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


def _entry_row(entry: Entry) -> dict[str, str]:
    title = f"(broken) {entry.title}" if entry.broken else entry.title
    return {"id": entry.id, "version": entry.version or "-", "from": entry.root, "title": title}

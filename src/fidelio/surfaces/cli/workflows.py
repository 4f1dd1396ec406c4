"""Commands over workflow definitions: `fidelio show`, `draw` and `lint`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import click

from fidelio.definitions.describe import render_workflow
from fidelio.definitions.drawing.graph import Graph, build_graph
from fidelio.definitions.drawing.mermaid import draw_mermaid
from fidelio.definitions.drawing.svg import draw_svg
from fidelio.definitions.drawing.text import UNICODE, choose_signs, draw_text
from fidelio.definitions.findings import Finding
from fidelio.definitions.library import Library, Root
from fidelio.definitions.library.roots import MANIFESTS
from fidelio.definitions.library.search_path import bundled_root
from fidelio.definitions.lint import (
    encode_findings,
    encode_sarif,
    explain_rule,
    format_findings,
    has_errors,
    lint,
    lint_directory,
    list_rules,
    list_unopened_files,
    load_examples,
)
from fidelio.definitions.models import Definition
from fidelio.definitions.wording import to_ascii
from fidelio.errors import UsageProblem
from fidelio.home import DIRECTORY
from fidelio.surfaces.cli.context import (
    CliContext,
    current_directory,
    escape_line,
    json_option,
    print_block,
    print_items,
    print_json,
    print_line,
    print_message,
    relative_path,
    terminal_width,
    uses_color,
    with_cli_context,
    workflows_option,
)
from fidelio.surfaces.cli.references import WORKFLOW


@click.command("show")
@click.argument("workflow", type=WORKFLOW)
@workflows_option
@json_option
@with_cli_context
def show_command(cli: CliContext, workflow: str, directories: tuple[str, ...], with_bundled: bool, as_json: bool) -> None:
    """Show WORKFLOW as text: its activities, checkpoints, loops and transitions."""
    library = cli.open(directories, with_bundled=with_bundled).open_library()
    if as_json:
        print_json({**library.snapshot(workflow), "hash": library.content_hash(workflow)})
    else:
        text = render_workflow(sanitize(library.workflow(workflow)), width=min(terminal_width(), 110), color=uses_color())
        print_block(text if choose_signs(sys.stdout.encoding) is UNICODE else to_ascii(text))


@click.command("draw")
@click.argument("workflow", type=WORKFLOW)
@click.option(
    "--format",
    "form",
    type=click.Choice(["svg", "mermaid", "text"]),
    help="The format (default: by the suffix of --output, else text).",
)
@click.option("--output", "-o", type=click.Path(dir_okay=False), help="Write to this file (.svg, .mmd or .txt).")
@workflows_option
@json_option
@with_cli_context
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
    format_ = _choose_format(form, output)
    graph = build_graph(sanitize(cli.open(directories, with_bundled=with_bundled).open_library().workflow(workflow)))
    drawing = _choose_renderer(format_, unicode=as_json or output is not None)(graph)
    if output is not None:
        _save_drawing(drawing, output)
    if as_json:
        print_json({"workflow": workflow, "format": format_, "content": drawing, "file": output})
    elif output is not None:
        print_message(f"The drawing is in {output}.")
    elif format_ == "text":
        print_block(drawing)
    else:
        click.echo(drawing)


@click.command("lint")
@click.argument("directory", required=False, type=click.Path(file_okay=False, exists=True))
@click.option("--with-bundled", is_flag=True, help="With DIRECTORY: its workflows may refer to the bundled ones.")
@click.option("--strict", is_flag=True, help="Warnings fail, too.")
@click.option("--sarif", "as_sarif", is_flag=True, help="Print SARIF, which build services show at the lines.")
@click.option(
    "--explain",
    "rule",
    metavar="RULE",
    help="Do not check: explain RULE, with an example.",
    shell_complete=lambda _, __, start: [rule for rule in list_rules() if rule.startswith(start)],
)
@json_option
@with_cli_context
def lint_command(cli: CliContext, /, rule: str | None, as_json: bool, **options: Any) -> int:
    """Check workflow files: those in DIRECTORY, or everything on the search path.

    DIRECTORY contains workflows, as with `--workflows DIRECTORY`, or is the directory of a single workflow.

    Each finding shows file, line, rule, what is wrong and what to do; --explain RULE says more.

    Exit code 1: there are errors, or with --strict warnings.
    """
    if rule is None:
        return _check(cli, as_json=as_json, **options)
    if rule not in list_rules():
        near = " or ".join(get_close_matches(rule, list_rules(), n=3))
        raise UsageProblem(
            f"There is no rule {rule!r:.80}.", remedy=f"Did you mean {near}?" if near else "A finding names its rule."
        )
    text = explain_rule(rule)
    print_json({"rule": rule, "text": text}) if as_json else print_block(text)
    return 0


def _check(cli: CliContext, *, directory: str | None, with_bundled: bool, strict: bool, as_sarif: bool, as_json: bool) -> int:
    findings = _lint(cli, directory, with_bundled=with_bundled)
    examples = {} if as_json else load_examples(finding.rule for finding in findings)
    if as_json:
        print_items(encode_findings(findings), unopened=_find_unopened_files(cli, directory)[:MAX_LISTED_UNOPENED])
    elif as_sarif:
        print_json(encode_sarif(findings, root=current_directory(), examples=examples))
    else:
        # A program that reads the findings expects each on one line.
        show = print_block if sys.stdout.isatty() else click.echo
        explain = f"{cli.program} lint --explain"
        texts = format_findings(
            sanitize(findings), color=uses_color(), root=current_directory(), examples=examples, explained_by=explain
        )
        show(texts)
        _name_unopened_files(_find_unopened_files(cli, directory))
    return int(has_errors(findings) or (strict and bool(findings)))


MAX_UNOPENED, MAX_LISTED_UNOPENED = 20, 1_000


def _find_unopened_files(cli: CliContext, directory: str | None) -> list[str]:
    """The files that lint did not open, in the directory or on the search path; those of Fidelio itself are not checked."""
    if directory is not None:
        return list_unopened_files(directory)
    roots = [root.path for root in cli.open().open_library().roots if root != bundled_root()]
    return [relative_path(root / name) for root in roots for name in list_unopened_files(root)]


def _name_unopened_files(found: Sequence[str]) -> None:
    """Print which files lint did not open, so that a misplaced file is noticed."""
    if found:
        more = f" and {len(found) - MAX_UNOPENED} more" if len(found) > MAX_UNOPENED else ""
        names = ", ".join(escape_line(name) for name in found[:MAX_UNOPENED])
        which = "it" if len(found) == 1 else f"these {len(found)}"
        print_message(f"Not opened, because no workflow uses {which}: {names}{more}.")


# Where files of a kind are in the directory of their workflow.
_DIRECTORIES = {"activity": "activities", "resource": "resources", "skill": "skills"}
SCHEMAS = Path(__file__).resolve().parents[2] / "definitions" / "schemas"


@click.command("schema")
@click.argument("kind", required=False, type=click.Choice(sorted(file.stem for file in SCHEMAS.glob("*.json"))))
@click.option("--output", "-o", type=click.Path(file_okay=False), help="Copy the schemas into this directory.")
@json_option
@with_cli_context
def schema_command(cli: CliContext, kind: str | None, output: str | None, as_json: bool) -> None:
    """Print the JSON Schema of files of KIND; without KIND, where the schemas are and how an editor uses them.

    The first line of a YAML file tells an editor its schema: `# yaml-language-server: $schema=PATH`. A project that is shared
    needs a copy that it contains: --output writes one.
    """
    if kind is not None and output is None:
        click.echo((SCHEMAS / f"{kind}.json").read_text("utf-8"), nl=False)
        return
    files = {file.stem: file for file in sorted(SCHEMAS.glob("*.json")) if kind in (None, file.stem)}
    if output is not None:
        files = {name: _copy_schema(file, Path(output)) for name, file in files.items()}
    if as_json:
        print_json({name: str(file) for name, file in files.items()})
        return
    is_shared = _is_in_project(cli, output)
    where = f" in {relative_path(cli.settings.home.workflows)}/NAME" if is_shared else ""
    print_line(f"The first line of a YAML file{escape_line(where)}, by its kind:\n")
    for name, file in files.items():
        # An editor reads a relative path from the file in which it stands.
        directory = cli.settings.home.workflows / "NAME" / _DIRECTORIES.get(name, "")
        path = os.path.relpath(file.resolve(), directory) if is_shared else file.absolute()
        click.echo(f"{name}\n  # yaml-language-server: $schema={path}")


def _is_in_project(cli: CliContext, output: str | None) -> bool:
    """Whether the copies are in the project of the home, so that its files can name them by relative paths."""
    home = cli.settings.home.path
    return output is not None and home.name == DIRECTORY and Path(output).resolve().is_relative_to(home.parent)


def _copy_schema(file: Path, directory: Path) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        copy = directory / file.name
        copy.write_bytes(file.read_bytes())
    except OSError as error:
        raise UsageProblem(f"{directory} cannot be written: {error.strerror}.", remedy="Choose another directory.") from error
    return copy


def _lint(cli: CliContext, directory: str | None, *, with_bundled: bool) -> tuple[Finding, ...]:
    if directory is None:
        return lint(cli.open().open_library())
    if not _contains_workflows(Path(directory)):
        raise UsageProblem(
            f"No workflow was found in {directory}.",
            remedy="Name a directory of workflows, each in its own directory or file, or the directory of a single workflow.",
        )
    base = (bundled_root(),)
    if with_bundled:
        return lint_directory(directory, base=base)
    found = lint_directory(directory)
    if not any(finding.rule.startswith(_UNRESOLVED) for finding in found):
        return found
    remaining = set(lint_directory(directory, base=base))
    return tuple(finding if finding in remaining else _name_bundled(finding) for finding in found)


_UNRESOLVED = "unresolved-"


def _name_bundled(finding: Finding) -> Finding:
    if not finding.rule.startswith(_UNRESOLVED):
        return finding
    return replace(finding, remedy="It is bundled with Fidelio: with --with-bundled it is found.")


def _contains_workflows(directory: Path) -> bool:
    """Whether lint has something to check. True also if the directory cannot be read, which is a finding."""
    if any((directory / name).is_file() for name in MANIFESTS):
        return True
    library = Library([Root(directory, str(directory))])
    return bool(library.list() or library.root_findings())


def _choose_format(form: str | None, output: str | None) -> str:
    by_name = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid", ".txt": "text"}
    chosen = form or (by_name.get(Path(output).suffix.lower()) if output else "text")
    if chosen is None:
        raise UsageProblem(
            f"The file name {output} has no known suffix.",
            remedy="Use .svg, .mmd or .txt, or pass --format svg, mermaid or text.",
        )
    return chosen


def _save_drawing(drawing: str, output: str) -> None:
    try:
        Path(output).write_text(drawing + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageProblem(f"{output} cannot be written: {error.strerror}.", remedy="Choose another file.") from error


def _choose_renderer(form: str, *, unicode: bool) -> Callable[[Graph], str]:
    signs = UNICODE if unicode else choose_signs(sys.stdout.encoding)
    width = min(terminal_width(), 110)
    return {"svg": draw_svg, "mermaid": draw_mermaid, "text": lambda graph: draw_text(graph, width, signs=signs)}[form]


T = TypeVar("T")


def sanitize(part: T) -> T:
    """A copy of a definition or of findings with all texts escaped for the terminal."""
    cleaned: Any = _sanitize_part(part)
    assert isinstance(cleaned, type(part))
    return cleaned


def _sanitize_part(part: Any) -> Any:
    match part:
        case str():
            return escape_line(part)
        case Definition():
            fields = {name: _sanitize_part(getattr(part, name)) for name in type(part).model_fields}
            return type(part).model_construct(_fields_set=part.model_fields_set, **fields)
        case Finding():
            return replace(
                part, file=escape_line(part.file), sentence=escape_line(part.sentence), remedy=escape_line(part.remedy)
            )
        case tuple() | list():
            return type(part)(_sanitize_part(item) for item in part)
        case dict():
            return {_sanitize_part(name): _sanitize_part(value) for name, value in part.items()}
        case _:
            return part

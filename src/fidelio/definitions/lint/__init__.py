"""Static checks of the workflows of a library.

`lint` returns the findings of reading the files and of the rules, sorted by file and line. The rules are in modules by topic;
importing this package registers them.
"""

from __future__ import annotations

import os
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fidelio.definitions.findings import READING_RULES, Finding
from fidelio.definitions.library import Library, Root
from fidelio.definitions.library.identifiers import escape_name
from fidelio.definitions.library.locations import RULES_FILES
from fidelio.definitions.library.roots import MANIFESTS
from fidelio.definitions.lint import checkpoints, conditions, identity, targets, transitions, variables
from fidelio.definitions.lint.rules import RULES, Rule
from fidelio.definitions.lint.sarif import describe_rule, describe_severity, encode_sarif, link_rule
from fidelio.definitions.lint.subject import list_subjects
from fidelio.definitions.reading.document import detect_format
from fidelio.definitions.wording import describe_count
from fidelio.errors import PROGRAM

if TYPE_CHECKING:
    from fidelio.definitions.lint.examples import Example

RULE_MODULES = (identity, targets, transitions, checkpoints, conditions, variables)
_RED, _YELLOW, _GREEN, _BOLD, _FAINT, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[1m", "\x1b[2m", "\x1b[0m"


def lint(library: Library, workflow: str | None = None) -> tuple[Finding, ...]:
    """All distinct findings, in the order of the files and lines. `workflow`: read only its files, not those of the others."""
    found = set(library.findings(workflow))
    for subject in list_subjects(library, workflow):
        for rule in RULES.values():
            found.update(rule.findings(subject))
    return tuple(sorted(found))


def count_findings(library: Library) -> Mapping[str, Counter[str]]:
    """How many errors and warnings each workflow has, by its id.

    Checking the bundled workflows takes 20 ms, so it is done again only after a change of a file.
    """
    findings = library.remember("lint", lambda: lint(library))
    counts = defaultdict[str, Counter[str]](Counter)
    for entry in library.list():
        path = str(library.path(entry.id))
        own = (each for each in findings if each.file == path or each.file.startswith(f"{path}/"))
        counts[entry.id] = Counter(each.severity for each in own)
    return counts


def lint_directory(path: str | os.PathLike[str], *, base: tuple[Root, ...] = ()) -> tuple[Finding, ...]:
    """The findings in a directory of workflows, or in that of a single workflow. They may use workflows of the roots `base`."""
    directory = Path(path)
    root = directory
    if _has_manifest(directory):
        directory = directory.resolve()
        root = directory.parent
    library = Library((*base, Root(root, "linted")))
    inside = os.path.join(directory, "")  # noqa: PTH118  # findings name their files as text
    # A finding about an invalid directory name contains the escaped name.
    itself = (os.fspath(directory), os.path.join(root, escape_name(directory.name)))  # noqa: PTH118  # findings name their files as text
    return tuple(finding for finding in lint(library) if finding.file.startswith(inside) or finding.file in itself)


_COMPONENT_FOLDERS = ("activities", "skills", "resources", "guides", "templates")


def list_unopened_files(path: str | os.PathLike[str]) -> list[str]:
    """The files below a directory, from there on, that are not where a definition is: nothing reads them."""
    root = Path(path)
    files = sorted(file for file in root.rglob("*") if file.is_file())
    return [name for file in files if not _is_definition(name := os.path.relpath(file, root), root)]


def _is_definition(name: str, root: Path) -> bool:
    steps = Path(name).parts
    if any(step.startswith(".") for step in steps):
        return True
    if _has_manifest(root):
        return _is_part(steps)
    if len(steps) == 1:
        return detect_format(name) in ("yaml", "toon", "json")
    return _has_manifest(root / steps[0]) and _is_part(steps[1:])


def _has_manifest(directory: Path) -> bool:
    return any((directory / name).is_file() for name in MANIFESTS)


def _is_part(steps: tuple[str, ...]) -> bool:
    """Whether a file is a part of the workflow in whose directory it is."""
    if len(steps) == 1:
        return steps[0] in (*MANIFESTS, *RULES_FILES)
    return len(steps) == 2 and steps[0] in _COMPONENT_FOLDERS and detect_format(steps[1]) is not None


def has_errors(findings: tuple[Finding, ...]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def format_findings(
    findings: Iterable[Finding],
    *,
    color: bool = False,
    root: str | os.PathLike[str] = "",
    examples: Mapping[str, str] | None = None,
    explained_by: str = "",
) -> str:
    """Render a paragraph per finding, in the form that editors turn into links, and a summary line.

    The first finding of each rule shows its example of the right form, and what explains the rule: the command `explained_by`
    with the rule at its end, else the reference.
    """
    found, lines, left = list(findings), list[str](), dict(examples or {})
    for finding in found:
        lines += _render_finding(finding, os.fspath(root), color=color)
        if (example := left.pop(finding.rule, None)) is not None:
            lines += [
                f"    {_paint(line, _FAINT, color=color)}" for line in _render_example(finding.rule, example, explained_by)
            ]
    return "\n".join([*lines, render_summary(found, color=color)])


MAX_EXAMPLE_LINES = 12


def _render_example(rule: str, example: str, explained_by: str) -> Iterator[str]:
    yield "For example:"
    rows = example.strip().splitlines()
    yield from (f"    {row}" for row in rows[:MAX_EXAMPLE_LINES])
    if len(rows) > MAX_EXAMPLE_LINES:
        yield "    ..."
    yield f"More: {f'`{explained_by} {rule}`' if explained_by else link_rule(rule)}"


def _load_known_examples() -> dict[str, Example]:
    from fidelio.definitions.lint.examples import load_reading_examples, load_rule_examples  # noqa: PLC0415  # reads YAML files, which only a report needs

    return {**load_reading_examples(), **load_rule_examples()}


def load_examples(rules: Iterable[str]) -> dict[str, str]:
    """The right form for each of these rules, as the reference shows it."""
    known = _load_known_examples()
    return {rule: known[rule].good for rule in dict.fromkeys(rules) if rule in known}


def list_rules() -> list[str]:
    """The ids of all rules, those of reading files first."""
    return [*(rule for rule in READING_RULES if rule not in RULES), *sorted(RULES)]


def explain_rule(rule: str) -> str:
    """What a rule finds, and an example of what it reports and of what it does not, for a terminal."""
    example = _load_known_examples()[rule]
    texts = {"Reported": example.bad, "Not reported": example.good}
    shown = (f"{title}:\n\n{textwrap.indent(text.strip(), '    ')}" for title, text in texts.items())
    return "\n\n".join([f"{rule}: {describe_severity(rule)}", describe_rule(rule), *shown])


def _render_finding(finding: Finding, root: str, *, color: bool) -> Iterator[str]:
    file = _make_relative(finding.file, root)
    position = f"{file}:{finding.line}:{finding.column}" if finding.line else file
    tone = _RED if finding.severity == "error" else _YELLOW
    kind = f"{_paint(finding.severity, tone, color=color)} {_paint(finding.rule, _BOLD, color=color)}"
    yield f"{position}: {kind} {finding.sentence}"
    if finding.remedy:
        yield f"    {_paint(finding.remedy, _FAINT, color=color)}"


def _make_relative(file: str, root: str) -> str:
    if not root or not file.startswith(os.path.join(root, "")):  # noqa: PTH118  # findings name their files as text
        return file
    return os.path.relpath(file, root)


def _paint(text: str, tone: str, *, color: bool) -> str:
    return f"{tone}{text}{_PLAIN}" if color else text


def render_summary(findings: Iterable[Finding], *, color: bool = False) -> str:
    """The summary line: the number of errors and warnings."""
    count = Counter(finding.severity for finding in findings)
    if not count:
        return _paint("No findings.", _GREEN, color=color)
    words = f"{describe_count(count['error'], 'error')}, {describe_count(count['warning'], 'warning')}."
    return _paint(words, _RED if count["error"] else _YELLOW, color=color)


def encode_findings(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """JSON of the findings. `explained_by` is a command; `link` is a page of its repository."""
    return [
        {**finding.as_json(), "link": link_rule(finding.rule), "explained_by": f"{PROGRAM} lint --explain {finding.rule}"}
        for finding in findings
    ]


__all__ = [
    "RULES",
    "RULE_MODULES",
    "Rule",
    "count_findings",
    "encode_findings",
    "encode_sarif",
    "explain_rule",
    "format_findings",
    "has_errors",
    "lint",
    "lint_directory",
    "list_rules",
    "list_unopened_files",
    "load_examples",
    "render_summary",
]

"""Static checks of the workflows of a library.

`lint` returns the findings of reading the files and of the rules, sorted by file and line. The rules are in modules by topic;
importing this package registers them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fidelio.definitions.findings import Finding
from fidelio.definitions.library import Library, Root
from fidelio.definitions.library.identifiers import escape_name
from fidelio.definitions.library.roots import MANIFESTS
from fidelio.definitions.lint import checkpoints, conditions, identity, targets, transitions, variables
from fidelio.definitions.lint.rules import RULES, Rule
from fidelio.definitions.lint.subject import list_subjects
from fidelio.definitions.wording import describe_count

RULE_MODULES = (identity, targets, transitions, checkpoints, conditions, variables)
_RED, _YELLOW, _GREEN, _BOLD, _FAINT, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[1m", "\x1b[2m", "\x1b[0m"


def lint(library: Library) -> tuple[Finding, ...]:
    """All distinct findings, in the order of the files and lines."""
    found = set(library.findings())
    for subject in list_subjects(library):
        for rule in RULES.values():
            found.update(rule.findings(subject))
    return tuple(sorted(found))


def lint_directory(path: str | os.PathLike[str], *, base: tuple[Root, ...] = ()) -> tuple[Finding, ...]:
    """The findings in a directory of workflows, or in that of a single workflow. They may use workflows of the roots `base`."""
    directory = Path(path)
    root = directory
    if any((directory / name).is_file() for name in MANIFESTS):
        directory = directory.resolve()
        root = directory.parent
    library = Library((*base, Root(root, "linted")))
    inside = os.path.join(directory, "")  # noqa: PTH118  # findings name their files as text
    # A finding about an invalid directory name contains the escaped name.
    itself = (os.fspath(directory), os.path.join(root, escape_name(directory.name)))  # noqa: PTH118  # findings name their files as text
    return tuple(finding for finding in lint(library) if finding.file.startswith(inside) or finding.file in itself)


def has_errors(findings: tuple[Finding, ...]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def format_findings(findings: Iterable[Finding], *, color: bool = False, root: str | os.PathLike[str] = "") -> str:
    """Render a paragraph per finding, in the form that editors turn into links, and a summary line."""
    found = list(findings)
    lines = [line for finding in found for line in _render_finding(finding, os.fspath(root), color=color)]
    return "\n".join([*lines, render_summary(found, color=color)])


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
    return [finding.as_json() for finding in findings]


__all__ = [
    "RULES",
    "RULE_MODULES",
    "Rule",
    "encode_findings",
    "format_findings",
    "has_errors",
    "lint",
    "lint_directory",
    "render_summary",
]

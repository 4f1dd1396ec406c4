"""Static checks of the workflows of a library.

`lint` returns the findings of reading the files and of the rules, sorted by file and line. The rules are in modules by topic;
importing this package registers them.
"""

from __future__ import annotations

import os
from pathlib import Path

from fidelio.definitions.findings import Finding
from fidelio.definitions.library import Library, Root
from fidelio.definitions.library.identifiers import escape_name
from fidelio.definitions.library.roots import MANIFESTS
from fidelio.definitions.lint import checkpoints, conditions, identity, targets, variables
from fidelio.definitions.lint import transitions as ways
from fidelio.definitions.lint.report import encode_findings, format_findings, render_summary
from fidelio.definitions.lint.rules import RULES, Rule
from fidelio.definitions.lint.subject import list_subjects

RULE_MODULES = (identity, targets, ways, checkpoints, conditions, variables)


def lint(library: Library) -> tuple[Finding, ...]:
    """Every finding once, in the order of the files and lines."""
    found = set(library.findings())
    for subject in list_subjects(library):
        for rule in RULES.values():
            found.update(rule.findings(subject))
    return tuple(sorted(found))


def lint_directory(path: str | os.PathLike[str], *, base: tuple[Root, ...] = ()) -> tuple[Finding, ...]:
    """The findings in a directory of workflows, or in that of a single one, which may use what the roots in `base` offer."""
    directory = Path(path)
    root = directory
    if any((directory / name).is_file() for name in MANIFESTS):
        directory = directory.resolve()
        root = directory.parent
    library = Library((*base, Root(root, "linted")))
    inside = os.path.join(directory, "")  # noqa: PTH118  findings name their files as text
    # A finding about an invalid directory name contains the escaped name.
    itself = (os.fspath(directory), os.path.join(root, escape_name(directory.name)))  # noqa: PTH118  as above
    return tuple(finding for finding in lint(library) if finding.file.startswith(inside) or finding.file in itself)


def has_errors(findings: tuple[Finding, ...]) -> bool:
    return any(finding.severity == "error" for finding in findings)


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

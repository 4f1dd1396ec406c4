"""Findings as SARIF 2.1.0, the format in which build services show them at their lines.

Only what a finding knows is written: no fingerprints, and no addresses of pages that may not exist.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from fidelio import __version__
from fidelio.definitions.findings import READING_RULES, READING_WARNINGS, Finding
from fidelio.definitions.lint.rules import RULES
from fidelio.errors import Command, Hint

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
PAGE = "docs/reference/lint-rules.md"


def link_rule(rule: str) -> str:
    """Where the reference explains a rule."""
    return f"{PAGE}#{rule}"


def describe_rule(rule: str) -> str:
    """What a rule finds, in whole sentences."""
    return RULES[rule].documentation if rule in RULES else READING_RULES.get(rule, rule)


def describe_severity(rule: str) -> str:
    """`error` or `warning`."""
    if rule in RULES:
        return RULES[rule].severity
    return "warning" if rule in READING_WARNINGS else "error"


def encode_sarif(
    findings: Iterable[Finding], *, root: str | os.PathLike[str], examples: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The findings as a SARIF log; files below `root` are named from there, as build services expect."""
    found, base = list(findings), os.fspath(root)
    rules = sorted({finding.rule for finding in found})
    driver = {
        "name": "fidelio",
        "semanticVersion": __version__,
        "rules": [_describe_rule(rule, (examples or {}).get(rule, "")) for rule in rules],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_encode_result(finding, rules.index(finding.rule), base) for finding in found],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _describe_rule(rule: str, example: str) -> dict[str, Any]:
    text = describe_rule(rule)
    # Rendered with the name of the program, because the file is read on other machines, where Fidelio may not be installed.
    explanation = Hint(Command("lint", "--explain", rule), " shows more.").render()
    shown = ["For example:", example.strip()] if example else []
    help_text = "\n\n".join([text, *shown, explanation])
    markdown = "\n\n".join([text, *shown[:1], *(f"```yaml\n{each}\n```" for each in shown[1:]), explanation])
    return {
        "id": rule,
        "shortDescription": {"text": text.partition(". ")[0].rstrip(".") + "."},
        "fullDescription": {"text": text},
        "help": {"text": help_text, "markdown": markdown},
        "defaultConfiguration": {"level": describe_severity(rule)},
    }


def _encode_result(finding: Finding, index: int, root: str) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": {"uri": _encode_path(finding.file, root)}}
    if finding.line:
        location["region"] = {"startLine": finding.line, "startColumn": max(1, finding.column)}
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": f"{finding.sentence} {finding.remedy}".rstrip()},
        "locations": [{"physicalLocation": location}],
    }


def _encode_path(file: str, root: str) -> str:
    """The path as a relative URI below `root`, else as it is."""
    path = PurePath(file)
    name = path.relative_to(root) if root and path.is_relative_to(root) else path
    return quote(name.as_posix()) if not name.is_absolute() else name.as_uri()

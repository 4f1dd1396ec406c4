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

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
PAGE = "docs/reference/lint-rules.md"


def link_rule(rule: str) -> str:
    """Where the reference explains a rule."""
    return f"{PAGE}#{rule}"


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
    known = RULES.get(rule)
    text = known.documentation if known is not None else READING_RULES.get(rule, rule)
    severity = known.severity if known is not None else "warning" if rule in READING_WARNINGS else "error"
    help_text = "\n".join([f"See {link_rule(rule)}.", *(["For example:", "", example] if example else [])])
    return {
        "id": rule,
        "shortDescription": {"text": text.partition(". ")[0].rstrip(".") + "."},
        "fullDescription": {"text": text},
        "help": {"text": help_text},
        "defaultConfiguration": {"level": severity},
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

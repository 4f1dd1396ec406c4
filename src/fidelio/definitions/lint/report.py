"""Render findings as text and encode them as JSON."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from fidelio.definitions.findings import Finding
from fidelio.definitions.wording import describe_count

_RED, _YELLOW, _GREEN, _BOLD, _FAINT, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[1m", "\x1b[2m", "\x1b[0m"


def format_findings(findings: Iterable[Finding], *, color: bool = False, root: str | os.PathLike[str] = "") -> str:
    """One paragraph per finding, in the form that editors turn into links, and a last line that sums up."""
    found = list(findings)
    lines = [line for finding in found for line in _paragraph(finding, os.fspath(root), color=color)]
    return "\n".join([*lines, render_summary(found, color=color)])


def _paragraph(finding: Finding, root: str, *, color: bool) -> Iterator[str]:
    file = _relative(finding.file, root)
    place = f"{file}:{finding.line}:{finding.column}" if finding.line else file
    tone = _RED if finding.severity == "error" else _YELLOW
    kind = f"{_paint(finding.severity, tone, color=color)} {_paint(finding.rule, _BOLD, color=color)}"
    yield f"{place}: {kind} {finding.sentence}"
    if finding.remedy:
        yield f"    {_paint(finding.remedy, _FAINT, color=color)}"


def _relative(file: str, root: str) -> str:
    if not root or not file.startswith(os.path.join(root, "")):  # noqa: PTH118  findings name their files as text
        return file
    return os.path.relpath(file, root)


def _paint(text: str, tone: str, *, color: bool) -> str:
    return f"{tone}{text}{_PLAIN}" if color else text


def render_summary(findings: Iterable[Finding], *, color: bool = False) -> str:
    """The last line: how many errors and warnings, or that there are none."""
    count = Counter(finding.severity for finding in findings)
    if not count:
        return _paint("No findings.", _GREEN, color=color)
    words = f"{describe_count(count['error'], 'error')}, {describe_count(count['warning'], 'warning')}."
    return _paint(words, _RED if count["error"] else _YELLOW, color=color)


def encode_findings(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    return [finding.as_json() for finding in findings]

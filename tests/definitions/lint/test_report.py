"""Findings on paper, and in files that others wrote."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fidelio.definitions.findings import Finding, error, warning
from fidelio.definitions.lint import encode_findings, format_findings, has_errors, lint_directory, render_summary
from tests.support import proves
from tests.support.shared import shared_workflow_roots

FOUND = (
    error("/lib/demo/a.yaml", "schema", "It is wrong.", "Write it anew.", at=(3, 5)),
    warning("/lib/demo/b.yaml", "file-name", "It is odd."),
)
TRUE_ERRORS = {
    "gates-generation": {
        "undeclared-variable": {"plan.tasks"},
        "unresolved-activity": {
            "assess-state",
            "determine-entry-point",
            "target-activity",
            "verify-outcomes",
            "present-summary",
        },
        "unresolved-skill": {"workflow-execution", "orchestrate-workflow", "structural-analysis", "portfolio-analysis"},
        "unresolved-workflow": {"prism"},
    },
    "navigation-generation": {
        "half-read": {"Text"},
        "undeclared-variable": {
            "has_external_state",
            "branch_behind_main",
            "has_conflicts",
            "ready_to_resume",
            "restart_workflow",
            "work_packages",
            "remaining_packages",
        },
        "unresolved-activity": {
            "assess-external-state",
            "determine-entry-point",
            "branch-sync-checkpoint",
            "conflict-resolution-checkpoint",
            "continue-assessment",
            "target-activity",
            "verify-external-state",
            "present-summary",
            "define-scope",
            "select-package",
        },
        "unresolved-workflow": {"work-package"},
    },
    "sessions-generation": {
        "undeclared-mode": {"is_review_mode"},
        "undeclared-variable": {"is_review_mode", "has_unflagged_removals"},
        "unresolved-checkpoint": {"domain-iteration"},
        "unresolved-skill": {"prism/structural-analysis", "portfolio-analysis", "workflow-execution", "artifact-management"},
        "unresolved-workflow": {"prism"},
    },
}


@proves("lint.report")
def test_a_report_for_people() -> None:
    assert format_findings(FOUND, root="/lib").splitlines() == [
        "demo/a.yaml:3:5: error schema It is wrong.",
        "    Write it anew.",
        "demo/b.yaml: warning file-name It is odd.",
        "1 error, 1 warning.",
    ]


@proves("lint.report")
def test_a_report_with_colours_says_the_same() -> None:
    coloured = format_findings(FOUND, color=True)

    assert "\x1b[31merror\x1b[0m" in coloured
    assert "\x1b" not in format_findings(FOUND)


@proves("lint.report")
def test_a_report_for_programs() -> None:
    assert encode_findings(FOUND)[0] == {
        "file": "/lib/demo/a.yaml",
        "line": 3,
        "column": 5,
        "rule": "schema",
        "severity": "error",
        "sentence": "It is wrong.",
        "remedy": "Write it anew.",
    }


@proves("lint.report")
def test_nothing_found_is_said_in_words_and_warnings_are_no_errors() -> None:
    assert (render_summary([]), format_findings([])) == ("No findings.", "No findings.")
    assert has_errors(FOUND)
    assert not has_errors(FOUND[1:])


def named(finding: Finding) -> str:
    quoted = finding.sentence.split("'")
    return quoted[-2] if len(quoted) > 2 else finding.sentence.split()[0]


@proves("lint.real-files")
@pytest.mark.parametrize("root", shared_workflow_roots(), ids=lambda root: root.name)
def test_the_errors_in_files_that_others_wrote_are_the_known_ones(root: Path) -> None:
    errors = [finding for finding in lint_directory(root) if finding.severity == "error"]
    seen: dict[str, set[str]] = {}
    for finding in errors:
        seen.setdefault(finding.rule, set()).add(named(finding))

    assert seen == TRUE_ERRORS[root.name]
    assert max(Counter(errors).values()) == 1


@proves("lint.real-files", "lint.place")
@pytest.mark.parametrize("root", shared_workflow_roots(), ids=lambda root: root.name)
def test_findings_in_files_that_others_wrote_point_at_the_name_they_speak_of(root: Path) -> None:
    for finding in lint_directory(root):
        if finding.rule.startswith(("unresolved", "undeclared-v", "undeclared-m", "undeclared-e", "unknown-key")):
            line = Path(finding.file).read_text("utf-8").splitlines()[finding.line - 1]
            assert named(finding) in line, str(finding)

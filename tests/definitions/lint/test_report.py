"""Findings on paper, and in files that others wrote."""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fidelio.definitions.findings import Finding, error, warning
from fidelio.definitions.lint import (
    encode_findings,
    encode_sarif,
    explain_rule,
    format_findings,
    has_errors,
    lint_directory,
    list_rules,
    list_unopened_files,
    load_examples,
    render_summary,
)
from tests.definitions.libraries import activity, manifest, save
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
        "link": "docs/reference/lint-rules.md#schema",
        "explained_by": "fidelio lint --explain schema",
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


@proves("lint.guidance")
def test_the_first_finding_of_a_rule_shows_the_right_form_and_where_it_is_explained(tmp_path: Path) -> None:
    misspelt = {"id": "plan", "version": "1.0.0", "name": "Plan", "descripton": "A.", "outcom": ["B"]}
    found = lint_directory(
        save(tmp_path, {"w/workflow.yaml": manifest("w"), "w/activities/01-plan.yaml": json.dumps(misspelt)})
    )
    report = format_findings(found, examples=load_examples(finding.rule for finding in found))

    assert [finding.remedy for finding in found] == ["Did you mean description?", "Did you mean outcome?"]
    assert report.count("For example:") == 1
    assert "        description: What is to be done." in report
    assert "    More: docs/reference/lint-rules.md#unknown-key" in report
    explained = format_findings(found, examples=load_examples(["unknown-key"]), explained_by="fidelio lint --explain")
    assert "    More: `fidelio lint --explain unknown-key`" in explained


@proves("lint.guidance")
@pytest.mark.parametrize("rule", list_rules())
def test_every_rule_explains_itself_with_both_examples(rule: str) -> None:
    text, example = explain_rule(rule), load_examples([rule])[rule]

    assert re.match(rf"{rule}: (error|warning)\n\n[A-Z`].*\.\n\nReported:\n", text, re.DOTALL)
    assert text.endswith(textwrap.indent(example.strip(), "    "))
    # Conditions are shown in the form in which people write them.
    assert "type: simple" not in example


@proves("lint.sarif")
def test_sarif_has_every_finding_at_its_line_and_each_rule_once() -> None:
    log = encode_sarif([*FOUND, FOUND[0]], root="/lib", examples={"schema": "id: demo"})
    (run,) = log["runs"]
    results, rules = run["results"], run["tool"]["driver"]["rules"]

    assert log["version"] == "2.1.0"
    assert [rule["id"] for rule in rules] == ["file-name", "schema"]
    assert [rules[result["ruleIndex"]]["id"] for result in results] == [result["ruleId"] for result in results]
    assert results[0] == {
        "ruleId": "schema",
        "ruleIndex": 1,
        "level": "error",
        "message": {"text": "It is wrong. Write it anew."},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": "demo/a.yaml"},
                    "region": {"startLine": 3, "startColumn": 5},
                }
            }
        ],
    }
    assert "region" not in results[1]["locations"][0]["physicalLocation"]
    assert "id: demo" in rules[1]["help"]["text"]
    assert "```yaml\nid: demo\n```" in rules[1]["help"]["markdown"]
    for rule in rules:
        assert rule["help"]["text"].startswith(rule["fullDescription"]["text"])
        assert f"`fidelio lint --explain {rule['id']}` shows more." in rule["help"]["markdown"]


@proves("lint.newer-generation")
@pytest.mark.parametrize(
    ("file", "data", "words"),
    [
        (
            "workflow.yaml",
            {"id": "w", "version": "1.0.0", "title": "W", "rules": {"a": "b"}, "initialActivity": "a", "tags": 3},
            "`rules` as a mapping",
        ),
        (
            "activities/01-plan.yaml",
            {"id": "plan", "techniques": ["x"], "steps": [{"kind": "checkpoint", "id": 3}, {"kind": "loop"}], "outcome": "o"},
            "`techniques` and steps with `kind`",
        ),
    ],
)
def test_a_file_of_a_newer_generation_is_one_finding_that_says_so(
    tmp_path: Path, file: str, data: dict[str, Any], words: str
) -> None:
    files = {"workflow.yaml": manifest("w"), "activities/02-a.yaml": activity("a"), file: json.dumps(data)}
    found = lint_directory(save(tmp_path, {f"w/{name}": text for name, text in files.items()}))

    assert [(Path(finding.file).name, finding.rule, finding.severity) for finding in found] == [
        (Path(file).name, "newer-generation", "error")
    ]
    assert words in found[0].sentence
    assert "convert it" in found[0].remedy


@proves("lint.newer-generation")
@pytest.mark.parametrize(("broken", "severity"), [({}, "warning"), ({"name": 3}, "error")])
def test_a_single_file_of_a_newer_generation_is_one_finding_too(tmp_path: Path, broken: dict[str, Any], severity: str) -> None:
    steps = [{"id": "ask", "name": "Ask", "kind": "checkpoint"}, {"id": "act", "name": "Act", "kind": "action"}]
    activities = [{"id": name, "version": "1.0.0", "name": name, "steps": steps, **broken} for name in ("a", "b")]
    whole = {"id": "w", "version": "1.0.0", "title": "W", "activities": activities}
    found = lint_directory(save(tmp_path, {"w.yaml": json.dumps(whole)}))

    assert [(finding.rule, finding.severity) for finding in found] == [("newer-generation", severity)]
    assert "steps with `kind`" in found[0].sentence


@proves("lint.broken-manifest")
def test_the_activities_of_a_broken_manifest_are_checked_too(tmp_path: Path) -> None:
    broken = {"w/workflow.yaml": manifest("w") + "tags: 3\n", "w/activities/01-a.yaml": activity("a") + "steps: 3\n"}
    found = lint_directory(save(tmp_path, broken))

    assert [Path(finding.file).name for finding in found] == ["01-a.yaml", "workflow.yaml"]


@proves("lint.unopened")
def test_files_that_nothing_reads_are_named(tmp_path: Path) -> None:
    files = {"w/notes.txt": "", "w/activities/01-a.yaml": activity("a"), "w/drafts/b.yaml": "", "README.md": "", ".git/x": ""}
    root = save(tmp_path, {"w/workflow.yaml": manifest("w"), "w/resources/01-p.md": "# P", **files})

    assert list_unopened_files(root) == ["README.md", "w/drafts/b.yaml", "w/notes.txt"]
    assert list_unopened_files(root / "w") == ["drafts/b.yaml", "notes.txt"]


@proves("lint.unopened")
def test_the_files_of_a_directory_without_a_manifest_are_named(tmp_path: Path) -> None:
    lost = {"nomani/activities/01-a.yaml": activity("a"), "mywf/flow.yaml": manifest("mywf")}
    used = {"w/workflow.yaml": manifest("w"), "w/rules.yaml": "", "one.yaml": manifest("one")}
    root = save(tmp_path, {**lost, **used, "w/flow.yaml": ""})

    assert list_unopened_files(root) == ["mywf/flow.yaml", "nomani/activities/01-a.yaml", "w/flow.yaml"]
    assert list_unopened_files(root / "w") == ["flow.yaml"]

"""Where findings point, in which order they come, and what they leave out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fidelio.definitions.findings import Finding
from fidelio.definitions.library import Library, Root
from fidelio.definitions.lint import lint, lint_directory
from tests.definitions.drawing.workflows import way
from tests.definitions.libraries import FORMATS, activity, manifest, save, written
from tests.support import proves

every_format = pytest.mark.parametrize("format_", FORMATS)
LOST = {"type": "simple", "variable": "lost_variable", "operator": "==", "value": True}
PLAN: dict[str, Any] = {
    "id": "plan",
    "version": "1.0.0",
    "name": "Plan",
    "unknown_key": "x",
    "steps": [
        {"id": "one", "name": "One", "skill": "lost_skill"},
        {"id": "two", "name": "Two", "condition": {"type": "not", "condition": LOST}},
    ],
    "checkpoints": [
        {
            "id": "ask",
            "name": "Ask",
            "message": "?",
            "options": [{"id": "a", "label": "A", "effect": {"transitionTo": "lost_option"}}],
        },
        {"id": "old", "name": "Old", "message": "?", "options": [{"id": "a", "label": "A", "transitionTo": "lost_beside"}]},
    ],
    "triggers": {"workflow": "lost_workflow"},
    "transitions": [{"to": "lost_target"}],
}
ONE = {"id": "one", "version": "1.0.0", "name": "One"}
MARKED = {
    "unknown_key": "unknown-key",
    "lost_skill": "unresolved-skill",
    "lost_variable": "undeclared-variable",
    "lost_option": "unresolved-activity",
    "lost_beside": "unresolved-activity",
    "lost_workflow": "unresolved-workflow",
    "lost_target": "unresolved-activity",
}


def line_of(finding: Finding) -> str:
    return Path(finding.file).read_text("utf-8").splitlines()[finding.line - 1]


@proves("lint.place")
@every_format
def test_a_finding_points_at_the_key_in_every_format(format_: str, tmp_path: Path) -> None:
    files = {"demo/workflow.yaml": manifest("demo"), f"demo/activities/01-plan.{format_}": written(PLAN, format_)}
    findings = lint_directory(save(tmp_path, files))
    seen = {(mark, finding.rule) for finding in findings for mark in MARKED if mark in line_of(finding)}

    assert seen == set(MARKED.items())
    assert len(findings) == len(MARKED)
    assert all(line_of(finding)[finding.column - 1 :].lstrip("- \"'{")[:1].isalpha() for finding in findings)


@proves("lint.place")
@every_format
def test_a_finding_in_an_activity_that_is_written_out_points_into_the_manifest(format_: str, tmp_path: Path) -> None:
    first = {"id": "first", "version": "1.0.0", "name": "First"}
    head = {"id": "demo", "version": "1.0.0", "title": "Demo", "activities": [first, PLAN]}
    findings = lint_directory(save(tmp_path, {f"demo/workflow.{format_}": written(head, format_)}))
    seen = {mark for finding in findings for mark in MARKED if mark in line_of(finding)}

    assert seen == set(MARKED)


@proves("lint.sorted")
def test_findings_come_in_the_order_of_files_and_lines(tmp_path: Path) -> None:
    files = {f"{name}/workflow.yaml": manifest(name) for name in ("b", "a")}
    files |= {
        f"{name}/activities/0{number}-plan{number}.yaml": written({**PLAN, "id": f"plan{number}"}, "yaml")
        for name in "ba"
        for number in (2, 1)
    }
    findings = lint_directory(save(tmp_path, files))

    assert list(findings) == sorted(set(findings))
    assert findings == lint_directory(tmp_path)


@proves("lint.reading", "lint.no-cascade")
def test_a_broken_file_hides_nothing_and_is_not_reported_again_by_what_depends_on_it(tmp_path: Path) -> None:
    files = {
        "demo/workflow.yaml": manifest("demo", initialActivity="plan"),
        "demo/activities/01-plan.yaml": activity(
            "plan", transitions=[way("build")], steps=[{"id": "s", "name": "S", "skill": "saw"}]
        ),
        "demo/activities/02-build.yaml": "id: build\nversion: 1.0.0\n",
        "demo/activities/03-test.yaml": activity("test", transitions=[way("lost")]),
        "demo/skills/01-saw.yaml": "id: [",
        "other/workflow.yaml": "id: other\n",
    }
    findings = lint_directory(save(tmp_path, files))

    assert [(Path(finding.file).name, finding.rule) for finding in findings] == [
        ("02-build.yaml", "schema"),
        ("03-test.yaml", "unresolved-activity"),
        ("01-saw.yaml", "unreadable"),
        ("workflow.yaml", "schema"),
        ("workflow.yaml", "schema"),
    ]


@proves("lint.references")
def test_a_directory_is_linted_with_what_other_roots_offer(tmp_path: Path) -> None:
    plan = activity("plan", triggers=[{"workflow": "child"}])
    own = save(tmp_path / "own", {"demo/workflow.yaml": manifest("demo"), "demo/activities/01-plan.yaml": plan})
    base = save(tmp_path / "base", {"child/workflow.yaml": manifest("child", unknown=1, activities=[ONE])})

    assert [finding.rule for finding in lint_directory(own)] == ["unresolved-workflow"]
    assert lint_directory(own, base=(Root(base, "base"),)) == ()
    assert [finding.rule for finding in lint(Library([Root(base, "base"), Root(own, "own")]))] == ["unknown-key"]


@proves("lint.references")
def test_the_directory_of_one_workflow_is_linted_among_its_neighbours(tmp_path: Path) -> None:
    plan = activity("plan", triggers=[{"workflow": "child"}], transitions=[way("lost")])
    files = {"demo/workflow.yaml": manifest("demo"), "demo/activities/01-plan.yaml": plan}
    save(tmp_path, files | {"child/workflow.yaml": manifest("child", unknown=1)})

    assert [finding.rule for finding in lint_directory(tmp_path / "demo")] == ["unresolved-activity"]


@proves("lint.names")
def test_a_workflow_is_called_like_its_directory(tmp_path: Path) -> None:
    [finding] = lint_directory(save(tmp_path, {"demo/workflow.yaml": manifest("other", activities=[ONE])}))

    assert (finding.rule, finding.line) == ("file-name", 1)
    assert "directory" in finding.sentence


@proves("lint.names")
def test_a_workflow_in_one_file_is_called_like_the_file(tmp_path: Path) -> None:
    files = {"demo.yaml": manifest("other", activities=[ONE]), "fine.yaml": manifest("fine", activities=[ONE])}
    findings = lint_directory(save(tmp_path, files))

    assert [finding.rule for finding in findings] == ["file-name"]


@proves("lint.unknown-keys")
def test_unknown_keys_are_found_in_manifests_and_skills_too(tmp_path: Path) -> None:
    skill = {"id": "saw", "version": "1.0.0", "capability": "Saws", "sharpness": 3, "flow": {}}
    head = manifest("demo", colour="red", activities=[ONE])
    files = {"demo/workflow.yaml": head, "demo/skills/01-saw.yaml": written(skill, "yaml")}
    findings = lint_directory(save(tmp_path, files))

    assert [line_of(finding).split(":")[0].strip('"') for finding in findings] == ["sharpness", "colour"]


@proves("lint.names", "lint.place")
@pytest.mark.parametrize("name", ["plan ", ".plan", "a/b", "a\\b"])
def test_an_id_that_nobody_can_ask_for_is_found_in_its_file(name: str, tmp_path: Path) -> None:
    files = {
        "demo/workflow.yaml": manifest("demo"),
        "demo/activities/01-plan.yaml": activity("plan").replace('"plan"', repr(name)),
    }
    findings = lint_directory(save(tmp_path, files | {"demo/activities/02-broken.yaml": "["}))

    assert [finding.rule for finding in findings] == ["bad-id", "file-name", "unreadable"]
    assert {Path(finding.file).name for finding in findings[:2]} == {"01-plan.yaml"}

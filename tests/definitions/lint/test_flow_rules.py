"""Where the rules about ways, targets and checkpoints speak, and where they must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fidelio.definitions.findings import Finding
from fidelio.definitions.lint import lint_directory
from tests.definitions.drawing.workflows import BOOLEAN, IS_READY, answer, otherwise, way
from tests.definitions.libraries import activity, manifest, save, skill, written
from tests.definitions.lint.example_libraries import filled
from tests.support import proves

NOT_READY = {**IS_READY, "value": False}


def found(tmp_path: Path, *activities: dict[str, Any], **head: Any) -> list[Finding]:
    first = activities[0]["id"] if activities else None
    data = {"initialActivity": first, "variables": [BOOLEAN], **head, "activities": list(activities)}
    text = written(filled(data, {"id": "demo", "version": "1.0.0", "title": "Demo"}), "yaml")
    return list(lint_directory(save(tmp_path, {"demo/workflow.yaml": text})))


def rules(findings: list[Finding]) -> list[str]:
    return [finding.rule for finding in findings]


@proves("lint.terminal-names")
@pytest.mark.parametrize("name", ["__terminal__", "workflow-end", "end-workflow"])
def test_a_name_that_means_the_end_is_a_target(name: str, tmp_path: Path) -> None:
    checkpoint = {"id": "c", "options": [answer("stop", name)]}

    assert found(tmp_path, {"id": "plan", "transitions": [otherwise(name)], "checkpoints": [checkpoint]}) == []


@proves("lint.references")
def test_another_name_that_sounds_like_the_end_is_none(tmp_path: Path) -> None:
    assert rules(found(tmp_path, {"id": "plan", "transitions": [way("the-end")]})) == ["unresolved-activity"]


@proves("lint.references")
def test_a_first_activity_that_does_not_exist_is_found(tmp_path: Path) -> None:
    assert rules(found(tmp_path, {"id": "plan"}, initialActivity="pan")) == ["unresolved-activity"]


@proves("lint.references")
def test_skipping_an_activity_that_does_not_exist_is_found(tmp_path: Path) -> None:
    option = {"id": "o", "effect": {"skipActivities": ["biuld"]}}
    mode = {"id": "m", "activationVariable": "is_ready", "skipActivities": ["biuld"]}
    findings = found(tmp_path, {"id": "plan", "checkpoints": [{"id": "c", "options": [option]}]}, modes=[mode])

    assert rules(findings) == ["unresolved-activity"] * 2


@proves("lint.references")
def test_a_target_that_is_a_step_is_explained(tmp_path: Path) -> None:
    [finding] = found(tmp_path, {"id": "plan", "steps": [{"id": "sketch"}], "transitions": [way("sketch")]})

    assert "step" in finding.remedy


@proves("lint.skill-order", "lint.references")
def test_a_skill_is_found_where_a_session_would_find_it(tmp_path: Path) -> None:
    steps = [{"id": name, "name": name, "skill": name} for name in ("own", "common", "other/theirs", "theirs")]
    files = {
        "demo/workflow.yaml": manifest("demo"),
        "demo/activities/01-plan.yaml": activity("plan", steps=steps),
        "demo/skills/01-own.yaml": skill("own"),
        "meta/workflow.yaml": manifest("meta"),
        "meta/skills/01-common.yaml": skill("common"),
        "other/workflow.yaml": manifest("other"),
        "other/activities/01-a.yaml": activity("a"),
        "other/skills/01-theirs.yaml": skill("theirs"),
    }
    [finding] = lint_directory(save(tmp_path, files))

    assert (finding.rule, "'theirs'" in finding.sentence) == ("unresolved-skill", True)


@proves("lint.borrowed", "lint.skill-order")
def test_a_borrowed_activity_is_checked_in_the_workflow_that_borrows_it(tmp_path: Path) -> None:
    plan = activity("plan", steps=[{"id": "s", "name": "S", "skill": "own"}], transitions=[way("build")], unknown=1)
    files = {
        "lender/workflow.yaml": manifest("lender"),
        "lender/activities/01-plan.yaml": plan,
        "lender/activities/02-build.yaml": activity("build"),
        "lender/skills/01-own.yaml": skill("own"),
        "demo/workflow.yaml": manifest("demo", activities=["lender/01-plan.yaml"]),
    }
    findings = lint_directory(save(tmp_path, files))

    assert sorted(rules(list(findings))) == ["unknown-key", "unresolved-activity"]
    assert next(f for f in findings if f.rule == "unresolved-activity").sentence.endswith("(in workflow demo).")


@proves("lint.reachability")
def test_an_activity_is_reached_by_answers_branches_and_loops_too(tmp_path: Path) -> None:
    branches = [{"id": "x", "transitionTo": "b"}, {"id": "y", "isDefault": True}]
    first = {
        "id": "plan",
        "checkpoints": [{"id": "q", "options": [answer("go", "a")]}],
        "decisions": [{"id": "d", "branches": branches}],
        "loops": [{"id": "l", "type": "while", "maxIterations": 2, "activities": ["c"]}],
    }

    assert found(tmp_path, first, {"id": "a"}, {"id": "b"}, {"id": "c"}) == []


@proves("lint.reachability")
def test_a_circle_that_nothing_leads_into_is_unreachable(tmp_path: Path) -> None:
    findings = found(
        tmp_path, {"id": "plan"}, {"id": "a", "transitions": [way("b")]}, {"id": "b", "transitions": [way("plan")]}
    )

    assert rules(findings) == ["unreachable-activity"] * 2


@proves("lint.reachability", "lint.way-out", "lint.transitions")
def test_independent_activities_are_entries_and_ends(tmp_path: Path) -> None:
    first = {"id": "a", "transitions": [way("b")]}
    second = {"id": "b", "transitions": [way("a", condition=IS_READY)]}

    assert found(tmp_path, first, second, {"id": "c"}, initialActivity=None) == []


@proves("lint.way-out")
def test_a_circle_without_a_way_out_is_found_once(tmp_path: Path) -> None:
    second, third = {"id": "b", "transitions": [way("c")]}, {"id": "c", "transitions": [otherwise("b")]}
    [finding] = found(tmp_path, {"id": "a", "transitions": [way("b")]}, second, third)

    assert (finding.rule, finding.sentence) == ("no-way-out", "b and c lead only to each other, so a session never ends.")


@proves("lint.way-out")
def test_an_activity_that_leads_only_to_itself_is_found(tmp_path: Path) -> None:
    [finding] = found(tmp_path, {"id": "a", "transitions": [otherwise("a")]})

    assert finding.sentence == "a leads only back to itself, so a session never ends."


@proves("lint.way-out")
@pytest.mark.parametrize(
    "way_out",
    [
        {"transitions": [way("b", condition=IS_READY)]},
        {"transitions": [otherwise("b")], "checkpoints": [{"id": "q", "options": [answer("stop", "__terminal__")]}]},
        {"transitions": [way("__terminal__", condition=IS_READY), otherwise("b")]},
        {"transitions": [way("missing", condition=IS_READY), otherwise("b")]},
    ],
    ids=["no condition holds", "an answer", "a transition", "a missing target"],
)
def test_a_circle_that_can_be_left_is_no_trap(way_out: dict[str, Any], tmp_path: Path) -> None:
    findings = found(tmp_path, {"id": "a", **way_out}, {"id": "b", "transitions": [way("a")]})

    assert "no-way-out" not in rules(findings)


@proves("lint.way-out")
def test_conditions_that_cover_every_case_close_the_circle(tmp_path: Path) -> None:
    transitions = [way("b", condition=IS_READY), way("a", condition=NOT_READY)]

    assert rules(found(tmp_path, {"id": "a", "transitions": transitions}, {"id": "b", "transitions": [way("a")]})) == [
        "no-way-out"
    ]


@proves("lint.transitions")
def test_a_condition_that_an_earlier_one_covers_hides_nothing_else(tmp_path: Path) -> None:
    same = [way("b", condition=IS_READY), way("c", condition=IS_READY), otherwise("c")]
    other = [way("b", condition=IS_READY), way("c", condition={**IS_READY, "variable": "tested"}), otherwise("c")]
    tested = {"name": "tested", "type": "boolean"}

    assert rules(found(tmp_path / "1", {"id": "a", "transitions": same}, {"id": "b"}, {"id": "c"})) == ["hidden-transition"]
    ways = {"id": "a", "transitions": other}
    assert found(tmp_path / "2", ways, {"id": "b"}, {"id": "c"}, variables=[BOOLEAN, tested]) == []


@proves("lint.transitions")
def test_conditions_that_cover_every_case_need_no_default(tmp_path: Path) -> None:
    transitions = [way("b", condition=IS_READY), way("c", condition=NOT_READY)]

    assert found(tmp_path, {"id": "a", "transitions": transitions}, {"id": "b"}, {"id": "c"}) == []


@proves("lint.transitions")
def test_a_decision_has_one_default_too(tmp_path: Path) -> None:
    branches = [{"id": "x", "isDefault": True}, {"id": "y", "isDefault": True}]

    assert rules(found(tmp_path, {"id": "a", "decisions": [{"id": "d", "branches": branches}]})) == ["two-defaults"]


@proves("lint.unreached-checkpoint")
def test_checkpoints_that_no_step_names_are_left_alone_where_no_step_names_any(tmp_path: Path) -> None:
    checkpoints = [{"id": "one", "options": [{"id": "go"}]}, {"id": "two", "options": [{"id": "go"}]}]
    in_loop = {"id": "l", "type": "while", "maxIterations": 2, "steps": [{"id": "s", "checkpoint": "one"}]}

    assert found(tmp_path / "1", {"id": "a", "steps": [{"id": "s"}], "checkpoints": checkpoints}) == []
    assert rules(found(tmp_path / "2", {"id": "a", "loops": [in_loop], "checkpoints": checkpoints})) == ["unreached-checkpoint"]


@proves("lint.timers")
def test_a_timer_needs_an_option_to_choose(tmp_path: Path) -> None:
    checkpoint = {"id": "c", "blocking": False, "autoAdvanceMs": 10, "options": [{"id": "go"}]}

    assert rules(found(tmp_path, {"id": "a", "checkpoints": [checkpoint]})) == ["idle-timer"]


@proves("lint.loops")
@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ({"type": "forEach"}, ["unbounded-loop"]),
        ({"type": "doWhile"}, ["unbounded-loop"]),
        ({"type": "while", "condition": IS_READY}, []),
        ({"type": "while", "breakCondition": IS_READY}, []),
        ({"type": "forEach", "over": "items"}, []),
    ],
)
def test_a_loop_has_to_say_when_it_ends(loop: dict[str, Any], expected: list[str], tmp_path: Path) -> None:
    items = {"name": "items", "type": "array"}

    assert rules(found(tmp_path, {"id": "a", "loops": [{"id": "l", **loop}]}, variables=[BOOLEAN, items])) == expected


@proves("lint.duplicates")
@pytest.mark.parametrize(
    "twice",
    [
        {"steps": [{"id": "x"}, {"id": "x"}]},
        {"checkpoints": [{"id": "x", "options": [{"id": "o"}]}] * 2},
        {"checkpoints": [{"id": "c", "options": [{"id": "x"}, {"id": "x"}]}]},
        {"decisions": [{"id": "d", "branches": [{"id": "x"}, {"id": "x"}]}]},
        {"loops": [{"id": "x", "type": "while", "maxIterations": 2}] * 2},
        {"loops": [{"id": "l", "type": "while", "maxIterations": 2, "steps": [{"id": "x"}, {"id": "x"}]}]},
        {"artifacts": [{"id": "x", "name": "a.md"}, {"id": "x", "name": "b.md"}]},
    ],
)
def test_an_id_that_is_used_twice_is_found(twice: dict[str, Any], tmp_path: Path) -> None:
    [finding] = found(tmp_path, {"id": "a", **twice})

    assert finding.rule == "duplicate-id"


@proves("lint.duplicates")
def test_activities_variables_and_modes_are_there_once(tmp_path: Path) -> None:
    mode = {"id": "m", "activationVariable": "is_ready"}
    findings = found(tmp_path, {"id": "a"}, {"id": "a"}, variables=[BOOLEAN, BOOLEAN], modes=[mode, mode])

    assert rules(findings) == ["duplicate-id"] * 3


@proves("lint.duplicates")
def test_the_same_step_in_a_loop_and_outside_is_warned_about_once_for_each_loop(tmp_path: Path) -> None:
    loops = [{"id": name, "type": "while", "maxIterations": 2, "steps": [{"id": "x"}]} for name in "lm"]
    findings = found(tmp_path, {"id": "a", "steps": [{"id": "x"}], "loops": loops})

    assert [(finding.rule, finding.severity) for finding in findings] == [("repeated-step", "warning")] * 2
    assert rules(found(tmp_path, {"id": "a", "loops": loops})) == ["repeated-step"]


@proves("lint.duplicates")
def test_a_step_that_stands_twice_in_one_loop_is_one_error(tmp_path: Path) -> None:
    loop = {"id": "l", "type": "while", "maxIterations": 2, "steps": [{"id": "x"}, {"id": "x"}]}

    assert rules(found(tmp_path, {"id": "a", "loops": [loop]})) == ["duplicate-id"]


@proves("lint.no-activities")
def test_only_the_common_parts_may_be_without_activities(tmp_path: Path) -> None:
    files = {f"{name}/workflow.yaml": manifest(name) for name in ("demo", "meta")}
    [finding] = lint_directory(save(tmp_path, files))

    assert (finding.rule, finding.severity, Path(finding.file).parent.name) == ("no-activities", "error", "demo")


@proves("lint.no-activities", "lint.no-cascade")
def test_a_workflow_whose_only_activity_is_broken_has_one(tmp_path: Path) -> None:
    files = {"demo/workflow.yaml": manifest("demo"), "demo/activities/01-a.yaml": "id: ["}

    assert rules(list(lint_directory(save(tmp_path, files)))) == ["unreadable"]

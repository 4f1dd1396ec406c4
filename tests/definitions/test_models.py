"""The models: one family for all generations of files, with nothing thrown away."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from fidelio.definitions.conditions import list_variables
from fidelio.definitions.models import (
    Activity,
    Checkpoint,
    Condition,
    list_unknown_keys,
)
from fidelio.definitions.models.components import Rules, Skill
from fidelio.definitions.models.workflow import WorkflowFile
from fidelio.definitions.parsing import validate
from fidelio.definitions.reading import read_text
from fidelio.errors import UnreadableDefinition
from tests.definitions.libraries import FORMATS, written
from tests.support import proves

_simple = st.fixed_dictionaries(
    {
        "type": st.just("simple"),
        "variable": st.from_regex(r"[a-z]+(\.[a-z]+)?", fullmatch=True),
        "operator": st.sampled_from(["==", "!=", ">", "<", ">=", "<=", "exists", "notExists"]),
        "value": st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    }
)
conditions = st.recursive(
    _simple,
    lambda inner: (
        st.fixed_dictionaries({"type": st.just("not"), "condition": inner})
        | st.fixed_dictionaries({"type": st.sampled_from(["and", "or"]), "conditions": st.lists(inner, min_size=2, max_size=3)})
    ),
    max_leaves=8,
)
_CONDITION: TypeAdapter[Any] = TypeAdapter(Condition)

ACTIVITY: dict[str, Any] = {
    "id": "review",
    "version": "1.2.3",
    "name": "Review",
    "estimatedTime": "10-20m",
    "required": False,
    "skills": {"primary": "reading", "supporting": ["asking"]},
    "steps": [
        {"id": "read", "name": "Read", "skill": "reading", "skill_args": {"depth": 2, "fast": True}},
        {
            "id": "ask",
            "name": "Ask",
            "checkpoint": "agree",
            "condition": {"type": "not", "condition": {"type": "simple", "variable": "done", "operator": "exists"}},
            "triggers": [{"workflow": "helper", "passContext": ["done"]}],
            "actions": [{"action": "set", "target": "done", "value": True}],
        },
    ],
    "checkpoints": [
        {
            "id": "agree",
            "name": "Agree",
            "message": "Do you agree?",
            "options": [{"id": "yes", "label": "Yes", "effect": {"setVariable": {"done": True}, "transitionTo": "end"}}],
            "defaultOption": "yes",
            "autoAdvanceMs": 30000,
        }
    ],
    "decisions": [
        {"id": "fork", "name": "Fork", "branches": [{"id": "a", "label": "A"}, {"id": "b", "label": "B", "isDefault": True}]}
    ],
    "loops": [
        {
            "id": "each",
            "name": "Each",
            "type": "forEach",
            "over": "items",
            "variable": "item",
            "steps": [{"id": "s", "name": "S"}],
        }
    ],
    "transitions": [
        {"to": "end", "condition": {"type": "simple", "variable": "n", "operator": ">", "value": 3}},
        {"to": "next", "isDefault": True},
    ],
    "entryActions": [{"action": "log", "message": "in"}, {"action": "message", "message": "hello"}],
    "artifacts": [{"id": "report", "name": "{slug}.md", "location": "planning"}],
}


def loaded(data: dict[str, Any], format_: str = "yaml") -> Activity:
    return validate(Activity, read_text(written(data, format_), f"x.{format_}"))


@proves("models.formats-equal")
def test_the_same_activity_in_three_formats_is_the_same_model() -> None:
    toon, yaml, json = (loaded(ACTIVITY, format_) for format_ in FORMATS)

    assert toon == yaml == json
    assert toon.checkpoints[0].options[0].effect is not None
    assert toon.loops[0].max_iterations == 100


@proves("models.generations")
def test_a_checkpoint_waits_and_is_required_unless_it_says_otherwise() -> None:
    checkpoint = loaded(ACTIVITY).checkpoints[0]
    relaxed = Checkpoint.model_validate(
        ACTIVITY["checkpoints"][0] | {"blocking": False, "required": False, "answered_by": "person"}
    )

    assert (checkpoint.blocking, checkpoint.required, checkpoint.answered_by) == (True, True, None)
    assert (relaxed.blocking, relaxed.required, relaxed.answered_by) == (False, False, "person")


@proves("models.generations")
def test_what_older_activities_write_differently_is_understood() -> None:
    old = loaded(
        {
            "id": "old",
            "version": "1.0.0",
            "name": "Old",
            "triggers": {"workflow": "helper"},
            "notes": ["Mind the gap."],
            "checkpoints": [
                {
                    "id": "c",
                    "name": "C",
                    "message": "?",
                    "prerequisite": "The plan is written.",
                    "options": [
                        {"id": "go", "label": "Go", "transitionTo": "next"},
                        {"id": "stay", "label": "Stay", "effect": {}},
                    ],
                }
            ],
        }
    )

    assert [trigger.workflow for trigger in old.triggers] == ["helper"]
    assert old.notes == ("Mind the gap.",)
    assert old.checkpoints[0].prerequisite == "The plan is written."
    effect = old.checkpoints[0].options[0].effect
    assert effect is not None
    assert effect.transition_to == "next"


@proves("models.generations")
@pytest.mark.parametrize(
    ("skills", "primary", "supporting"),
    [({"primary": "meta/lead"}, "meta/lead", ()), (["a", "b"], None, ("a", "b")), ({}, None, ())],
)
def test_the_skills_of_a_workflow_are_one_or_a_list(skills: object, primary: str | None, supporting: tuple[str, ...]) -> None:
    head = {"id": "w", "version": "1.0.0", "title": "W", "skills": skills}

    file = WorkflowFile.model_validate(head)

    assert (file.skills.primary, file.skills.supporting) == (primary, supporting)


@proves("models.generations")
def test_a_manifest_of_any_generation_loads() -> None:
    file = WorkflowFile.model_validate(
        {
            "$schema": "x.json",
            "id": "w",
            "version": "1.0.0",
            "title": "W",
            "executionModel": {"roles": [{"id": "agent", "description": "Does it."}]},
            "artifactLocations": {"planning": "{folder}", "out": {"path": "out", "gitignored": True}},
            "modes": [
                {"id": "m", "name": "M", "activationVariable": "quick", "skipActivities": ["a"], "defaults": {"x": None}}
            ],
            "variables": [{"name": "quick", "type": "boolean", "defaultValue": False}],
            "activities": ["01-a.toon", "other/02-b.toon", ACTIVITY],
            "answered_by": "person",
            "fidelity": "enforce",
        }
    )

    assert file.artifact_locations["planning"].path == "{folder}"
    assert file.artifact_locations["out"].gitignored
    assert file.execution_model is not None
    assert isinstance(file.activities[2], Activity)
    assert list(list_unknown_keys(file)) == []


@proves("models.unknown-keys")
def test_a_key_that_no_model_knows_is_kept_and_listed() -> None:
    odd = ACTIVITY | {"modeOverrides": {"quick": 1}, "steps": [{"id": "s", "name": "S", "colour": "red"}]}

    activity = loaded(odd)

    assert list(list_unknown_keys(activity)) == [("modeOverrides",), ("steps", 0, "colour")]
    assert activity.model_dump(exclude_unset=True)["steps"][0]["colour"] == "red"


@proves("models.unknown-keys")
def test_keys_that_older_skills_and_rules_carry_are_not_unknown() -> None:
    skill = Skill.model_validate(
        {"id": "s", "version": "1.0.0", "capability": "C", "execution_pattern": {}, "critical_rule": "!"}
    )
    rules = Rules.model_validate({"id": "r", "sections": [{"id": "s", "title": "S", "guidance": ["x"]}]})

    assert list(list_unknown_keys(skill)) == [("critical_rule",)]
    assert list(list_unknown_keys(rules)) == []


@proves("models.unknown-keys")
def test_a_definition_cannot_be_changed_after_loading() -> None:
    with pytest.raises(ValueError, match="frozen"):
        loaded(ACTIVITY).name = "Other"  # type: ignore[misc]  # what the type forbids is what is tried


@proves("models.conditions")
@given(condition=conditions)
@settings(max_examples=60, deadline=None)
def test_a_condition_survives_its_model(condition: dict[str, Any]) -> None:
    model = _CONDITION.validate_python(condition)

    assert (
        _CONDITION.dump_python(model, exclude_unset=True, mode="json" if "inf" not in repr(condition) else "python") is not None
    )
    assert _CONDITION.validate_python(model.model_dump()) == model
    assert all(isinstance(name, str) for name in list_variables(model))


@proves("models.conditions")
def test_the_variables_of_a_condition_are_found_in_order() -> None:
    one = {"type": "simple", "variable": "one", "operator": "exists"}
    two = {"type": "simple", "variable": "two", "operator": "==", "value": 1}
    model = _CONDITION.validate_python({"type": "and", "conditions": [one, {"type": "not", "condition": two}, one]})

    assert list(list_variables(model)) == ["one", "two", "one"]


@proves("models.faults")
def test_every_fault_is_reported_at_its_line_with_a_remedy() -> None:
    text = (
        "id: review\nversion: 1.0\nname: Review\nrequired: yes\nsteps:\n  - id: a\n  - id: b\n    name: B\n    condition:\n"
        "      type: maybe\ncheckpoints:\n  - id: c\n    name: C\n    message: ok\n    options: []\n    autoAdvanceMs: 0\n"
        "    answered_by: model\nestimatedTime: soon\ntransitions:\n  - to: [x]\nloops: none\n"
    )

    with pytest.raises(UnreadableDefinition) as caught:
        validate(Activity, read_text(text, "x.yaml"))

    found = {(finding.line, finding.column): finding.sentence for finding in caught.value.findings}
    assert list(found) == [(2, 1), (4, 1), (6, 5), (9, 5), (15, 5), (16, 5), (17, 5), (18, 1), (20, 5), (21, 1)]
    assert found[2, 1] == "`version` has to be text, but is a number."
    assert found[6, 5] == "`steps.1.name` is missing."
    assert found[9, 5] == "`steps.2.condition` has the unknown type 'maybe'."
    assert all(finding.remedy for finding in caught.value.findings)


@proves("models.misspelt-keys")
def test_a_missing_key_that_is_only_misspelt_is_named_where_it_stands() -> None:
    text = "id: a\nversion: 1.0.0\nnmae: A\nsteps:\n  - id: b\n    description: c\n  - id: d\n    Name: D\n"

    with pytest.raises(UnreadableDefinition) as caught:
        validate(Activity, read_text(text, "x.yaml"))

    assert [(finding.line, finding.sentence, finding.remedy) for finding in caught.value.findings] == [
        (3, "`name` is missing, but there is `nmae`.", "Did you mean name? Rename the key."),
        (5, "`steps.1.name` is missing.", "Add `name:`."),
        (8, "`steps.2.name` is missing, but there is `Name`.", "Did you mean name? Rename the key."),
    ]


@proves("models.faults")
def test_a_bare_toon_item_with_a_colon_is_explained() -> None:
    text = "id: a\nversion: 1.0.0\nname: A\nrules[2]:\n  - Match on: x\n  - fine\n"

    with pytest.raises(UnreadableDefinition) as caught:
        validate(Activity, read_text(text, "x.toon"))

    assert [(finding.line, finding.rule) for finding in caught.value.findings] == [(5, "schema")]
    assert "quotes" in caught.value.findings[0].remedy


@proves("models.faults")
def test_one_fault_in_a_value_of_several_shapes_is_one_finding() -> None:
    text = written({"id": "s", "version": "1.0.0", "capability": "C", "rules": {"a": "x", "b": ["x", {"y": 1}]}}, "yaml")

    with pytest.raises(UnreadableDefinition) as caught:
        validate(Skill, read_text(text, "x.yaml"))

    assert [finding.sentence for finding in caught.value.findings] == ["`rules.b.2` has to be text, but is a mapping."]


@proves("models.faults")
@pytest.mark.parametrize(
    ("text", "name"), [("", "x.yaml"), ("[1]", "x.json"), ("", "x.toon"), ("word", "x.yaml"), ("{}", "x.json")]
)
def test_a_file_that_holds_no_mapping_is_refused(text: str, name: str) -> None:
    with pytest.raises(UnreadableDefinition, match=r"empty|holds"):
        validate(Activity, read_text(text, name))

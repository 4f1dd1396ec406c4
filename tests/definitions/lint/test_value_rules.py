"""Variables, types and conditions, and what can be decided about a condition beforehand."""

from __future__ import annotations

from itertools import product
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from fidelio.definitions.conditions import holds
from fidelio.definitions.models import And, Condition, Not, Or, Simple
from fidelio.definitions.static_conditions import VariableDomain, find_constant_truth
from tests.definitions.drawing.workflows import BOOLEAN, IS_READY
from tests.definitions.lint.test_flow_rules import found, rules
from tests.support import proves

_CONDITIONS: TypeAdapter[Condition] = TypeAdapter(Condition)
KNOWN = {
    "flag": VariableDomain("boolean"),
    "size": VariableDomain("string"),
    "count": VariableDomain("number"),
    "set": VariableDomain("boolean", always_set=True),
}


def simple(variable: str, operator: str, value: Any = None) -> dict[str, Any]:
    return {"type": "simple", "variable": variable, "operator": operator, "value": value}


def both(*conditions: dict[str, Any]) -> dict[str, Any]:
    return {"type": "and", "conditions": list(conditions)}


def either(*conditions: dict[str, Any]) -> dict[str, Any]:
    return {"type": "or", "conditions": list(conditions)}


@proves("lint.settled")
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (either(simple("flag", "==", True), simple("flag", "==", False)), "always"),
        (both(simple("flag", "==", True), simple("flag", "!=", True)), "never"),
        (both(simple("size", "==", "s"), simple("size", "==", "l")), "never"),
        (either(simple("size", "!=", "s"), simple("size", "!=", "l")), "always"),
        (both(simple("count", ">", 3), simple("count", "<=", 3)), "never"),
        (both(simple("count", ">", 3), simple("count", "<", 4)), None),
        (either(simple("count", ">=", 3), simple("count", "<", 5)), "always"),
        (either(simple("flag", "exists"), simple("flag", "notExists")), "always"),
        (simple("set", "exists"), "always"),
        (simple("set", "notExists"), "never"),
        (simple("flag", "exists"), None),
        (either(simple("other", "==", True), simple("other", "==", False)), None),
        (either(simple("size", "==", "s"), simple("size", "==", "l")), None),
        (both(simple("size", ">", 3), simple("size", "<", 3)), None),
        (simple("count", ">", 10**400), None),
        (either(simple("count", ">", 10**400), simple("count", "<=", 10**400)), "always"),
        (both(simple("count", ">", 10**400), simple("count", "<", 10**400 + 1)), None),
        (both(simple("count", ">", 10**400), simple("count", "<", 1.5)), "never"),
        (simple("count", "<", 1e300), None),
        (both(simple("count", ">", inf), simple("count", "<", 1)), None),
        ({"type": "not", "condition": either(simple("flag", "==", True), simple("flag", "==", False))}, "never"),
        (either(simple("flag", "==", True), simple("flag", "==", False), simple("flag", "==", None)), "always"),
        (simple("count", "==", True), None),
    ],
)
def test_what_is_certain_about_a_condition_is_said(condition: dict[str, Any], expected: str | None) -> None:
    assert find_constant_truth(_CONDITIONS.validate_python(condition), KNOWN) == expected


_NAMES = ["flag", "second"]
_SIMPLE = st.builds(
    lambda name, operator, value: Simple(type="simple", variable=name, operator=operator, value=value),
    st.sampled_from(_NAMES),
    st.sampled_from(["==", "!="]),
    st.booleans(),
)
_ANY = st.recursive(
    _SIMPLE,
    lambda inner: (
        st.builds(lambda part: Not(type="not", condition=part), inner)
        | st.builds(lambda parts: And(type="and", conditions=tuple(parts)), st.lists(inner, min_size=2, max_size=3))
        | st.builds(lambda parts: Or(type="or", conditions=tuple(parts)), st.lists(inner, min_size=2, max_size=3))
    ),
    max_leaves=8,
)


def truth(condition: Condition, case: dict[str, bool]) -> bool:
    match condition:
        case Simple():
            return (case[condition.variable] is condition.value) is (condition.operator == "==")
        case Not():
            return not truth(condition.condition, case)
        case And():
            return all(truth(part, case) for part in condition.conditions)
        case Or():
            return any(truth(part, case) for part in condition.conditions)


@proves("lint.settled")
@settings(max_examples=200, deadline=None)
@given(_ANY)
def test_the_verdict_agrees_with_trying_every_case(condition: Condition) -> None:
    outcomes = {truth(condition, dict(zip(_NAMES, values, strict=True))) for values in product([True, False], repeat=2)}
    expected = {frozenset({True}): "always", frozenset({False}): "never"}.get(frozenset(outcomes))

    assert find_constant_truth(condition, dict.fromkeys(_NAMES, VariableDomain("boolean"))) == expected


@proves("lint.settled")
def test_too_many_cases_are_left_alone() -> None:
    many = either(*(simple(f"v{number}", "==", "x") for number in range(40)))

    assert find_constant_truth(_CONDITIONS.validate_python(many), {}) is None


@proves("lint.settled")
def test_a_part_that_can_never_hold_is_found_within_a_condition(tmp_path: Path) -> None:
    never = both(IS_READY, {**IS_READY, "value": False})
    step = {"id": "s", "condition": either(never, {**IS_READY, "variable": "tested"})}
    [finding] = found(tmp_path, {"id": "a", "steps": [step]}, variables=[BOOLEAN, {"name": "tested", "type": "boolean"}])

    assert (finding.rule, finding.sentence) == (
        "always-false",
        "The condition of step s can never hold: is_ready and is_ready == false.",
    )


@proves("lint.settled")
def test_a_default_makes_asking_for_existence_pointless_unless_an_answer_takes_it_away(tmp_path: Path) -> None:
    variable = {**BOOLEAN, "defaultValue": False}
    asking = {"id": "a", "steps": [{"id": "s", "condition": simple("is_ready", "exists")}]}
    option = {"id": "o", "effect": {"setVariable": {"is_ready": None}}}

    assert rules(found(tmp_path / "1", asking, variables=[variable])) == ["always-true"]
    taking = {**asking, "checkpoints": [{"id": "c", "options": [option]}]}
    assert found(tmp_path / "2", taking, variables=[variable]) == []


@proves("lint.types")
@pytest.mark.parametrize(
    ("kind", "operator", "value", "reported"),
    [
        ("boolean", "==", "true", True),
        ("boolean", ">", 1, True),
        ("string", "==", 1, True),
        ("string", ">", 1, False),
        ("number", "!=", "1", True),
        ("number", ">", "1", False),
        ("number", ">", True, True),
        ("array", "==", "x", True),
        ("object", "!=", None, False),
        ("array", "exists", None, False),
    ],
)
def test_a_comparison_with_a_value_of_another_type_is_found(
    kind: str, operator: str, value: object, reported: bool, tmp_path: Path
) -> None:
    step = {"id": "s", "condition": simple("v", operator, value)}
    findings = found(tmp_path, {"id": "a", "steps": [step]}, variables=[{"name": "v", "type": kind}])

    assert rules(findings) == (["compared-types"] if reported else [])


@proves("lint.types")
@pytest.mark.parametrize(
    ("value", "kind", "fits"),
    [
        (True, "boolean", True),
        (1, "boolean", False),
        (True, "number", False),
        (2.5, "number", True),
        ([1], "array", True),
        ("x", "array", False),
        ({"a": 1}, "object", True),
        ("{chosen}", "number", True),
        (None, "string", True),
    ],
)
def test_a_value_has_to_fit_wherever_it_is_set(value: object, kind: str, fits: bool, tmp_path: Path) -> None:
    option = {"id": "o", "effect": {"setVariable": {"v": value}}}
    action = {"action": "set", "target": "v", "value": value}
    mode = {"id": "m", "activationVariable": "on", "defaults": {"v": value}}
    part = {"id": "a", "checkpoints": [{"id": "c", "options": [option]}], "exitActions": [action]}
    variables = [{"name": "v", "type": kind}, {"name": "on", "type": "boolean"}]

    assert rules(found(tmp_path, part, variables=variables, modes=[mode])) == ([] if fits else ["wrong-type"] * 3)


@proves("lint.types")
def test_a_default_has_to_fit(tmp_path: Path) -> None:
    assert rules(found(tmp_path, {"id": "a"}, variables=[{**BOOLEAN, "defaultValue": "no"}])) == ["wrong-type"]


@proves("lint.undeclared")
def test_the_item_of_a_loop_and_what_is_inside_an_object_are_declared(tmp_path: Path) -> None:
    loop = {
        "id": "l",
        "type": "forEach",
        "variable": "task",
        "over": "plan.tasks",
        "steps": [{"id": "s", "condition": simple("task.done", "==", True)}],
    }
    checkpoint = {"id": "c", "message": "Is {task.name} of {plan} done?", "options": [{"id": "o"}]}
    part = {"id": "a", "loops": [loop], "checkpoints": [checkpoint], "entryActions": [{"action": "set", "target": "task"}]}

    assert found(tmp_path, part, variables=[{"name": "plan", "type": "object"}]) == []


@proves("lint.undeclared")
def test_a_name_with_a_dot_may_be_declared_as_it_is(tmp_path: Path) -> None:
    step = {"id": "s", "condition": simple("plan.size", "==", "large")}

    assert found(tmp_path, {"id": "a", "steps": [step]}, variables=[{"name": "plan.size", "type": "string"}]) == []


@proves("lint.undeclared")
def test_an_undeclared_variable_is_found_in_every_kind_of_condition(tmp_path: Path) -> None:
    lost = simple("lost", "==", True)
    loop = {"id": "l", "type": "while", "condition": lost, "breakCondition": {"type": "not", "condition": lost}}
    part = {
        "id": "a",
        "transitions": [{"to": "a", "condition": lost}, {"to": "__terminal__", "isDefault": True}],
        "checkpoints": [{"id": "c", "condition": lost, "options": [{"id": "o"}]}],
        "decisions": [{"id": "d", "branches": [{"id": "x", "condition": lost}, {"id": "y", "isDefault": True}]}],
        "loops": [{**loop, "steps": [{"id": "in-loop", "condition": lost}]}],
        "steps": [{"id": "s", "condition": both(lost, IS_READY), "actions": [{"action": "log", "condition": lost}]}],
    }
    [finding] = found(tmp_path, part)

    assert finding.rule == "undeclared-variable"
    assert "(and 7 further places in this activity)" in finding.sentence


@proves("lint.undeclared")
@pytest.mark.parametrize("text", ["no braces", "{{ready}}", "${ready}", "{not-a-name}", "{}", "{is_ready}", '{"a": 1}'])
def test_braces_that_are_no_placeholder_are_left_alone(text: str, tmp_path: Path) -> None:
    assert found(tmp_path, {"id": "a", "entryActions": [{"action": "log", "message": text}]}) == []


@proves("lint.undeclared")
def test_placeholders_are_checked_wherever_they_are_filled_in(tmp_path: Path) -> None:
    part = {
        "id": "a",
        "checkpoints": [{"id": "c", "message": "{lost}", "options": [{"id": "o"}]}],
        "artifacts": [{"id": "f", "name": "{lost}.md"}],
        "exitActions": [{"action": "message", "message": "{lost}"}],
    }

    assert rules(found(tmp_path, part, artifactLocations={"notes": "docs/{lost}"})) == ["undeclared-placeholder"] * 4


@proves("lint.missing-value")
@pytest.mark.parametrize("operator", ["==", "!=", ">", "<", ">=", "<="])
def test_a_comparison_with_nothing_is_warned_about(operator: str, tmp_path: Path) -> None:
    condition = {"type": "simple", "variable": "n", "operator": operator}
    variables = [{"name": "n", "type": "number"}]
    findings = found(tmp_path, {"id": "a", "steps": [{"id": "s", "condition": condition}]}, variables=variables)

    assert [(finding.rule, finding.severity) for finding in findings] == [("missing-value", "warning")]


@proves("lint.missing-value")
@pytest.mark.parametrize("condition", [{"operator": "exists"}, {"operator": "notExists"}, {"operator": "==", "value": None}])
def test_asking_for_a_value_or_for_null_is_no_comparison_with_nothing(condition: dict[str, Any], tmp_path: Path) -> None:
    step = {"id": "s", "condition": {"type": "simple", "variable": "n", **condition}}

    assert found(tmp_path, {"id": "a", "steps": [step]}, variables=[{"name": "n", "type": "number"}]) == []


@proves("lint.settled", "lint.no-crash")
def test_a_number_beyond_all_floats_is_linted(tmp_path: Path) -> None:
    part = {"id": "a", "steps": [{"id": "s", "condition": simple("n", ">", 10**400)}]}

    assert found(tmp_path, part, variables=[{"name": "n", "type": "number"}]) == []


@proves("lint.settled")
def test_a_session_compares_numbers_beyond_all_floats_as_lint_does() -> None:
    larger = _CONDITIONS.validate_python(simple("n", ">", 10**400))

    assert [holds(larger, {"n": value}) for value in (10**400 + 1, 10**400, 5, "5")] == [True, False, False, False]

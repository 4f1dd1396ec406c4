"""Conditions as a line of text: what they mean, where they are wrong, and that every condition can be shown as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from fidelio.definitions.conditions import holds, matches_condition
from fidelio.definitions.describe import render_workflow
from fidelio.definitions.drawing.graph import build_graph
from fidelio.definitions.lint import lint
from fidelio.definitions.models import Condition
from fidelio.definitions.short_conditions import (
    MAX_DEPTH,
    MAX_LENGTH,
    ShortConditionError,
    parse_short_condition,
    render_short_condition,
)
from tests.definitions.libraries import FORMATS, library, save, written
from tests.engine.test_conditions import conditions, variables
from tests.support import proves

_ADAPTER: TypeAdapter[Any] = TypeAdapter(Condition)


def simple(variable: str, operator: str = "==", value: Any = True) -> dict[str, Any]:
    known = {} if operator in ("exists", "notExists") else {"value": value}
    return {"type": "simple", "variable": variable, "operator": operator, **known}


def both(kind: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "conditions": list(parts)}


def negated(condition: dict[str, Any]) -> dict[str, Any]:
    return {"type": "not", "condition": condition}


@proves("conditions.short")
@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("tests_passed == false", simple("tests_passed", value=False)),
        ("count > 3 and not done", both("and", simple("count", ">", 3), negated(simple("done")))),
        ("a or b and c", both("or", simple("a"), both("and", simple("b"), simple("c")))),
        ("(a || b) && !c", both("and", both("or", simple("a"), simple("b")), negated(simple("c")))),
        ("NOT (x == true) AND y exists", both("and", negated(simple("x")), simple("y", "exists"))),
        ("ticket.id notExists", simple("ticket.id", "notExists")),
        ("size != 'a \"b\"'", simple("size", "!=", 'a "b"')),
        ('size == "it\'s \\u00e9"', simple("size", value="it's é")),
        ("x == null", simple("x", value=None)),
        ("x<=-1.5e2", simple("x", "<=", -150.0)),
        ("`two words` == 1", simple("two words", value=1)),
        ("`not` or `a``b`", both("or", simple("not"), simple("a`b"))),
        (" \n a\tand\nb ", both("and", simple("a"), simple("b"))),
    ],
)
def test_a_line_means_the_condition(text: str, condition: dict[str, Any]) -> None:
    assert parse_short_condition(text) == condition
    assert _ADAPTER.validate_python(text) == _ADAPTER.validate_python(condition)


@proves("conditions.short")
@given(conditions, variables)
def test_every_condition_can_be_shown_as_a_line_that_means_the_same(data: dict[str, Any], known: dict[str, Any]) -> None:
    condition = _ADAPTER.validate_python(data)
    text = render_short_condition(condition)
    again = _ADAPTER.validate_python(text)

    assert render_short_condition(again) == text
    assert holds(again, known) is holds(condition, known)
    assert matches_condition(text, condition)


names = st.text(min_size=1, max_size=8)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)


@proves("conditions.short")
@given(names, st.sampled_from(["==", "!=", ">", "<", ">=", "<=", "exists", "notExists"]), scalars)
def test_any_name_and_value_survives(name: str, operator: str, value: Any) -> None:
    condition = _ADAPTER.validate_python(simple(name, operator, value))

    assert _ADAPTER.validate_python(render_short_condition(condition)) == condition


@proves("conditions.short-errors")
@given(st.text(max_size=40) | st.text(alphabet="ab ()!=<>&|'\"`01.", max_size=40))
def test_any_text_is_a_condition_or_an_error_inside_it(text: str) -> None:
    problem = None
    try:
        assert _ADAPTER.validate_python(parse_short_condition(text))
    except ShortConditionError as error:
        problem = error

    assert problem is None or 0 <= problem.offset <= len(text)
    assert problem is None or (problem.sentence.endswith(".") and problem.remedy.endswith("."))


@proves("conditions.short-errors")
@pytest.mark.parametrize(
    ("text", "at", "words"),
    [
        ("x = 1", 2, "Write =="),
        ("tone == brief", 8, 'Put text in quotes: "brief"'),
        ("(a", 0, "Add )"),
        ("a)", 1, "Delete it"),
        ("a b", 2, "`and` or `or`"),
        ('a == "x', 5, 'Put a "'),
        ("a == ", 5, "Compare with"),
        ("", 0, "the variable first"),
        ("a and", 5, "the variable first"),
        ("3 > a", 0, "the variable first"),
        ("a ? b", 2, "Compare with =="),
        ('a == "\\x"', 5, "two backslashes"),
        ("a == " + "9" * 5000, 5, "smaller number"),
        ("(" * (MAX_DEPTH + 2), MAX_DEPTH + 1, "Split"),
        ("a" * (MAX_LENGTH + 1), 0, "Split"),
    ],
)
def test_an_error_has_the_place_and_what_to_write(text: str, at: int, words: str) -> None:
    with pytest.raises(ShortConditionError) as caught:
        parse_short_condition(text)

    assert caught.value.offset == at
    assert words in caught.value.remedy


def root_with(tmp_path: Path, condition: str, form: str = "yaml") -> Path:
    steps = [{"id": "s", "name": "S", "condition": condition}, {"id": "t", "name": "T"}]
    loop = {
        "id": "l",
        "name": "L",
        "type": "while",
        "condition": condition,
        "maxIterations": 2,
        "steps": [{"id": "u", "name": "U"}],
    }
    declared = [{"name": "count", "type": "number"}, {"name": "done", "type": "boolean"}]
    head = {"id": "w", "version": "1.0.0", "title": "W", "initialActivity": "a", "variables": declared}
    one = {"id": "a", "version": "1.0.0", "name": "A", "steps": steps, "loops": [loop]}
    one["transitions"] = [{"to": "a", "condition": condition}, {"to": "workflow-end", "isDefault": True}]
    return save(tmp_path / form, {f"w/workflow.{form}": written(head, form), f"w/activities/01-a.{form}": written(one, form)})


@proves("conditions.short", "conditions.short-shown")
@pytest.mark.parametrize("form", FORMATS)
def test_every_format_takes_the_short_form_and_it_is_shown_that_way(tmp_path: Path, form: str) -> None:
    workflow = library(root_with(tmp_path, "count > 3 and not done", form)).workflow("w")
    text, graph = render_workflow(workflow, width=80), build_graph(workflow)

    assert workflow.activities[0].steps[0].condition == _ADAPTER.validate_python(
        both("and", simple("count", ">", 3), negated(simple("done")))
    )
    assert text.count("if count > 3 and not done") == 2
    assert "while count > 3 and not done" in text
    assert any("count > 3 and not done" in edge.labels for edge in graph.edges)


@proves("conditions.short-errors")
def test_a_finding_points_at_the_column_in_the_file(tmp_path: Path) -> None:
    root = root_with(tmp_path, "count = 3")
    (first, *_) = [finding for finding in lint(library(root)) if finding.rule == "schema"]
    line = (root / "w/activities/01-a.yaml").read_text().splitlines()[first.line - 1]

    assert line[first.column - 1 :].startswith("= 3")
    assert first.sentence == "`steps.1.condition` cannot be read: A single = compares nothing."
    example = first.remedy.partition("For example: `")[2].removesuffix("`.")
    assert parse_short_condition(example)["type"] == "or"


@proves("conditions.short-shown")
def test_lint_shows_a_condition_in_its_short_form(tmp_path: Path) -> None:
    found = [f.sentence for f in lint(library(root_with(tmp_path, "count > 3 and count < 2"))) if f.rule == "always-false"]

    assert found[0].endswith("can never hold: count > 3 and count < 2.")


@proves("conditions.short")
@pytest.mark.parametrize(
    "claim", ["count > 3 and not done", "count>3 && !done", "count > 3 AND NOT (done == true)", "(count > 3) and (not done)"]
)
def test_a_claim_states_the_condition_in_any_form(claim: str) -> None:
    condition = _ADAPTER.validate_python("count > 3 and not done")

    assert matches_condition(claim, condition)
    assert not matches_condition(claim.replace("3", "4"), condition)

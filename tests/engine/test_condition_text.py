"""Conditions as one line of text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from fidelio.definitions.conditions import holds, matches_condition, render_condition, render_plain_condition
from fidelio.definitions.models import Condition
from tests.engine.builders import when
from tests.engine.test_conditions import conditions, values
from tests.support import proves
from tests.support.walker import values_for

_ADAPTER: TypeAdapter[Any] = TypeAdapter(Condition)


def condition(data: dict[str, Any]) -> Any:
    return _ADAPTER.validate_python(data)


def both(kind: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "conditions": list(parts)}


@proves("engine.condition-text")
@pytest.mark.parametrize(
    ("data", "ours", "plain"),
    [
        (when("x"), "x == true", "x == true"),
        (when("x", "a b"), 'x == "a b"', 'x == "a b"'),
        (when("x", None, "!="), "x != null", "x != null"),
        (when("x", 3, ">="), "x >= 3", "x >= 3"),
        (when("x", None, "exists"), "x exists", "x exists undefined"),
        ({"type": "not", "condition": when("x")}, "NOT (x == true)", "NOT (x == true)"),
        (both("and", when("x"), when("y")), "x == true AND y == true", "x == true AND y == true"),
        (
            both("and", when("x"), both("or", when("y"), when("z"))),
            "x == true AND (y == true OR z == true)",
            "x == true AND y == true OR z == true",
        ),
        (both("or", when("x"), both("or", when("y"), when("z"))), "x == true OR y == true OR z == true", None),
    ],
)
def test_a_condition_has_one_line(data: dict[str, Any], ours: str, plain: str | None) -> None:
    assert render_condition(condition(data)) == ours
    assert render_plain_condition(condition(data)) == (plain or ours)


@proves("engine.condition-text")
@pytest.mark.parametrize(
    ("claim", "right"),
    [
        ('x == true AND (y == "a" OR z == 1)', True),
        ('x == true AND y == "a" OR z == 1', True),
        ("x==true && (y=='a' || z==1)", True),
        ("  x  ==  true and ( y == a or z == 1 )".replace("( ", "(").replace(" )", ")"), True),
        ("x == true", False),
        ('x == true OR y == "a" AND z == 1', False),
        ('x == false AND (y == "a" OR z == 1)', False),
    ],
)
def test_a_claim_may_use_either_form_and_its_own_spacing(claim: str, right: bool) -> None:
    data = both("and", when("x"), both("or", when("y", "a"), when("z", 1)))

    assert matches_condition(claim, condition(data)) is right


@proves("engine.condition-text")
@given(conditions)
def test_every_condition_is_claimed_by_its_own_texts(data: dict[str, Any]) -> None:
    made = condition(data)

    assert matches_condition(render_condition(made), made)
    assert matches_condition(render_plain_condition(made), made)


@proves("engine.robot")
@given(
    st.sampled_from(["==", "!=", "exists", "notExists"]).flatmap(lambda sign: st.tuples(st.just(sign), values))
    | st.tuples(st.sampled_from([">", "<", ">=", "<="]), st.integers(-3, 3))
)
def test_a_comparison_can_be_made_true_and_false(compared: tuple[str, Any]) -> None:
    made = condition(when("x", compared[1], compared[0]))

    assert holds(made, values_for(made, truth=True)) is True
    assert holds(made, values_for(made, truth=False)) is False


@proves("engine.robot")
@pytest.mark.parametrize("kind", ["and", "or"])
def test_joined_conditions_can_be_made_true_and_false(kind: str) -> None:
    made = condition({"type": "not", "condition": both(kind, when("x"), when("y", 3, ">"))})

    assert holds(made, {"x": True, "y": 9} | values_for(made, truth=False)) is False
    assert holds(made, {"x": True, "y": 9} | values_for(made, truth=True)) is True


@proves("engine.told")
@pytest.mark.parametrize("operator", ["exists", "notExists", "=="])
def test_where_only_words_count_absence_proves_nothing(operator: str) -> None:
    assert holds(condition(when("x", 1, operator)), {}, reported_only=True) is None
    assert holds(condition(when("x", None, "exists")), {"x": None}, reported_only=True) is False

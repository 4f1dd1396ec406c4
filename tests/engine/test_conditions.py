"""Whether a condition holds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from fidelio.definitions.conditions import Truth, holds, look_up
from fidelio.definitions.models import Condition
from tests.support import proves

_ADAPTER: TypeAdapter[Any] = TypeAdapter(Condition)
values = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "1", "x", "2.5"])
variables = st.dictionaries(st.sampled_from("abc"), values)
simples = st.fixed_dictionaries(
    {
        "type": st.just("simple"),
        "variable": st.sampled_from("abc"),
        "operator": st.sampled_from(["==", "!=", ">", "<", ">=", "<=", "exists", "notExists"]),
        "value": values,
    }
)
conditions = st.recursive(
    simples,
    lambda inner: (
        st.fixed_dictionaries({"type": st.sampled_from(["and", "or"]), "conditions": st.lists(inner, min_size=2, max_size=3)})
        | st.fixed_dictionaries({"type": st.just("not"), "condition": inner})
    ),
    max_leaves=6,
)


def truth(data: dict[str, Any], known: dict[str, Any]) -> Truth:
    return holds(_ADAPTER.validate_python(data), known)


def compare(operator: str, value: object = None) -> dict[str, Any]:
    return {"type": "simple", "variable": "x", "operator": operator, "value": value}


@proves("engine.three-valued")
@given(conditions, variables, variables)
def test_what_is_known_stays_so_when_more_becomes_known(
    condition: dict[str, Any], known: dict[str, Any], more: dict[str, Any]
) -> None:
    assume("xists" not in str(condition))
    before, after = truth(condition, known), truth(condition, {**more, **known})

    assert before is None or before is after


@proves("engine.three-valued")
@given(conditions, variables)
def test_not_and_the_laws_of_de_morgan(condition: dict[str, Any], known: dict[str, Any]) -> None:
    other = compare("==", 1)
    both = truth({"type": "and", "conditions": [condition, other]}, known)
    negated = [{"type": "not", "condition": part} for part in (condition, other)]

    assert truth({"type": "not", "condition": {"type": "or", "conditions": negated}}, known) is both


@proves("engine.three-valued")
@pytest.mark.parametrize("operator", ["==", "!=", ">", "<", ">=", "<="])
def test_a_comparison_with_nothing_is_unknown(operator: str) -> None:
    assert truth(compare(operator, 1), {}) is None


@proves("engine.three-valued")
def test_one_known_part_can_decide() -> None:
    unknown = compare("==", 1)
    false = {**compare("==", 1), "variable": "y"}

    assert truth({"type": "and", "conditions": [unknown, false]}, {"y": 2}) is False
    assert truth({"type": "or", "conditions": [unknown, false]}, {"y": 1}) is True
    assert truth({"type": "and", "conditions": [unknown, false]}, {"y": 1}) is None


@proves("engine.exists")
@pytest.mark.parametrize(("known", "there"), [({}, False), ({"x": None}, False), ({"x": 0}, True), ({"x": ""}, True)])
def test_exists_always_knows(known: dict[str, Any], there: bool) -> None:
    assert truth(compare("exists"), known) is there
    assert truth(compare("notExists"), known) is not there


@proves("engine.equality")
@pytest.mark.parametrize(
    ("left", "right", "same"),
    [(1, 1, True), (1, 1.0, True), ("1", 1, False), (True, 1, False), (False, 0, False), (None, None, True), ("a", "a", True)],
)
def test_equality_does_not_convert(left: object, right: object, same: bool) -> None:
    assert truth(compare("==", right), {"x": left}) is same
    assert truth(compare("!=", right), {"x": left}) is not same


@proves("engine.ordering")
@pytest.mark.parametrize(
    ("left", "operator", "right", "expected"),
    [
        (2, ">", 1, True),
        ("10", ">", "9", True),
        ("2.5", "<=", 2.5, True),
        ("ten", ">", 1, False),
        (True, ">", 0, False),
        (None, "<", 1, False),
        ([1], "<", 2, False),
        ("", "<", 1, False),
    ],
)
def test_ordering_takes_numbers_and_numeric_texts(left: object, operator: str, right: object, expected: bool) -> None:
    assert truth(compare(operator, right), {"x": left}) is expected


@proves("engine.lookup")
def test_dots_lead_into_objects_and_lists_and_a_whole_name_wins() -> None:
    known = {"a": {"b": [{"c": 7}]}, "p.q": 1, "p": {"q": 2}}

    assert look_up("a.b.0.c", known) == 7
    assert look_up("p.q", known) == 1
    assert truth({**compare("==", 7), "variable": "a.b.1.c"}, known) is None
    assert truth({**compare("==", 7), "variable": "a.b.c"}, known) is None

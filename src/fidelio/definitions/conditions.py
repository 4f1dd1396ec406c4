"""Evaluate conditions with three values (true, false, unknown), and render them as a line of text.

A comparison with a variable that has no value is unknown, not false: a value that an agent has not reported is not denied.
`exists` and `notExists` test for a value, so they are never unknown.

The engine and lint use the same functions, so that a condition that lint calls constant is constant in a session.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Final

from fidelio.definitions.short_conditions import ShortConditionError, parse_short_condition, render_short_condition

if TYPE_CHECKING:
    from fidelio.definitions.models.condition import Condition, Simple


Truth = bool | None


class _Missing:
    """The absence of a value, as opposed to the value null."""


MISSING: Final = _Missing()

_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


def holds(condition: Condition | None, variables: Mapping[str, Any], *, reported_only: bool = False) -> Truth:
    """Evaluate a condition: True, False, or None if it is unknown. None as condition always holds.

    With `reported_only`, an absent variable makes every comparison unknown, also `exists`.
    """
    if condition is None:
        return True
    if condition.type == "simple":
        return _evaluate_comparison(condition, look_up(condition.variable, variables), reported_only)
    if condition.type == "not":
        return negate(holds(condition.condition, variables, reported_only=reported_only))
    # The first operand that is false decides a conjunction, the first that is true a disjunction.
    neutral, unknown = condition.type == "and", False
    for operand in condition.conditions:
        truth = holds(operand, variables, reported_only=reported_only)
        if truth is (not neutral):
            return truth
        unknown = unknown or truth is None
    return None if unknown else neutral


def list_comparisons(condition: Condition) -> Iterator[Simple]:
    """The simple comparisons that a condition consists of, in reading order."""
    if condition.type == "simple":
        yield condition
        return
    for part in (condition.condition,) if condition.type == "not" else condition.conditions:
        yield from list_comparisons(part)


def list_variables(condition: Condition) -> Iterator[str]:
    """Every variable of the condition, in order, including repetitions."""
    return (comparison.variable for comparison in list_comparisons(condition))


def all_hold(truths: Sequence[Truth]) -> Truth:
    if False in truths:
        return False
    return None if None in truths else True


def negate(truth: Truth) -> Truth:
    return None if truth is None else not truth


def look_up(name: str, variables: Mapping[str, Any]) -> Any:
    """The value of a variable; a dotted name leads into objects and lists, unless a variable has the whole name."""
    if name in variables:
        return variables[name]
    value: Any = variables
    for part in name.split("."):
        value = _get_member(value, part)
        if value is MISSING:
            return MISSING
    return value


def _get_member(value: Any, part: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(part, MISSING)
    if isinstance(value, Sequence) and not isinstance(value, str) and part.isascii() and part.isdigit():
        return value[int(part)] if int(part) < len(value) else MISSING
    return MISSING


def _evaluate_comparison(condition: Simple, value: Any, reported_only: bool) -> Truth:
    if value is MISSING and reported_only:
        return None
    if condition.operator in ("exists", "notExists"):
        return (value is not MISSING and value is not None) is (condition.operator == "exists")
    if value is MISSING:
        return None
    if condition.operator in ("==", "!="):
        return is_equal(value, condition.value) is (condition.operator == "==")
    left, right = _to_number(value), _to_number(condition.value)
    return left is not None and right is not None and _ORDER[condition.operator](left, right)


def is_equal(left: Any, right: Any) -> bool:
    """Compare without conversion: 1 is not true and "1" is not 1."""
    # In Python True equals 1; a definition that requires true does not accept the number.
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


def name_type(value: object) -> str:
    """The type of a value as definitions declare it."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list | tuple) else "object" if isinstance(value, Mapping) else "null"


def _to_number(value: Any) -> Any:
    """The value as a number. An integer stays an integer, because it may be too large for a float."""
    if isinstance(value, bool) or not isinstance(value, (Real, str)):
        return None
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return None


_encode = json.JSONEncoder(ensure_ascii=False).encode
_CONNECTIVES = {"and": " AND ", "or": " OR "}
_SPELLINGS = ((re.compile(r"\s*&&\s*|\s+and\s+"), " AND "), (re.compile(r"\s*\|\|\s*|\s+or\s+"), " OR "))
_OPERATOR = re.compile(r"\s*(==|!=|>=|<=|>|<)\s*")


def render_condition(condition: Condition) -> str:
    """Render with parentheses where operators are mixed."""
    if condition.type == "simple":
        return _render_simple(condition)
    if condition.type == "not":
        return f"NOT ({render_condition(condition.condition)})"
    operands = (_render_operand(operand, inside=condition.type) for operand in condition.conditions)
    return _CONNECTIVES[condition.type].join(operands)


def render_plain_condition(condition: Condition) -> str:
    """Render without parentheses, as older servers did; agents that learned that form still use it in claims."""
    if condition.type == "simple":
        return _render_simple(condition) + (" undefined" if "xists" in condition.operator and condition.value is None else "")
    if condition.type == "not":
        return f"NOT ({render_plain_condition(condition.condition)})"
    return _CONNECTIVES[condition.type].join(render_plain_condition(operand) for operand in condition.conditions)


def matches_condition(claim: str, condition: Condition) -> bool:
    """Whether the claim states this condition, in any form."""
    texts = (render_condition(condition), render_plain_condition(condition), render_short_condition(condition))
    return _normalize(claim) in map(_normalize, texts) or _flatten(_parse(claim)) == _flatten(_to_data(condition))


def _parse(claim: str) -> Any:
    try:
        return parse_short_condition(claim)
    except ShortConditionError:
        return None


def _to_data(condition: Condition) -> dict[str, Any]:
    """The condition in the form in which it is parsed."""
    if condition.type == "simple":
        data = {"type": "simple", "variable": condition.variable, "operator": condition.operator}
        return data if condition.operator in ("exists", "notExists") else {**data, "value": condition.value}
    if condition.type == "not":
        return {"type": "not", "condition": _to_data(condition.condition)}
    return {"type": condition.type, "conditions": [_to_data(part) for part in condition.conditions]}


def _flatten(data: Any) -> Any:
    """Parsed data in which an `and` contains no `and`, and an `or` no `or`, with the types of values apart: 1 is not true."""
    if data is None:
        return None
    if data["type"] == "simple":
        value = data.get("value")
        return data["variable"], data["operator"], isinstance(value, bool), value
    if data["type"] == "not":
        return "not", _flatten(data["condition"])
    operands = [_flatten(operand) for operand in data["conditions"]]
    return data["type"], *(inner for each in operands for inner in (each[1:] if each[0] == data["type"] else (each,)))


def matches_text(claim: str, text: str) -> bool:
    return _normalize(claim) == _normalize(text)


def _render_operand(condition: Condition, *, inside: str) -> str:
    text = render_condition(condition)
    return f"({text})" if condition.type in _CONNECTIVES and condition.type != inside else text


def _render_simple(condition: Simple) -> str:
    if condition.operator in ("exists", "notExists"):
        return f"{condition.variable} {condition.operator}"
    return f"{condition.variable} {condition.operator} {_encode(condition.value)}"


def _normalize(text: str) -> str:
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    return " ".join(_OPERATOR.sub(r" \1 ", text.replace('"', "").replace("'", "")).split())

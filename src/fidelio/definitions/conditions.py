"""Whether a condition holds: yes, no, or not known yet.

A variable without a value makes a comparison unknown, not false: an agent that has not reported something has not denied it.
`exists` and `notExists` are about having a value, so they always know.

The engine asks this of a running session and lint of every case there can be. Both ask here, so that what lint calls certain
is what a session does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    # Nothing here makes a definition, so sessions are judged without loading what reads one.
    from fidelio.definitions.models.condition import Condition, Simple

Truth = bool | None


class _Missing:
    """No value at all, which is not the same as the value null."""


MISSING: Final = _Missing()

_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


def holds(condition: Condition | None, variables: Mapping[str, Any], *, reported_only: bool = False) -> Truth:
    """True, False, or None when it is not known yet. No condition at all holds.

    With `told`, only what somebody said counts: that a variable is absent then proves nothing, not even for `exists`.
    """
    if condition is None:
        return True
    if condition.type == "simple":
        return _evaluate_comparison(condition, look_up(condition.variable, variables), reported_only)
    if condition.type == "not":
        return negate(holds(condition.condition, variables, reported_only=reported_only))
    parts = [holds(part, variables, reported_only=reported_only) for part in condition.conditions]
    return all_hold(parts) if condition.type == "and" else negate(all_hold([negate(part) for part in parts]))


def all_hold(truths: Sequence[Truth]) -> Truth:
    if False in truths:
        return False
    return None if None in truths else True


def negate(truth: Truth) -> Truth:
    return None if truth is None else not truth


def look_up(name: str, variables: Mapping[str, Any]) -> Any:
    """The value of a variable; dots lead into objects and lists, unless a variable bears the whole name."""
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
    """Without conversion: 1 is not true and "1" is not 1."""
    # Python calls True equal to 1; a definition that asks for true does not mean the number.
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


def _to_number(value: Any) -> Any:
    """A number as it is: a whole number may be too large to become a float, and is compared exactly."""
    if isinstance(value, bool) or not isinstance(value, (Real, str)):
        return None
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return None

"""Values that would make a condition hold, or not hold: what somebody who wants to go a certain way would have to report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fidelio.definitions.models import Condition, Simple

_OPPOSITE = {"!=": "==", "notExists": "exists", "<=": ">", ">=": "<"}
SOMETHING = "something"


def values_for(condition: Condition, *, truth: bool) -> dict[str, Any]:
    """One assignment that makes the condition so, unless its parts contradict each other."""
    if condition.type == "simple":
        return {condition.variable: _value(condition, truth)}
    if condition.type == "not":
        return values_for(condition.condition, truth=not truth)
    if (condition.type == "and") is truth:
        return {name: value for part in condition.conditions for name, value in values_for(part, truth=truth).items()}
    return values_for(condition.conditions[0], truth=truth)


def _value(condition: Simple, truth: bool) -> Any:
    operator: str = condition.operator
    wanted = condition.value
    if operator in _OPPOSITE:
        operator, truth = _OPPOSITE[operator], not truth
    if operator == "exists":
        return SOMETHING if truth else None
    if operator == "==":
        return wanted if truth else _another(wanted)
    edge = float(wanted) if isinstance(wanted, int | float) else 0.0
    return edge + 1 if (operator == ">") is truth else edge - 1


def _another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"not {value}" if isinstance(value, str) else SOMETHING

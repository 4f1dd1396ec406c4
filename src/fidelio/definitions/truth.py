"""What can be said about a condition before anything runs: that it always holds, or never does.

A condition looks at each variable only through the values that it compares with. So it is enough to try those values, one value
beside each, and where `exists` is asked also no value at all. What is decided here is certain; where the cases are too many
or a variable's kind is not known, nothing is said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from operator import ge, gt, le, lt
from typing import Any, Literal

from fidelio.definitions.models import And, Condition, Not, Or, Simple

Verdict = Literal["always", "never"]
_MOST_CASES = 4096
_ORDERINGS = frozenset({">", "<", ">=", "<="})
_EXISTENCE = frozenset({"exists", "notExists"})


@dataclass(frozen=True, slots=True)
class Known:
    """What a declaration says about a variable. `always_there` means that it has a value from the beginning to the end."""

    type: str
    always_there: bool = False


class _Missing:
    """No value at all; differs from null, which somebody has to set."""


_MISSING = _Missing()
_SOMETHING_ELSE = _Missing()

Case = Mapping[str, Any]


def verdict(condition: Condition, known: Mapping[str, Known]) -> Verdict | None:
    """Whether the condition holds in every case or in none. Variables without a value make it neither."""
    domains = _domains(condition, known)
    if domains is None:
        return None
    names = list(domains)
    outcomes = {_holds(condition, dict(zip(names, values, strict=True))) for values in product(*domains.values())}
    if outcomes == {True}:
        return "always"
    return "never" if outcomes == {False} else None


def comparisons(condition: Condition) -> Iterator[Simple]:
    """The simple comparisons that a condition consists of, in reading order."""
    match condition:
        case Simple():
            yield condition
        case Not():
            yield from comparisons(condition.condition)
        case And() | Or():
            for part in condition.conditions:
                yield from comparisons(part)


def _domains(condition: Condition, known: Mapping[str, Known]) -> dict[str, list[Any]] | None:
    asked: dict[str, list[Simple]] = defaultdict(list)
    for comparison in comparisons(condition):
        asked[comparison.variable].append(comparison)
    domains: dict[str, list[Any]] = {}
    cases = 1
    for name, parts in asked.items():
        domain = _domain(parts, known.get(name))
        cases *= len(domain) if domain else 0
        if domain is None or cases > _MOST_CASES:
            return None
        domains[name] = domain
    return domains


def _domain(parts: list[Simple], known: Known | None) -> list[Any] | None:
    """Values that stand for all values the variable can have, or None when that cannot be said."""
    values = [part.value for part in parts if part.operator not in _EXISTENCE]
    if any(part.operator in _ORDERINGS for part in parts):
        numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        if known is None or known.type != "number" or len(numbers) < len(values):
            return None
        domain: list[Any] = _around(sorted(set(numbers)))
    elif known is not None and known.type == "boolean":
        domain = [True, False, *(None for _ in range(None in values))]
    else:
        domain = [*_distinct(values), _SOMETHING_ELSE]
    asks_existence = any(part.operator in _EXISTENCE for part in parts)
    if asks_existence and not (known and known.always_there):
        domain.append(_MISSING)
    return domain


def _around(values: list[float]) -> list[Any]:
    """The values, one between each two, and one beyond either end."""
    between = [(low + high) / 2 for low, high in pairwise(values)]
    return [values[0] - 1, *values, *between, values[-1] + 1]


def _distinct(values: list[Any]) -> list[Any]:
    distinct: list[Any] = []
    for value in values:
        if not any(equal(value, other) for other in distinct):
            distinct.append(value)
    return distinct


def equal(one: object, two: object) -> bool:
    """Without coercion: 1 is not true and "1" is not 1."""
    return isinstance(one, bool) == isinstance(two, bool) and one == two


def _holds(condition: Condition, case: Case) -> bool | None:
    match condition:
        case Simple():
            return _compare(condition, case[condition.variable])
        case Not():
            inner = _holds(condition.condition, case)
            return None if inner is None else not inner
        case And():
            return _all([_holds(part, case) for part in condition.conditions])
        case Or():
            opposite = _all([_negated(_holds(part, case)) for part in condition.conditions])
            return _negated(opposite)


def _negated(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def _all(truths: list[bool | None]) -> bool | None:
    if False in truths:
        return False
    return None if None in truths else True


def _compare(condition: Simple, value: Any) -> bool | None:
    if condition.operator in _EXISTENCE:
        there = value is not _MISSING and value is not None
        return there == (condition.operator == "exists")
    if value is _MISSING:
        return None
    if condition.operator in _ORDERINGS:
        return _ordered(condition.operator, value, condition.value)
    return equal(value, condition.value) == (condition.operator == "==")


def _ordered(operator: str, left: float, right: Any) -> bool:
    compare = {">": gt, "<": lt, ">=": ge, "<=": le}[operator]
    return bool(compare(left, right))

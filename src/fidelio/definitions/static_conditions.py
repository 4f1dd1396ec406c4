"""Static analysis of conditions: find those that always or never hold.

A condition depends on a variable only through the values that it is compared with. So it is enough to try these values, one
value next to each, and no value where `exists` is used. The result is certain; if there are too many cases or the type of a
variable is unknown, there is no result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from math import isfinite
from typing import Any, Literal

from fidelio.definitions.conditions import MISSING, holds, list_comparisons
from fidelio.definitions.models import Condition, Simple

ConstantTruth = Literal["always", "never"]
_MAX_CASES = 4096
_MAX_EVALUATIONS = 100_000
ORDERINGS = frozenset({">", "<", ">=", "<="})
EXISTENCE = frozenset({"exists", "notExists"})


@dataclass(frozen=True, slots=True)
class VariableDomain:
    """The declared type of a variable. `always_set`: it has a value during the whole session."""

    type: str
    always_set: bool = False


class _OtherValue:
    """A value that occurs in no comparison."""


_OTHER_VALUE = _OtherValue()


def find_constant_truth(condition: Condition, known: Mapping[str, VariableDomain]) -> ConstantTruth | None:
    """Whether the condition holds in every case or in none; None otherwise, also if variables may have no value."""
    domains = _find_domains(condition, known)
    if domains is None:
        return None
    names = list(domains)
    outcomes = (holds(condition, dict(zip(names, values, strict=True))) for values in product(*domains.values()))
    first = next(outcomes)
    # The first case with another outcome decides; going through all of them costs seconds for hundreds of comparisons.
    if first is None or any(outcome is not first for outcome in outcomes):
        return None
    return "always" if first else "never"


def _find_domains(condition: Condition, known: Mapping[str, VariableDomain]) -> dict[str, list[Any]] | None:
    by_variable: dict[str, list[Simple]] = defaultdict(list)
    for comparison in list_comparisons(condition):
        by_variable[comparison.variable].append(comparison)
    domains: dict[str, list[Any]] = {}
    cases = 1
    # Each case evaluates every comparison.
    most = min(_MAX_CASES, _MAX_EVALUATIONS // max(1, sum(map(len, by_variable.values()))))
    for name, comparisons in by_variable.items():
        domain = _find_domain(comparisons, known.get(name))
        cases *= len(domain) if domain else 0
        if domain is None or cases > most:
            return None
        domains[name] = domain
    return domains


def _find_domain(comparisons: list[Simple], known: VariableDomain | None) -> list[Any] | None:
    """Values that represent all values of the variable, or None if they cannot be determined."""
    values = [comparison.value for comparison in comparisons if comparison.operator not in EXISTENCE]
    if any(comparison.operator in ORDERINGS for comparison in comparisons):
        numbers = [number for value in values if (number := _to_fraction(value)) is not None]
        if known is None or known.type != "number" or len(numbers) < len(values):
            return None
        domain: list[Any] = _add_neighbours(sorted(set(numbers)))
    elif known is not None and known.type == "boolean":
        domain = [True, False, *(None for _ in range(None in values))]
    else:
        # The value that occurs nowhere comes first, because it is the most likely to decide.
        domain = [_OTHER_VALUE, *_remove_duplicates(values)]
    tests_existence = any(comparison.operator in EXISTENCE for comparison in comparisons)
    if tests_existence and not (known and known.always_set):
        domain.append(MISSING)
    return domain


def _to_fraction(value: object) -> Fraction | None:
    """The exact number; None for other types and for infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return Fraction(value) if isinstance(value, int) or isfinite(value) else None


def _add_neighbours(values: list[Fraction]) -> list[Any]:
    """The values, with a value between each two and beyond either end. Fractions, because large floats have no neighbours."""
    between = [(low + high) / 2 for low, high in pairwise(values)]
    return [values[0] - 1, *values, *between, values[-1] + 1]


def _remove_duplicates(values: list[Any]) -> list[Any]:
    """The distinct values by `is_equal`: in Python True equals 1."""
    return list({(isinstance(value, bool), value): value for value in values}.values())

"""A measured number and its bounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measured number. `at_least` and `at_most` are bounds; a figure without either is only information."""

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool:
        return (self.at_least is None or self.value >= self.at_least) and (self.at_most is None or self.value <= self.at_most)

    @property
    def bound(self) -> str:
        return " and ".join(
            f"{sign} {_number(limit)}" for sign, limit in (("≥", self.at_least), ("≤", self.at_most)) if limit is not None
        )


def table(figures: Iterable[Figure]) -> str:
    rows = [("figure", "value", "unit", "promised", "")]
    rows += [(f.name, _number(f.value), f.unit, f.bound, "" if f.holds else "BROKEN") for f in figures]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        f"  {name:<{widths[0]}}  {value:>{widths[1]}}  {unit:<{widths[2]}}  {bound:<{widths[3]}}  {verdict}".rstrip()
        for name, value, unit, bound, verdict in rows
    )


def _number(value: float) -> str:
    """A number with four digits, or with all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"

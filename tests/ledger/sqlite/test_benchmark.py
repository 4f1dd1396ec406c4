"""The ledger benchmark runs and reports its figures; speed is not tested."""

from __future__ import annotations

import pytest

from benchmarks import ledger, measure
from benchmarks.figures import table
from tests.support import proves

BOUNDS = {
    "one session / bare loop": (0.3, None),
    "64 sessions / bare loop": (3, None),
    "append, ten times the size": (None, 1.3),
    "page of sessions, ten times the size": (None, 1.3),
    "claim, ten times the size": (None, 1.3),
    "search with 20 hits, ten times the size": (None, 1.5),
    "slowest search": (None, 5),
}


@proves("ledger.bench")
def test_every_promised_ratio_is_measured_with_its_bound() -> None:
    figures = {figure.name: figure for figure in ledger.main(ledger.Effort(rounds=1, sessions=400, calls=10))}

    assert {name: (f.at_least, f.at_most) for name, f in figures.items() if f.bound} == BOUNDS
    assert all(figure.value > 0 for figure in figures.values())
    assert "slowest search" in table(figures.values())


@proves("ledger.bench")
async def test_rounds_are_interleaved_and_the_first_one_is_forgotten() -> None:
    order: list[str] = []

    async def one() -> float:
        order.append("one")
        return float(len(order))

    async def two() -> float:
        order.append("two")
        return 2.0 * len(order)

    found = await measure.interleaved(2, {"one": one, "two": two})

    assert order == ["two", "one", "one", "two", "two", "one"]
    assert found == {"one": [3.0, 6.0], "two": [8.0, 10.0]}
    assert measure.ratio(found["two"], found["one"]) == pytest.approx((8 / 3 + 10 / 6) / 2)

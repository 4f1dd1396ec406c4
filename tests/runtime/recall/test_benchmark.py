"""The benchmark of recall runs and reports its figures; speed is not tested."""

from __future__ import annotations

from benchmarks import recall
from tests.support import proves


@proves("recall.bench")
def test_searches_and_automatic_recall_are_measured_with_their_bounds() -> None:
    figures = recall.main(events=400, searches=4)

    assert [(figure.at_most, figure.unit) for figure in figures if figure.bound] == [(10, "ms"), (50, "ms"), (50, "ms")]
    assert all(figure.value > 0 for figure in figures)

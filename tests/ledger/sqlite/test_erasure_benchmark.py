"""The erasure benchmark runs and reports its figures; speed is not tested."""

from __future__ import annotations

from benchmarks import erasing
from tests.support import proves


@proves("erasing.bench")
def test_deleting_is_measured_with_its_bounds() -> None:
    figures = erasing.main(erasing.Effort(rounds=1, sessions=20))

    assert [(figure.at_most, figure.unit, figure.value > 0) for figure in figures] == [(1.0, "s", True), (None, "ms", True)]

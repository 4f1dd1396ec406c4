"""The benchmark walks in every dialect and says what it promises; how fast this machine is, is not a matter for tests."""

from __future__ import annotations

from benchmarks import dialects
from tests.support import proves


@proves("gates.cost")
def test_every_dialect_is_measured_against_sessions_with_its_bound() -> None:
    figures = dialects.main(rounds=1, walks=1)

    others = [name for name in dialects.DIALECTS if name != "sessions"]
    assert "gates" in others
    assert [figure.name for figure in figures] == [
        f"CPU per call of the {name} dialect / of the sessions dialect" for name in others
    ]
    assert all(figure.at_most == 1.3 for figure in figures)
    assert all(figure.value > 0 for figure in figures)

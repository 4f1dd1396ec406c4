"""A benchmark that breaks its promise is noticed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import Figure
from benchmarks import __main__ as runner
from benchmarks.figures import table
from tests.support import proves

KEPT = Figure(name="crossings", value=4.0, unit="per hour", at_least=3)
BROKEN = Figure(name="delay", value=12.5, unit="min", at_most=10)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Figure], int]:
    """Runs one benchmark that finds the given figure."""

    def run(figure: Figure) -> int:
        monkeypatch.setattr(runner, "import_module", lambda _name: SimpleNamespace(main=lambda: [figure]))
        monkeypatch.setattr(runner, "names", lambda asked: asked)
        return runner.main(["ferry"], tmp_path / "bench.json")

    return run


@proves("project.bench-bounds")
def test_a_broken_bound_fails_the_run(measured: Callable[[Figure], int], capsys: pytest.CaptureFixture[str]) -> None:
    assert measured(BROKEN) == 1
    assert "1 of the promises broken: delay" in capsys.readouterr().out


@proves("project.bench-bounds")
def test_a_kept_bound_passes_and_is_written_down(measured: Callable[[Figure], int], tmp_path: Path) -> None:
    assert measured(KEPT) == 0

    (figure,) = json.loads((tmp_path / "bench.json").read_text("utf-8"))["figures"]["ferry"]
    assert figure == {
        "name": "crossings",
        "value": 4.0,
        "unit": "per hour",
        "at_least": 3,
        "at_most": None,
        "holds": True,
    }


@proves("project.bench-bounds")
def test_the_table_shows_figure_bound_and_verdict() -> None:
    assert table([KEPT, BROKEN]).splitlines() == [
        "  figure     value  unit      promised",
        "  crossings      4  per hour  ≥ 3",
        "  delay       12.5  min       ≤ 10      BROKEN",
    ]


@proves("project.bench-bounds")
def test_an_unknown_benchmark_is_refused() -> None:
    with pytest.raises(SystemExit, match="opera is not a benchmark"):
        runner.names(["opera"])

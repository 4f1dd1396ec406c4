"""Run all benchmarks, or those named, and fail if a bound is exceeded: `python -m benchmarks ledger`."""

from __future__ import annotations

import json
import pkgutil
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import benchmarks
from benchmarks.figures import Figure, table

RESULTS = Path(__file__).resolve().parents[1] / ".build" / "bench.json"


def names(asked: Sequence[str]) -> list[str]:
    """List the modules to run: those named, or all that have a `main`."""
    known = [module.name for module in pkgutil.iter_modules(benchmarks.__path__) if module.name != "__main__"]
    offered = [name for name in known if hasattr(import_module(f"benchmarks.{name}"), "main")]
    if unknown := sorted(set(asked) - set(offered)):
        sys.exit(f"{', '.join(unknown)} is not a benchmark. Use one of: {', '.join(offered)}.")
    return list(asked) or offered


def measure(name: str) -> list[Figure]:
    print(f"\n{name}", flush=True)
    figures = list(import_module(f"benchmarks.{name}").main())
    print(table(figures), flush=True)
    return figures


def write(results: Mapping[str, Sequence[Figure]], place: Path) -> None:
    machine = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
    figures = {name: [asdict(figure) | {"holds": figure.holds} for figure in found] for name, found in results.items()}
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps({"machine": machine, "figures": figures}, indent=2) + "\n", "utf-8")


def main(asked: Sequence[str], place: Path = RESULTS) -> int:
    results = {name: measure(name) for name in names(asked)}
    write(results, place)
    broken = [figure.name for found in results.values() for figure in found if not figure.holds]
    print(f"\n{len(broken)} of the promises broken: {', '.join(broken)}" if broken else "\nEvery promise holds.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

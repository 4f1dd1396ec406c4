"""Holds every file to 400 lines: past that it has usually become two things, and a reader cannot see the whole of either."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUDGET = 400
PLACES = ("src", "tests", "scripts", "benchmarks")


def offenders(root: Path, budget: int = BUDGET) -> Iterator[tuple[Path, int]]:
    for place in PLACES:
        for file in sorted((root / place).rglob("*.py")):
            lines = len(file.read_text("utf-8").splitlines())
            if lines > budget:
                yield file.relative_to(root), lines


def main() -> int:
    found = list(offenders(ROOT))
    for file, lines in found:
        print(f"{file}: {lines} lines, {lines - BUDGET} more than a file may have; split it by meaning")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

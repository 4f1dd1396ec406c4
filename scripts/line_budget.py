"""Limit the size of files: at most 400 lines each, and at most 30 modules below 60 lines.

A longer file has usually become two things. Many short ones make a reader cross too many files to follow one call.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUDGET = 400
TREES = ("src", "tests", "scripts", "benchmarks")
SMALL = 60
MOST_SMALL = 30


def offenders(root: Path, budget: int = BUDGET) -> Iterator[tuple[Path, int]]:
    for tree in TREES:
        for file in sorted((root / tree).rglob("*.py")):
            lines = len(file.read_text("utf-8").splitlines())
            if lines > budget:
                yield file.relative_to(root), lines


def small_modules(root: Path, small: int = SMALL) -> list[Path]:
    """Modules of the package below `small` lines; `__init__.py` and `__main__.py` do not count."""
    files = (file for file in sorted((root / "src").rglob("*.py")) if not file.name.startswith("__"))
    return [file.relative_to(root) for file in files if len(file.read_text("utf-8").splitlines()) < small]


def main() -> int:
    found = list(offenders(ROOT))
    for file, lines in found:
        print(f"{file}: {lines} lines, {lines - BUDGET} more than a file may have; split it by meaning")
    small = small_modules(ROOT)
    if len(small) > MOST_SMALL:
        print(f"{len(small)} modules have fewer than {SMALL} lines, at most {MOST_SMALL} may; merge some into their callers:")
        print("\n".join(f"  {file}" for file in small))
    return 1 if found or len(small) > MOST_SMALL else 0


if __name__ == "__main__":
    sys.exit(main())

"""Limit the size of files and the number of lazy imports.

At most 400 lines in a file: a longer one has usually become two things. At most 30 modules below 60 lines: many short ones make
a reader cross too many files to follow one call. At most 50 imports inside of functions: what a module needs is at its top.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUDGET = 400
TREES = ("src", "tests", "scripts", "benchmarks")
SMALL = 60
MOST_SMALL = 30
MOST_LAZY = 50


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


def lazy_imports(root: Path) -> list[str]:
    """Imports inside of functions, as ruff finds them, whether a `noqa` allows them or not."""
    ruff = Path(sysconfig.get_path("scripts")) / "ruff"
    options = ["--isolated", "--ignore-noqa", "--exit-zero", "--select", "PLC0415", "--output-format", "concise"]
    done = subprocess.run([ruff, "check", *options, "src"], check=True, cwd=root, capture_output=True, text=True, timeout=120)
    return [line for line in done.stdout.splitlines() if " PLC0415 " in line]


def main() -> int:
    found = list(offenders(ROOT))
    for file, lines in found:
        print(f"{file}: {lines} lines, {lines - BUDGET} more than a file may have; split it by meaning")
    small = small_modules(ROOT)
    if len(small) > MOST_SMALL:
        print(f"{len(small)} modules have fewer than {SMALL} lines, at most {MOST_SMALL} may; merge some into their callers:")
        print("\n".join(f"  {file}" for file in small))
    lazy = lazy_imports(ROOT)
    if len(lazy) > MOST_LAZY:
        print(f"{len(lazy)} imports are inside of functions, at most {MOST_LAZY} may be; move some to the top:")
        print("\n".join(f"  {line}" for line in lazy))
    return 1 if found or len(small) > MOST_SMALL or len(lazy) > MOST_LAZY else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs every generator of reference pages: the scripts `generate_*.py` beside this one, each of which writes files when run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve()


def generators() -> list[str]:
    return sorted(file.stem for file in HERE.parent.glob("generate_*.py") if file != HERE)


def main() -> None:
    for name in generators():
        print(f"docs: {name}")
        subprocess.run([sys.executable, "-m", f"scripts.{name}"], cwd=HERE.parents[1], check=True, timeout=300)


if __name__ == "__main__":
    main()

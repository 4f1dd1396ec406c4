"""Paths of test data from outside the project, which may be missing."""

from __future__ import annotations

import shutil
from pathlib import Path

from fidelio.definitions.library.search_path import bundled_root

_ROOT = Path(__file__).resolve().parents[2].parent / "shared"


def shared(*parts: str) -> Path | None:
    """Return the file or directory if it exists. Tests that use it are collected only then."""
    place = _ROOT.joinpath(*parts)
    return place if place.exists() else None


def shared_workflow_roots() -> list[Path]:
    """The directories with workflow files of several generations, written by others."""
    place = shared("data", "workflows")
    return sorted(p for p in place.iterdir() if p.is_dir()) if place else []


def advised_copy(root: Path, into: Path) -> Path:
    """A copy of the bundled workflows without their level, for agents that report nothing; any other root as it is."""
    if root != bundled_root().path:
        return root
    copy = into / "advised"
    if not copy.exists():
        shutil.copytree(root, copy)
        for manifest in copy.glob("*/workflow.yaml"):
            manifest.write_text(manifest.read_text().replace("fidelity: enforce\n", ""))
    return copy

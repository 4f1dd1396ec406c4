"""Paths of test data from outside the project, which may be missing."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2].parent / "shared"


def shared(*parts: str) -> Path | None:
    """Return the file or directory if it exists. Tests that use it are collected only then."""
    place = _ROOT.joinpath(*parts)
    return place if place.exists() else None


def shared_workflow_roots() -> list[Path]:
    """The directories with workflow files of several generations, written by others."""
    place = shared("data", "workflows")
    return sorted(p for p in place.iterdir() if p.is_dir()) if place else []

"""The one place that knows where material from outside the project lies, and that it may be absent."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2].parent / "shared"


def shared(*parts: str) -> Path | None:
    """The file or directory if it is there. Tests over it are collected only then."""
    place = _ROOT.joinpath(*parts)
    return place if place.exists() else None


def shared_workflow_roots() -> list[Path]:
    """The directories with workflow files of several generations, written by others."""
    place = shared("data", "workflows")
    return sorted(p for p in place.iterdir() if p.is_dir()) if place else []

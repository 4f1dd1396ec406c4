"""What agents that somebody else has installed have in common: a version, a login, and settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def version_of(program: str) -> str:
    """The version in the package that the program lies in, or nothing where it does not come from npm.

    Some of these programs take seconds to say it themselves.
    """
    for directory in Path(program).resolve().parents:
        try:
            return str(json.loads((directory / "package.json").read_text("utf-8")).get("version", ""))
        except (OSError, ValueError):
            continue
    return ""


def link(login: Path, place: Path) -> bool:
    """Makes a user's login known in a home of ours, if there is one. It stays one file, so a renewal is seen by both."""
    if not place.is_symlink() and not place.exists() and login.is_file():
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.symlink_to(login.resolve())
    return place.exists()


def merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Both settings, table by table; where both say something, theirs holds."""
    both = {**ours, **theirs}
    for key in ours.keys() & theirs.keys():
        if isinstance(ours[key], Mapping) and isinstance(theirs[key], Mapping):
            both[key] = merged(ours[key], theirs[key])
    return both

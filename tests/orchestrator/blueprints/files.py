"""A project with blueprints, made file by file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fidelio.orchestrator.blueprints.catalogue import BlueprintCatalogue

AGENTS = Path(".fidelio") / "agents"


def open_catalogue(*roots: Path) -> BlueprintCatalogue:
    """The project's own directory and whatever is given after it."""
    return BlueprintCatalogue([AGENTS, *roots])


def write_folder(root: Path, name: str, more: Mapping[str, Any] | None = None, **files: str) -> Path:
    """`agent.json` with `more` in it. `prompt` and `mcp` are the texts of the other two files."""
    place = root / name
    place.mkdir(parents=True, exist_ok=True)
    head = {"name": name, "description": f"Is good for {name}.", **(more or {})}
    (place / "agent.json").write_text(json.dumps(head, indent=2))
    for key, file in (("prompt", "agent.system-prompt.md"), ("mcp", "agent.mcp.json")):
        if key in files:
            (place / file).write_text(files[key])
    return place


def write_page(root: Path, name: str, front: str = "", body: str = "Do it.") -> Path:
    root.mkdir(parents=True, exist_ok=True)
    place = root / f"{name}.md"
    place.write_text(f"---\nname: {name}\ndescription: Is good for {name}.\n{front}---\n{body}\n")
    return place

"""Turns the examples of the rules into libraries that can be linted.

An example shows what matters. What every file needs anyway is filled in here, so that an example of four lines is enough.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fidelio.definitions.reading import read_text
from tests.definitions.libraries import activity, manifest, save, written

_FILE = re.compile(r"^# (\S+\.(?:yaml|yml|json|toon|md))$", re.MULTILINE)
_NEEDED: dict[str, dict[str, Any]] = {
    "steps": {"name": "Step"},
    "checkpoints": {"name": "Checkpoint", "message": "What now?"},
    "options": {"label": "Option"},
    "decisions": {"name": "Decision"},
    "branches": {"label": "Branch"},
    "loops": {"name": "Loop"},
    "modes": {"name": "Mode"},
    "activities": {"name": "Activity", "version": "1.0.0"},
}


def write_whole(example: str, directory: Path) -> Path:
    """Writes an example with complete files as the workflow `demo`; a manifest and an activity are added where it has none."""
    files = split(example)
    if not any(name.startswith("workflow.") for name in files):
        files["workflow.yaml"] = manifest("demo")
    files.setdefault("activities/01-plan.yaml", activity("plan"))
    return save(directory, {f"demo/{name}": text for name, text in files.items()})


def write_short(example: str, directory: Path) -> Path:
    """Writes an example that leaves out what every file needs."""
    files = {"workflow.yaml": "", **split(example)}
    return save(directory, {f"demo/{name}": _completed(name, text) for name, text in files.items()})


def split(example: str) -> dict[str, str]:
    """A line such as `# skills/01-x.yaml` begins a file; what stands before the first is the manifest."""
    first, *rest = _FILE.split(example)
    files = {name: text.lstrip("\n") for name, text in zip(rest[::2], rest[1::2], strict=True)}
    return {"workflow.yaml": first, **files} if first.strip() else files


def _completed(name: str, text: str) -> str:
    if not name.endswith(".yaml"):
        return text
    data = read_text(text, name).data if text.strip() else {}
    return written(filled(data, _kind(name)), "yaml")


def _kind(name: str) -> dict[str, Any]:
    folder = name.partition("/")[0]
    if folder == "skills":
        return {"version": "1.0.0", "capability": "Something useful"}
    return _NEEDED.get(folder, {"id": "demo", "version": "1.0.0", "title": "Demo"})


def filled(data: Mapping[str, Any], needed: Mapping[str, Any]) -> dict[str, Any]:
    return {**needed, **{key: _filled_list(key, value) for key, value in data.items()}}


def _filled_list(key: str, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [filled(entry, _NEEDED.get(key, {})) if isinstance(entry, dict) else entry for entry in value]

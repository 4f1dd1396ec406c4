"""Names and texts that speak of variables: `{current_task.title}` becomes what it is now.

What has no value yet stays as it is written, so that a reader sees what is missing instead of a gap.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fidelio.engine.conditions import MISSING, look_up
from fidelio.engine.knowledge import known
from fidelio.engine.state import Record

if TYPE_CHECKING:
    from fidelio.definitions.models import Workflow

_PLACE = re.compile(r"\{([A-Za-z_][\w.-]*)\}")


@dataclass(frozen=True, slots=True)
class ExpectedArtifact:
    """A file that the current activity leaves behind. `directory` is empty where the definition names no place."""

    id: str
    name: str
    directory: str
    action: Literal["create", "update"]


def filled(text: str, values: Mapping[str, Any]) -> str:
    """The text with every variable that has a value put in."""
    return _PLACE.sub(lambda found: _as_text(look_up(found[1], values), found[0]), text)


def told_here(workflow: Workflow, record: Record, text: str) -> str:
    """The text as it reads where the session stands."""
    return filled(text, known(workflow, record)) if "{" in text else text


def expected_artifacts(workflow: Workflow, record: Record) -> list[ExpectedArtifact]:
    """The files that the current activity is to leave behind, with their names as they are now."""
    activity = workflow.activity(record.activity)
    if activity is None or not activity.artifacts:
        return []
    found, values = list[ExpectedArtifact](), known(workflow, record)
    for artifact in activity.artifacts:
        place = workflow.artifact_locations.get(artifact.location or "")
        # A name with a directory of its own is meant as it is written.
        prefix = f"{activity.artifact_prefix}-" if activity.artifact_prefix and "/" not in artifact.name else ""
        name, directory = filled(prefix + artifact.name, values), filled(place.path, values) if place else ""
        found.append(ExpectedArtifact(artifact.id, name, directory, artifact.action))
    return found


def _as_text(value: Any, written: str) -> str:
    if value is MISSING or value is None:
        return written
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

"""What counts as known at a place: what was set, what the loops bind, and what stands in for values that nobody has set.

Where the server chooses or shows, a declared default counts as a value, and a mode that is switched on brings its own. Where
an agent's claim is weighed, only what somebody really set counts: that is `record.variables`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fidelio.definitions.conditions import MISSING, look_up
from fidelio.engine.state import Place, Record

if TYPE_CHECKING:
    from fidelio.definitions.models import Loop, Mode, Workflow


def with_defaults(workflow: Workflow, variables: Mapping[str, Any]) -> dict[str, Any]:
    """What is known when a declared default counts as a value."""
    known = {**workflow.defaults, **variables}
    for mode in active_modes(workflow, variables):
        known |= {name: value for name, value in mode.defaults.items() if name not in variables}
    return known


def known(workflow: Workflow, record: Record) -> dict[str, Any]:
    """Everything that the server goes by at the current place."""
    values = with_defaults(workflow, record.variables)
    values |= bindings(workflow, record)
    return values


def told(workflow: Workflow, record: Record) -> dict[str, Any]:
    """What somebody said; no default among it."""
    return {**record.variables, **bindings(workflow, record)}


def bindings(workflow: Workflow, record: Record) -> dict[str, Any]:
    """The items that the running loops are at, by the names that the loops give them, the innermost winning."""
    bound: dict[str, Any] = {}
    if record.here.running is None and not record.outer:
        return bound
    for place in (*record.outer, record.here):
        loop = running_loop(workflow, place)
        if loop is not None and loop.variable and place.running and place.running.items is not None:
            bound[loop.variable] = place.running.item
    return bound


def running_loop(workflow: Workflow, place: Place) -> Loop | None:
    running = place.running
    activity = workflow.activity(place.activity) if running is not None else None
    if running is None or activity is None:
        return None
    return next((loop for loop in activity.loops if loop.id == running.loop), None)


def active_modes(workflow: Workflow, variables: Mapping[str, Any]) -> Iterator[Mode]:
    """The modes whose variable is true; its declared default counts, what other modes bring does not."""
    for mode in workflow.modes:
        value = look_up(mode.activation_variable, variables)
        if value is MISSING:
            value = next((v.default_value for v in workflow.variables if v.name == mode.activation_variable), None)
        if value is True:
            yield mode


def left_out(workflow: Workflow, record: Record) -> frozenset[str]:
    """The activities that an answer or a mode takes out of the way."""
    modes = active_modes(workflow, record.variables)
    return frozenset([*record.skipped, *(name for mode in modes for name in mode.skip_activities)])


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

"""What counts as known at a place: what was set, what the loops bind, and what stands in for values that nobody has set.

Where the server chooses or shows, a declared default counts as a value, and a mode that is switched on brings its own. Where
an agent's claim is weighed, only what somebody really set counts: that is `record.variables`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fidelio.engine.conditions import MISSING, look_up
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

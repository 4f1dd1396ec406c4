"""Variable values in scope of a session: set values, loop items and defaults; and templates filled with them.

Where the server decides or displays, declared defaults and the defaults of active modes count as values. Where an agent's claim
is checked, only values that were set count: `record.variables`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from fidelio.definitions.conditions import MISSING, is_equal, look_up
from fidelio.engine.state import ActivityVisit, LoopAnswers, Record

if TYPE_CHECKING:
    from fidelio.definitions.models import Loop, Mode, Workflow


def add_defaults(workflow: Workflow, variables: Mapping[str, Any]) -> dict[str, Any]:
    """The variables with the defaults of the workflow and of its active modes for those that are not set."""
    values = {**workflow.defaults, **variables}
    for mode in find_active_modes(workflow, variables):
        values |= {name: value for name, value in mode.defaults.items() if name not in variables}
    return values


def collect_values(workflow: Workflow, record: Record) -> dict[str, Any]:
    """All values in scope: set variables, defaults and items of running loops."""
    values = add_defaults(workflow, record.variables)
    values |= collect_loop_values(workflow, record)
    return values


def collect_reported_values(workflow: Workflow, record: Record) -> dict[str, Any]:
    """The values that were set, without defaults, and the items of running loops."""
    return {**record.variables, **collect_loop_values(workflow, record)}


def collect_loop_values(workflow: Workflow, record: Record) -> dict[str, Any]:
    """The current items of running loops by the loops' variable names; inner loops win."""
    items: dict[str, Any] = {}
    for visit in (*record.outer, record.here):
        loop = find_running_loop(workflow, visit)
        if loop is not None and loop.variable and visit.running and visit.running.items is not None:
            items[loop.variable] = visit.running.item
    return items


def find_running_loop(workflow: Workflow, visit: ActivityVisit) -> Loop | None:
    running = visit.running
    activity = workflow.activity(visit.activity) if running is not None else None
    if running is None or activity is None:
        return None
    return next((loop for loop in activity.loops if loop.id == running.loop), None)


def find_loop_items(loop: Loop, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """The items of a `forEach` loop, if they are known."""
    found = look_up(loop.over, values) if loop.over else None
    return tuple(found) if isinstance(found, list | tuple) else None


Replaced = Mapping[str, list[Any]]


def keep_replaced(record: Record, variables: Mapping[str, Any], *, anew: bool = False) -> Record:
    """Keep the values that an agent replaces, for the open checkpoints and the visits. The first value of each counts.

    `anew`: a child session or an action of the definition sets them. For the later iterations of a loop they count.
    """
    before, changed = record.variables, dict[str, list[Any]]()
    for name, value in variables.items():
        if name not in before or not is_equal(before[name], value):
            changed[name] = [before[name]] if name in before else []
    if not changed and not anew:
        return record

    def keep(known: Replaced) -> dict[str, list[Any]]:
        return {**changed, **known}

    return _map_replaced(record, keep, partial(_drop_names, variables) if anew else keep)


def forget_replaced(record: Record, names: Mapping[str, Any]) -> Record:
    """Forget the earlier values of variables that a person or the definition sets: the new values count."""
    forget = partial(_drop_names, names)
    return _map_replaced(record, forget, forget)


def _drop_names(names: Mapping[str, Any], known: Replaced) -> dict[str, list[Any]]:
    return {name: value for name, value in known.items() if name not in names}


def restore_replaced(record: Record, replaced: Replaced) -> Record:
    """The record with the values that its variables had before agents replaced them."""
    if not replaced:
        return record
    others = {name: value for name, value in record.variables.items() if name not in replaced}
    return replace(record, variables={**others, **{name: value[0] for name, value in replaced.items() if value}})


_Change = Callable[[Replaced], dict[str, list[Any]]]


def _map_replaced(record: Record, change: _Change, in_loops: _Change) -> Record:
    return replace(
        record,
        open=replace(record.open, replaced=change(record.open.replaced)) if record.open is not None else None,
        armed=tuple(replace(entry, replaced=change(entry.replaced)) for entry in record.armed),
        here=_map_visit(record.here, change, in_loops) if record.activity else record.here,
        outer=tuple(_map_visit(visit, change, in_loops) for visit in record.outer),
    )


def _map_visit(visit: ActivityVisit, change: _Change, in_loops: _Change) -> ActivityVisit:
    answers = {name: _map_answers(known, in_loops) for name, known in visit.in_loops.items()}
    return replace(visit, replaced=change(visit.replaced), in_loops=answers)


def _map_answers(known: LoopAnswers, change: _Change) -> LoopAnswers:
    distinct = list[dict[str, list[Any]]]()
    for values in map(change, known.replaced):
        distinct += [values] if values not in distinct else []
    return replace(known, replaced=tuple(distinct))


def find_active_modes(workflow: Workflow, variables: Mapping[str, Any]) -> Iterator[Mode]:
    """The modes whose activation variable is true. Its declared default counts, the defaults of other modes do not."""
    for mode in workflow.modes:
        value = look_up(mode.activation_variable, variables)
        if value is MISSING:
            value = next((v.default_value for v in workflow.variables if v.name == mode.activation_variable), None)
        if value is True:
            yield mode


def find_skipped_activities(workflow: Workflow, record: Record) -> frozenset[str]:
    """The activities that an answer or an active mode skips."""
    modes = find_active_modes(workflow, record.variables)
    return frozenset([*record.skipped, *(name for mode in modes for name in mode.skip_activities)])


_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.-]*)\}")


class ExpectedArtifact(msgspec.Struct, frozen=True):
    """A file that the current activity produces. `directory` is empty if the definition names no location."""

    id: str
    name: str
    directory: str
    action: Literal["create", "update"]


def fill_template(text: str, values: Mapping[str, Any]) -> str:
    """Replace every `{variable}` that has a value."""
    return _PLACEHOLDER.sub(lambda found: _render_value(look_up(found[1], values), found[0]), text)


def render_text(workflow: Workflow, record: Record, text: str) -> str:
    """Fill a template with the values in scope of the session."""
    return fill_template(text, collect_values(workflow, record)) if "{" in text else text


def find_expected_artifacts(workflow: Workflow, record: Record) -> list[ExpectedArtifact]:
    """The files that the current activity should produce, with variables filled into their names."""
    activity = workflow.activity(record.activity)
    if activity is None or not activity.artifacts:
        return []
    found, values = list[ExpectedArtifact](), collect_values(workflow, record)
    for artifact in activity.artifacts:
        location = workflow.artifact_locations.get(artifact.location or "")
        # A name that contains a directory gets no prefix.
        prefix = f"{activity.artifact_prefix}-" if activity.artifact_prefix and "/" not in artifact.name else ""
        name, directory = (
            fill_template(prefix + artifact.name, values),
            fill_template(location.path, values) if location else "",
        )
        found.append(ExpectedArtifact(artifact.id, name, directory, artifact.action))
    return found


def _render_value(value: Any, placeholder: str) -> str:
    if value is MISSING or value is None:
        return placeholder
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

"""What a visit of an activity lacks when it is left: checkpoints, workflows, iterations, and steps against their condition.

Only certain omissions are found: a checkpoint is not called missing if its condition was unknown, nor a step wrong if its
condition may have held when it was due.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from fidelio.definitions.conditions import holds
from fidelio.definitions.models import Activity, Checkpoint, Step, Workflow
from fidelio.engine import phrases
from fidelio.engine.iterations import StepReport
from fidelio.engine.loops import find_missing_iterations, list_left_out
from fidelio.engine.record import Record
from fidelio.engine.scope import collect_reported_values
from fidelio.engine.variables import was_settled_before


class VisitState(msgspec.Struct):
    """What has happened in a visit. A loop over several activities returns to the same visit.

    `erased`: a manifest of the visit was redacted, so nobody knows what it reported.
    """

    checkpoints: set[str] = msgspec.field(default_factory=set)
    done: set[str] = msgspec.field(default_factory=set)
    reports: list[StepReport] = msgspec.field(default_factory=list)
    erased: bool = False


def list_loop_omissions(definition: Workflow, record: Record, state: VisitState) -> list[str]:
    """The iterations of loops that were due and not reported, and the items beyond the maximum of a loop."""
    activity = definition.activity(record.activity)
    # Its first iteration is due whatever its condition is; moves are silent about it while the condition is unknown.
    first = {(loop.id, 1) for loop in activity.loops if loop.type == "doWhile"} if activity is not None else set()
    missing = find_missing_iterations(definition, record, state.reports)
    certain = [found for found in missing if not found.doubt or (found.loop, found.iteration) in first]
    texts = [phrases.missing_iteration(found.loop, found.iteration, found.names) for found in certain]
    return [*texts, *(phrases.items_left_out(loop, count) for loop, count in list_left_out(definition, record))]


def list_unfinished(definition: Workflow, record: Record, state: VisitState, activity: Activity) -> list[str]:
    """The iterations whose steps were not reported when a move entered the next activity of the running loop.

    Later moves take the iterations below the running one for done. So this is evaluated with each of these moves.
    """
    running = record.here.running
    if running is None:
        return []
    names = [loop.id for loop in activity.loops]
    before = set(names[: names.index(running.loop)]) if running.loop in names else set()
    return [
        phrases.missing_iteration(found.loop, found.iteration, found.names if found.loop in before else found.steps)
        for found in find_missing_iterations(definition, record, state.reports)
        if not found.doubt
        and (found.loop in before or (found.loop == running.loop and found.steps and found.iteration <= running.iteration))
    ]


def find_unmet_steps(definition: Workflow, record: Record, state: VisitState, activity: Activity) -> Iterator[Step]:
    """Yield the steps that were reported although their condition certainly did not hold when they were due."""
    # A step of a loop may have been due in an earlier iteration.
    repeated = {step.id for loop in activity.loops for step in loop.steps}
    for number, step in enumerate(activity.steps):
        condition = step.condition if step.id in state.done - repeated else None
        if condition is None or not was_settled_before(number, condition, record, activity):
            continue
        if holds(condition, collect_reported_values(definition, record), reported_only=True) is False:
            yield step


def find_unopened_checkpoints(
    definition: Workflow, record: Record, state: VisitState, activity: Activity
) -> Iterator[Checkpoint]:
    """Yield the required checkpoints that were certainly due in the visit and not yielded."""
    due = _list_due_steps(state, activity)
    for checkpoint in activity.checkpoints:
        is_open = checkpoint.id in state.checkpoints
        if checkpoint.required and not is_open and _is_certainly_due(definition, record, checkpoint, activity, due):
            yield checkpoint


def _list_due_steps(state: VisitState, activity: Activity) -> list[Step]:
    own = activity.steps
    return [
        step for step in activity.all_steps if step.id in state.done or (step in own and step.required and not step.condition)
    ]


def _is_certainly_due(
    definition: Workflow, record: Record, checkpoint: Checkpoint, activity: Activity, due: Sequence[Step]
) -> bool:
    """Whether the checkpoint was certainly due: for a step that was due, or for the activity as a whole."""
    attached = [step for step in activity.all_steps if step.checkpoint == checkpoint.id]
    if attached and not any(step.checkpoint == checkpoint.id for step in due):
        return False
    return holds(checkpoint.condition, collect_reported_values(definition, record), reported_only=True) is True

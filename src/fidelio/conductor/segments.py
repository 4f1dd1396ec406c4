"""Segments: sections of an activity that are assigned to workers in order, and the moves that come after them.

An activity that starts workflows or goes through other activities is not one run of one worker: the results of a child workflow
are needed by the steps after the one that starts it, and every iteration of a loop has its own item. So a segment ends with a
step that starts a workflow, or with the iteration. Which steps remain and what comes next is decided by the engine's rules.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from fidelio.definitions.conditions import MISSING, list_variables, look_up
from fidelio.engine.person_checkpoints import find_missing_answers
from fidelio.engine.progress import ActivityTask, list_free_checkpoints, list_tasks
from fidelio.engine.record import STEP_COMPLETED, EventDraft, Record, fold_drafts
from fidelio.engine.scope import collect_values, find_running_loop
from fidelio.engine.transitions import list_open_transitions
from fidelio.engine.variables import find_unset_variables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelio.definitions.models import Activity, Loop, Step, Trigger, Workflow


class ActivitySegment(msgspec.Struct, frozen=True):
    """A section of an activity for a single worker. `key` identifies it within its visit and never changes; the first has none.

    `checkpoints` are those of the activity that come before any step. A segment may have no steps: then a worker only has to
    yield these checkpoints, or to report the `variables` that decide how the workflow continues.
    """

    key: str = ""
    steps: tuple[Step, ...] = ()
    variables: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()
    is_whole: bool = False

    @property
    def step_ids(self) -> tuple[str, ...]:
        return tuple(step.id for step in self.steps)


# For an activity that one worker does from start to end.
WHOLE_ACTIVITY = ActivitySegment(is_whole=True)


class ChosenTransition(msgspec.Struct, frozen=True):
    """The transition to follow, and its condition, which is true."""

    to: str
    claim: str | None


class UndecidedTransition(msgspec.Struct, frozen=True):
    """The conditions of all transitions need variables that are not set."""

    variables: tuple[str, ...]


class NoTransition(msgspec.Struct, frozen=True):
    """The definition has no transition from here."""


class UndecidableLoop(msgspec.Struct, frozen=True):
    """A loop of which no rule decides whether it continues; `over` is set if it names something that is not a list."""

    loop: str
    over: str


def choose_transition(workflow: Workflow, record: Record) -> ChosenTransition | UndecidedTransition | NoTransition:
    """The first transition, in the order of the definition, whose condition is true."""
    candidates = list_open_transitions(workflow, record)
    certain = next((candidate for candidate in candidates if candidate.holds is True), None)
    if certain is not None:
        return ChosenTransition(certain.to, certain.condition or None)
    conditions = [candidate.when for candidate in candidates if candidate.when is not None]
    if conditions:
        unset = find_unset_variables(conditions, workflow, record)
        every = dict.fromkeys(name for condition in conditions for name in list_variables(condition))
        return UndecidedTransition(tuple(unset or every))
    return ChosenTransition(candidates[0].to, candidates[0].condition or None) if candidates else NoTransition()


def is_segmented(workflow: Workflow, record: Record) -> bool:
    """Whether the current activity starts workflows, or goes through other activities."""
    activity = workflow.activity(record.activity)
    return activity is not None and (bool(list_triggers(activity)) or any(loop.activities for loop in activity.loops))


def list_segments(workflow: Workflow, record: Record) -> list[ActivitySegment]:
    """What workers have to do before the activity, or the current iteration, can continue."""
    steps, checkpoints = list_current_steps(workflow, record), _list_unasked_checkpoints(workflow, record)
    groups = groupby(list_remaining_steps(workflow, record), lambda task: _count_triggering(steps[: task.at - 1]))
    segments = [
        ActivitySegment(_build_key(workflow, record, number), tuple(task.step for task in group if task.step))
        for number, group in groups
    ]
    return [replace(segment, checkpoints=checkpoints) for segment in segments[:1]] + segments[1:]


def list_remaining_steps(workflow: Workflow, record: Record) -> list[ActivityTask]:
    """The steps that are still to be done in the iteration or activity, as far as conditions can be decided now."""
    remaining: list[ActivityTask] = []
    while steps := [task for task in list_tasks(workflow, record) if task.kind == "step"]:
        remaining += steps
        last = steps[-1]
        body = {"activity": record.activity, "step": last.id, "at": last.at, "loop": last.loop}
        record = fold_drafts(record, [EventDraft(STEP_COMPLETED, body)], 0)
    return remaining


def list_current_steps(workflow: Workflow, record: Record) -> tuple[Step, ...]:
    """All steps of the running loop; those of the activity if no loop is running."""
    activity, loop = workflow.activity(record.activity), find_running_loop(workflow, record.here)
    if loop is not None:
        return loop.steps
    return activity.steps if activity is not None else ()


def find_decision_segment(workflow: Workflow, record: Record) -> ActivitySegment | None:
    """A segment without steps for what must be known before the next move, when all steps are done; None if all is known.

    It has the key of the last segment, whose worker knows best. If the last step has started a workflow, the key is new, and
    the worker is given the results of that workflow.
    """
    checkpoints, variables = _list_unasked_checkpoints(workflow, record), _list_undecided_variables(workflow, record)
    checkpoints = tuple(dict.fromkeys([*checkpoints, *_list_passed_checkpoints(workflow, record)]))
    if not checkpoints and not variables:
        return None
    number = _count_triggering(list_current_steps(workflow, record)) + _has_own_triggers(workflow, record)
    return ActivitySegment(_build_key(workflow, record, number), variables=variables, checkpoints=checkpoints)


def find_next_task(workflow: Workflow, record: Record) -> ActivityTask | UndecidableLoop | None:
    """The next iteration or activity of a loop, when no step remains and nothing is undecided."""
    for task in [] if record.forced else list_tasks(workflow, record):
        if task.kind == "step":
            continue
        loop = find_loop(workflow, record, task.id)
        if task.must or _runs_without_condition(loop):
            return task
        return UndecidableLoop(task.id, (loop.over if loop is not None and loop.type == "forEach" else None) or "")
    return None


def find_loop(workflow: Workflow, record: Record, name: str) -> Loop | None:
    """The loop of the current activity that has this name."""
    activity = workflow.activity(record.activity)
    return next((loop for loop in activity.loops if loop.id == name), None) if activity is not None else None


def list_triggers(activity: Activity) -> tuple[Trigger, ...]:
    """All triggers of the activity, of its steps and of the steps of its loops."""
    steps = (*activity.steps, *(step for loop in activity.loops for step in loop.steps))
    return (*activity.triggers, *(trigger for step in steps for trigger in step.triggers))


def _list_unasked_checkpoints(workflow: Workflow, record: Record) -> tuple[str, ...]:
    if record.forced:
        return ()
    return tuple(checkpoint.id for checkpoint in list_free_checkpoints(workflow, record) if checkpoint.required)


def _list_passed_checkpoints(workflow: Workflow, record: Record) -> list[str]:
    """The checkpoints of the activity or of this iteration that a person must answer, although their steps were left out."""
    number = record.here.running.iteration if record.here.running is not None else 0
    missing = find_missing_answers(workflow, record)
    return [found.checkpoint for found in missing if not found.iterations or number in found.iterations]


def _count_triggering(steps: Sequence[Step]) -> int:
    """How many of the steps start workflows."""
    return sum(bool(step.triggers) for step in steps)


def _has_own_triggers(workflow: Workflow, record: Record) -> bool:
    """Whether the activity itself starts workflows after its steps."""
    activity = workflow.activity(record.activity)
    return activity is not None and bool(activity.triggers) and record.here.running is None


def _runs_without_condition(loop: Loop | None) -> bool:
    """Whether the loop has no condition but an end: a break condition, or a maximum that the definition states."""
    if loop is None or loop.type == "forEach" or loop.condition is not None:
        return False
    return loop.break_condition is not None or "max_iterations" in loop.model_fields_set


def _list_undecided_variables(workflow: Workflow, record: Record) -> tuple[str, ...]:
    """The unset variables that decide the next move: of the next loop, else of the transitions."""
    for task in [] if record.forced else list_tasks(workflow, record):
        if task.kind == "step" and not task.must:
            continue
        return () if task.must else _list_loop_variables(workflow, record, find_loop(workflow, record, task.id))
    transition = choose_transition(workflow, record)
    return transition.variables if isinstance(transition, UndecidedTransition) else ()


def _list_loop_variables(workflow: Workflow, record: Record, loop: Loop | None) -> tuple[str, ...]:
    """The unset variables that decide whether the loop has another iteration."""
    values = collect_values(workflow, record)
    if loop is None or loop.type == "forEach":
        # A value that is set but not a list cannot be corrected by asking the worker again.
        over = loop.over if loop is not None else None
        return (over,) if over and look_up(over, values) in (MISSING, None) else ()
    # The break condition is evaluated after an iteration, not before the first.
    break_condition = loop.break_condition if find_running_loop(workflow, record.here) is loop else None
    condition = loop.condition or break_condition
    names = dict.fromkeys(list_variables(condition)) if condition is not None else ()
    return tuple(name for name in names if look_up(name, values) in (MISSING, None))


def _build_key(workflow: Workflow, record: Record, number: int) -> str:
    """`LOOP-ITERATION-NUMBER`. It is part of the names of workers, which are stored: its form must not change."""
    activity, running = workflow.activity(record.activity), record.here.running
    if running is None or activity is None:
        return f"0-0-{number}" if number else ""
    loop = [loop.id for loop in activity.loops].index(running.loop) + 1 if find_running_loop(workflow, record.here) else 0
    return f"{loop}-{running.iteration}-{number}"

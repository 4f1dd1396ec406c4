"""The stretches in which an activity is given to workers, where it starts workflows or goes through other activities.

Such an activity is no single turn of a worker: what a workflow brings back is for the steps behind the one that starts it, and
every pass of a loop has an item of its own. So each stretch ends with a step that starts something, or with the pass. What is
ahead and what comes next is what the rules say of any session that is led step by step.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from fidelio.conductor.choices import Undecided, choose
from fidelio.definitions.conditions import MISSING, look_up
from fidelio.engine.progress import ActivityTask, list_free_checkpoints, list_tasks
from fidelio.engine.record import STEP_COMPLETED, EventDraft, Record, fold_drafts
from fidelio.engine.scope import collect_values, find_running_loop
from fidelio.engine.variables import find_variables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fidelio.definitions.models import Activity, Loop, Step, Trigger, Workflow


class Stretch(msgspec.Struct, frozen=True):
    """What one worker does in one go. `key` names it in its visit, for good; the first has none.

    `asks` are the questions of the activity that come before any step. Where there is no step to do, somebody still has to ask
    them, or to say what decides (`wants`).
    """

    key: str = ""
    steps: tuple[Step, ...] = ()
    wants: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    whole: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(step.id for step in self.steps)


# An activity that one worker does from its beginning to its end.
WHOLE = Stretch(whole=True)


def is_led(workflow: Workflow, record: Record) -> bool:
    """Whether the current activity starts workflows, or goes through other activities."""
    activity = workflow.activity(record.activity)
    return activity is not None and (bool(triggers_of(activity)) or any(loop.activities for loop in activity.loops))


def stretches(workflow: Workflow, record: Record) -> list[Stretch]:
    """What workers are to do before the activity, or the pass that is running, goes on."""
    steps, asks = steps_here(workflow, record), _to_ask(workflow, record)
    groups = groupby(steps_ahead(workflow, record), lambda task: _starting(steps[: task.at - 1]))
    found = [
        Stretch(_key(workflow, record, number), tuple(task.step for task in group if task.step)) for number, group in groups
    ]
    return [replace(one, asks=asks) for one in found[:1]] + found[1:]


def steps_ahead(workflow: Workflow, record: Record) -> list[ActivityTask]:
    """The steps that are still to come here, as far as is known now."""
    found: list[ActivityTask] = []
    while steps := [task for task in list_tasks(workflow, record) if task.kind == "step"]:
        found += steps
        last = steps[-1]
        body = {"activity": record.activity, "step": last.id, "at": last.at, "loop": last.loop}
        record = fold_drafts(record, [EventDraft(STEP_COMPLETED, body)], 0)
    return found


def steps_here(workflow: Workflow, record: Record) -> tuple[Step, ...]:
    """The steps of the pass that is running; those of the activity, when no loop has begun."""
    activity, loop = workflow.activity(record.activity), find_running_loop(workflow, record.here)
    if loop is not None:
        return loop.steps
    return activity.steps if activity is not None else ()


def in_doubt(workflow: Workflow, record: Record) -> Stretch | None:
    """What has to be found out before it is clear what comes next, when all steps are done; None when it is clear.

    Whoever did the last step knows best, unless that has started a workflow: then it is for somebody who is told how it ended.
    """
    asks, wants = _to_ask(workflow, record), _undecided(workflow, record)
    started = _starting(steps_here(workflow, record)) + _starts_own(workflow, record)
    return Stretch(_key(workflow, record, started), wants=wants, asks=asks) if asks or wants else None


def _to_ask(workflow: Workflow, record: Record) -> tuple[str, ...]:
    return (
        () if record.forced else tuple(question.id for question in list_free_checkpoints(workflow, record) if question.required)
    )


def _starting(steps: Sequence[Step]) -> int:
    """How many of the steps start something."""
    return sum(bool(step.triggers) for step in steps)


def _starts_own(workflow: Workflow, record: Record) -> bool:
    """Whether the activity itself starts workflows behind its steps."""
    activity = workflow.activity(record.activity)
    return activity is not None and bool(activity.triggers) and record.here.running is None


class Unclear(msgspec.Struct, frozen=True):
    """A loop of which nobody can say whether it goes on; `over` is what it goes over, where that is no list."""

    loop: str
    over: str


def comes_next(workflow: Workflow, record: Record) -> ActivityTask | Unclear | None:
    """The pass or the activity of a loop that comes next, when no step does and nothing is in doubt."""
    for task in [] if record.forced else list_tasks(workflow, record):
        if task.kind == "step":
            continue
        loop = loop_of(workflow, record, task.id)
        if task.must or _goes_to_its_end(loop):
            return task
        return Unclear(task.id, (loop.over if loop is not None and loop.type == "forEach" else None) or "")
    return None


def _goes_to_its_end(loop: Loop | None) -> bool:
    """A loop without a condition goes on until it is broken off, or to its maximum, where it says which."""
    if loop is None or loop.type == "forEach" or loop.condition is not None:
        return False
    return loop.break_condition is not None or "max_iterations" in loop.model_fields_set


def _undecided(workflow: Workflow, record: Record) -> tuple[str, ...]:
    for task in [] if record.forced else list_tasks(workflow, record):
        if task.kind == "step" and not task.must:
            continue
        return () if task.must else _deciding(workflow, record, loop_of(workflow, record, task.id))
    chosen = choose(workflow, record)
    return chosen.variables if isinstance(chosen, Undecided) else ()


def _deciding(workflow: Workflow, record: Record, loop: Loop | None) -> tuple[str, ...]:
    """What decides whether a loop goes into another pass, as far as nobody has said it."""
    values = collect_values(workflow, record)
    if loop is None or loop.type == "forEach":
        # Something else than a list is nothing that a worker has left unsaid.
        over = loop.over if loop is not None else None
        return (over,) if over and look_up(over, values) in (MISSING, None) else ()
    # Whether a loop is broken off is asked after a pass, and not before the first.
    broken_off = loop.break_condition if find_running_loop(workflow, record.here) is loop else None
    condition = loop.condition or broken_off
    names = dict.fromkeys(find_variables(condition)) if condition is not None else ()
    return tuple(name for name in names if look_up(name, values) in (MISSING, None))


def loop_of(workflow: Workflow, record: Record, name: str) -> Loop | None:
    """The loop of the current activity that has this name."""
    activity = workflow.activity(record.activity)
    return next((one for one in activity.loops if one.id == name), None) if activity is not None else None


def triggers_of(activity: Activity) -> tuple[Trigger, ...]:
    """Everything that the activity starts, itself and with its steps."""
    steps = (*activity.steps, *(step for loop in activity.loops for step in loop.steps))
    return (*activity.triggers, *(trigger for step in steps for trigger in step.triggers))


def _key(workflow: Workflow, record: Record, part: int) -> str:
    activity, running = workflow.activity(record.activity), record.here.running
    if running is None or activity is None:
        return f"0-0-{part}" if part else ""
    number = [loop.id for loop in activity.loops].index(running.loop) + 1 if find_running_loop(workflow, record.here) else 0
    return f"{number}-{running.iteration}-{part}"

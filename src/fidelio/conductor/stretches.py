"""The stretches in which an activity is given to workers, where it starts workflows or goes through other activities.

Such an activity is no single turn of a worker: what a workflow brings back is for the steps behind the one that starts it, and
every pass of a loop has an item of its own. So each stretch ends with a step that starts something, or with the pass. What is
ahead and what comes next is what the rules say of any session that is led step by step.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from fidelio.conductor.choosing import Undecided, choose
from fidelio.engine.conditions import MISSING, look_up
from fidelio.engine.knowledge import known, running_loop
from fidelio.engine.progress import Task, questions, tasks
from fidelio.engine.record import STEP_COMPLETED, Draft, Record, foreseen
from fidelio.engine.variables import variables_in

if TYPE_CHECKING:
    from fidelio.definitions.models import Activity, Loop, Step, Workflow


class Stretch(msgspec.Struct, frozen=True):
    """What one worker does in one go. `key` names it in its visit, for good; the first has none.

    Where there is no step to do, somebody still has to say what decides (`wants`), or to ask a question (`asks`).
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
    return activity is not None and (_starts_any(activity) or any(loop.activities for loop in activity.loops))


def stretches(workflow: Workflow, record: Record) -> list[Stretch]:
    """What workers are to do before the activity, or the pass that is running, goes on."""
    steps = steps_here(workflow, record)
    groups = groupby(steps_ahead(workflow, record), lambda task: sum(bool(step.triggers) for step in steps[: task.at - 1]))
    return [
        Stretch(_key(workflow, record, number), tuple(task.step for task in group if task.step)) for number, group in groups
    ]


def steps_ahead(workflow: Workflow, record: Record) -> list[Task]:
    """The steps that are still to come here, as far as is known now."""
    found: list[Task] = []
    while steps := [task for task in tasks(workflow, record) if task.kind == "step"]:
        found += steps
        last = steps[-1]
        body = {"activity": record.activity, "step": last.id, "at": last.at, "loop": last.loop}
        record = foreseen(record, [Draft(STEP_COMPLETED, body)], 0)
    return found


def steps_here(workflow: Workflow, record: Record) -> tuple[Step, ...]:
    """The steps of the pass that is running; those of the activity, when no loop has begun."""
    activity, loop = workflow.activity(record.activity), running_loop(workflow, record.here)
    if loop is not None:
        return loop.steps
    return activity.steps if activity is not None else ()


def in_doubt(workflow: Workflow, record: Record) -> Stretch | None:
    """What has to be found out before it is clear what comes next, when all steps are done; None when it is clear."""
    asks = tuple(question.id for question in questions(workflow, record) if question.required and not record.forced)
    wants = _undecided(workflow, record)
    return Stretch(_key(workflow, record, "end"), wants=wants, asks=asks) if asks or wants else None


class Unclear(msgspec.Struct, frozen=True):
    """A loop of which nobody can say whether it goes on."""

    loop: str


def comes_next(workflow: Workflow, record: Record) -> Task | Unclear | None:
    """The pass or the activity of a loop that comes next, when no step does and nothing is in doubt."""
    for task in [] if record.forced else tasks(workflow, record):
        if task.kind == "step":
            continue
        if task.must or _goes_to_its_end(_loop(workflow, record, task.id)):
            return task
        return Unclear(task.id)
    return None


def _goes_to_its_end(loop: Loop | None) -> bool:
    """A loop without a condition goes on until it is broken off, or to its maximum, where it says which."""
    if loop is None or loop.type == "forEach" or loop.condition is not None:
        return False
    return loop.break_condition is not None or "max_iterations" in loop.model_fields_set


def _undecided(workflow: Workflow, record: Record) -> tuple[str, ...]:
    for task in [] if record.forced else tasks(workflow, record):
        if task.kind == "step" and not task.must:
            continue
        return () if task.must else _deciding(workflow, record, _loop(workflow, record, task.id))
    chosen = choose(workflow, record)
    return chosen.variables if isinstance(chosen, Undecided) else ()


def _deciding(workflow: Workflow, record: Record, loop: Loop | None) -> tuple[str, ...]:
    """What decides whether a loop goes into another pass, as far as nobody has said it."""
    if loop is None or loop.type == "forEach":
        return (loop.over,) if loop is not None and loop.over else ()
    # Whether a loop is broken off is asked after a pass, and not before the first.
    broken_off = loop.break_condition if running_loop(workflow, record.here) is loop else None
    condition, values = loop.condition or broken_off, known(workflow, record)
    names = dict.fromkeys(variables_in(condition)) if condition is not None else ()
    return tuple(name for name in names if look_up(name, values) in (MISSING, None))


def _loop(workflow: Workflow, record: Record, name: str) -> Loop | None:
    activity = workflow.activity(record.activity)
    return next((one for one in activity.loops if one.id == name), None) if activity is not None else None


def _starts_any(activity: Activity) -> bool:
    steps = (*activity.steps, *(step for loop in activity.loops for step in loop.steps))
    return bool(activity.triggers) or any(step.triggers for step in steps)


def _key(workflow: Workflow, record: Record, part: int | str) -> str:
    activity, running = workflow.activity(record.activity), record.here.running
    if running is None or activity is None:
        return f"0-0-{part}" if part else ""
    number = [loop.id for loop in activity.loops].index(running.loop) + 1 if running_loop(workflow, record.here) else 0
    return f"{number}-{running.iteration}-{part}"

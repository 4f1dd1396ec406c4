"""Progress inside an activity: the tasks that come next, and the checkpoints before them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fidelio.definitions.conditions import holds
from fidelio.engine.checkpoints import evaluate_condition, find_checkpoint, find_instance, find_unattached_checkpoints
from fidelio.engine.due_iterations import has_first_iteration, has_next_iteration
from fidelio.engine.scope import collect_values
from fidelio.engine.state import ActivityVisit, Record
from fidelio.engine.transitions import find_next_loop_activity

if TYPE_CHECKING:
    from fidelio.definitions.models import Activity, Checkpoint, Loop, Step, Workflow


class ActivityTask(msgspec.Struct, frozen=True):
    """A task that can come next. `at` is the index after it in its list of steps, `loops_over` the loops that are finished."""

    kind: Literal["step", "loop", "activity"]
    id: str
    must: bool
    at: int = 0
    loop: str = ""
    loops_over: tuple[str, ...] = ()
    step: Step | None = None


def list_tasks(workflow: Workflow, record: Record) -> list[ActivityTask]:
    """The tasks that can come next in the activity; only the last may be mandatory (`must`)."""
    activity = workflow.activity(record.activity)
    found: list[ActivityTask] = []
    for task in _list_tasks_in_order(workflow, record, activity) if activity is not None else ():
        found.append(task)
        if task.must:
            break
    return found


def finishes_steps(workflow: Workflow, before: Record, after: Record) -> bool:
    """Whether a move completed the last step of its activity, or entered an activity without steps to do."""
    entered = after.visit > before.visits
    if not entered and after.visit != before.visit:
        return False
    return not _has_steps_left(workflow, after) and (entered or _has_steps_left(workflow, before))


def list_free_checkpoints(workflow: Workflow, record: Record) -> list[Checkpoint]:
    """The unanswered checkpoints of the current activity that no step names, in order."""
    activity = workflow.activity(record.activity)
    return (
        [checkpoint for checkpoint in find_unattached_checkpoints(activity) if is_pending(workflow, record, checkpoint)]
        if activity is not None
        else []
    )


def find_checkpoint_before(workflow: Workflow, record: Record, task: ActivityTask) -> Checkpoint | None:
    """The checkpoint that has to be answered before the task."""
    activity = workflow.activity(record.activity)
    if activity is None or task.step is None or not task.step.checkpoint:
        return None
    checkpoint = find_checkpoint(activity, task.step.checkpoint)
    return checkpoint if checkpoint is not None and is_pending(workflow, record, checkpoint) else None


def is_pending(workflow: Workflow, record: Record, checkpoint: Checkpoint) -> bool:
    """Whether it was not answered in this visit and iteration and its condition does not evaluate to false."""
    instance = find_instance(workflow, record, checkpoint.id)
    answer = record.find_answer(checkpoint.id)
    if answer is not None and answer.instance == instance:
        return False
    return evaluate_condition(workflow, record, checkpoint, instance) is not False


def _has_steps_left(workflow: Workflow, record: Record) -> bool:
    activity = workflow.activity(record.activity)
    if activity is None:
        return False
    return any(task.must for task in _list_step_tasks(activity.steps, record.here.at, collect_values(workflow, record)))


def _list_tasks_in_order(workflow: Workflow, record: Record, activity: Activity) -> Iterator[ActivityTask]:
    values, here = collect_values(workflow, record), record.here
    yield from _list_step_tasks(activity.steps, here.at, values)
    finished = list(here.loops_over)
    for loop in activity.loops:
        if loop.id in finished:
            continue
        over = tuple(finished)
        if here.running is not None and here.running.loop == loop.id:
            yield from _list_iteration_tasks(workflow, record, here, loop, values)
            again = has_next_iteration(loop, here.running, values)
        else:
            again = has_first_iteration(loop, record, values)
        if again is not False:
            yield ActivityTask("loop", loop.id, must=again is True, at=len(activity.steps), loops_over=over)
        finished.append(loop.id)


def _list_iteration_tasks(
    workflow: Workflow, record: Record, here: ActivityVisit, loop: Loop, values: Mapping[str, Any]
) -> Iterator[ActivityTask]:
    running = here.running
    if running is None:
        return
    yield from _list_step_tasks(loop.steps, running.at, values, loop.id)
    following = find_next_loop_activity(workflow, record, here)
    if following is not None:
        yield ActivityTask("activity", following[0], must=True, at=len(loop.steps), loop=loop.id)


def _list_step_tasks(steps: tuple[Step, ...], at: int, values: Mapping[str, Any], loop: str = "") -> Iterator[ActivityTask]:
    for number, step in enumerate(steps[at:], start=at + 1):
        truth = holds(step.condition, values)
        if truth is not False:
            yield ActivityTask("step", step.id, must=step.required and truth is True, at=number, loop=loop, step=step)

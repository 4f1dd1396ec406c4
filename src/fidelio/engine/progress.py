"""Whether a loop goes into another pass: yes, no, or as the agent finds.

A pass that has begun is finished; the conditions are looked at between passes, the break condition after each. What is not
known yet leaves the choice to the agent, who sees what the loop is about. No loop runs longer than its maximum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fidelio.definitions.conditions import Truth, holds, look_up
from fidelio.engine.checkpoints import asking, condition_holds, find_checkpoint, unattached
from fidelio.engine.scope import known
from fidelio.engine.state import Pass, Place, Record
from fidelio.engine.transitions import next_in_pass

if TYPE_CHECKING:
    from fidelio.definitions.models import Activity, Checkpoint, Loop, Step, Workflow


def begins(loop: Loop, values: Mapping[str, Any]) -> Truth:
    """Whether there is a first pass."""
    if loop.type == "doWhile":
        return True
    if loop.type == "while":
        return _while(loop, values)
    items = collection(loop, values)
    return None if items is None else bool(items)


def goes_on(loop: Loop, running: Pass, values: Mapping[str, Any]) -> Truth:
    """Whether another pass follows the one that is running."""
    if running.iteration >= loop.max_iterations:
        return False
    if loop.break_condition is not None and holds(loop.break_condition, values):
        return False
    if loop.type == "forEach":
        return running.iteration < len(running.items or ())
    return _while(loop, values)


def collection(loop: Loop, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """What a `forEach` goes over, when it is known."""
    found = look_up(loop.over, values) if loop.over else None
    return tuple(found) if isinstance(found, list | tuple) else None


def passes(loop: Loop, running: Pass) -> int | None:
    """How many passes there will be, when that is known."""
    return min(len(running.items), loop.max_iterations) if running.items is not None else None


def _while(loop: Loop, values: Mapping[str, Any]) -> Truth:
    return None if loop.condition is None else holds(loop.condition, values)


class Task(msgspec.Struct, frozen=True):
    """Something that can come next. `at` is where its list of steps stands afterwards, `loops_over` which loops are behind."""

    kind: Literal["step", "loop", "activity"]
    id: str
    must: bool
    at: int = 0
    loop: str = ""
    loops_over: tuple[str, ...] = ()
    step: Step | None = None


def tasks(workflow: Workflow, record: Record) -> list[Task]:
    """What can come next before the activity is left; only the last one may be one that must come."""
    activity = workflow.activity(record.activity)
    found: list[Task] = []
    for task in _in_order(workflow, record, activity) if activity is not None else ():
        found.append(task)
        if task.must:
            break
    return found


def finishes_steps(workflow: Workflow, before: Record, after: Record) -> bool:
    """Whether a move has finished the steps of the activity it leads to, or has entered one without any to do."""
    entered = after.visit > before.visits
    if not entered and after.visit != before.visit:
        return False
    return not _steps_left(workflow, after) and (entered or _steps_left(workflow, before))


def questions(workflow: Workflow, record: Record) -> list[Checkpoint]:
    """The checkpoints without a step that are still to be answered here, in order."""
    activity = workflow.activity(record.activity)
    return [one for one in unattached(activity) if is_pending(workflow, record, one)] if activity is not None else []


def question_before(workflow: Workflow, record: Record, task: Task) -> Checkpoint | None:
    """The checkpoint that is to be answered before the task."""
    activity = workflow.activity(record.activity)
    if activity is None or task.step is None or not task.step.checkpoint:
        return None
    checkpoint = find_checkpoint(activity, task.step.checkpoint)
    return checkpoint if checkpoint is not None and is_pending(workflow, record, checkpoint) else None


def is_pending(workflow: Workflow, record: Record, checkpoint: Checkpoint) -> bool:
    """Not answered in this visit and pass, and not known to be out of place. What is not known is asked, or dismissed."""
    asked = asking(workflow, record, checkpoint.id)
    answer = record.answer_to(checkpoint.id)
    if answer is not None and answer.asked == asked:
        return False
    return condition_holds(workflow, record, checkpoint) is not False


def _steps_left(workflow: Workflow, record: Record) -> bool:
    activity = workflow.activity(record.activity)
    if activity is None:
        return False
    return any(task.must for task in _steps(activity.steps, record.here.at, known(workflow, record)))


def _in_order(workflow: Workflow, record: Record, activity: Activity) -> Iterator[Task]:
    values, here = known(workflow, record), record.here
    yield from _steps(activity.steps, here.at, values)
    behind = list(here.loops_over)
    for loop in activity.loops:
        if loop.id in behind:
            continue
        over = tuple(behind)
        if here.running is not None and here.running.loop == loop.id:
            yield from _pass(workflow, record, here, loop, values)
            again = goes_on(loop, here.running, values)
        else:
            again = begins(loop, values)
        if again is not False:
            yield Task("loop", loop.id, must=again is True, at=len(activity.steps), loops_over=over)
        behind.append(loop.id)


def _pass(workflow: Workflow, record: Record, here: Place, loop: Loop, values: Mapping[str, Any]) -> Iterator[Task]:
    running = here.running
    if running is None:
        return
    yield from _steps(loop.steps, running.at, values, loop.id)
    following = next_in_pass(workflow, record, here)
    if following is not None:
        yield Task("activity", following[0], must=True, at=len(loop.steps), loop=loop.id)


def _steps(steps: tuple[Step, ...], at: int, values: Mapping[str, Any], loop: str = "") -> Iterator[Task]:
    for number, step in enumerate(steps[at:], start=at + 1):
        truth = holds(step.condition, values)
        if truth is not False:
            yield Task("step", step.id, must=step.required and truth is True, at=number, loop=loop, step=step)

"""Checkpoints of an activity: when they are due, who may answer them, and which instance is open.

A checkpoint that a step names is due before that step. If no step names it, it is due as soon as the activity is entered. In
a loop it is asked in every iteration. If the agent does not report iterations, a checkpoint of a loop that is yielded again
after further work counts for the next iteration: an extra question is better than an iteration without its question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fidelio.definitions.conditions import Truth, holds
from fidelio.engine.due_iterations import find_due_items, has_first_iteration, has_next_iteration
from fidelio.engine.scope import collect_values, find_running_loop, restore_replaced
from fidelio.engine.state import CheckpointInstance, LoopIteration, OpenCheckpoint, Record
from fidelio.engine.transitions import find_next_loop_activity

if TYPE_CHECKING:
    from fidelio.definitions.models import Activity, Checkpoint, Effect, Loop, Step, Workflow


# `answered_by` of a checkpoint or workflow: a signature with a registered key, and everything that only a person may answer.
PROVEN = "proven"
_PERSONAL = frozenset({"person", PROVEN})


def find_checkpoint(activity: Activity, checkpoint_id: str) -> Checkpoint | None:
    return next((checkpoint for checkpoint in activity.checkpoints if checkpoint.id == checkpoint_id), None)


def find_current_checkpoint(workflow: Workflow, record: Record, checkpoint_id: str) -> Checkpoint | None:
    activity = workflow.activity(record.activity)
    return find_checkpoint(activity, checkpoint_id) if activity is not None else None


def demands_person(workflow: Workflow, checkpoint: Checkpoint, *, server: bool = False) -> bool:
    """Whether only a person may answer it. `server`: the server demands people for all answers."""
    return server or not _PERSONAL.isdisjoint((checkpoint.answered_by, workflow.answered_by))


def demands_proof(workflow: Workflow, checkpoint: Checkpoint) -> bool:
    """Whether the answer has to be signed with a registered key of a person."""
    return PROVEN in (checkpoint.answered_by, workflow.answered_by)


def describe_demand(entry: Mapping[str, Any]) -> str:
    """Who had to answer a request, by its event: `proven`, `person` or `any`."""
    return PROVEN if entry.get("proven") else "person" if entry.get("person") else "any"


def needs_person(workflow: Workflow, record: Record, checkpoint: Checkpoint, *, server: bool = False) -> bool:
    """Like `demands_person`, but the session may demand people, and an open checkpoint keeps the demand of the time when it
    became open.
    """
    waiting = record.find_pending(checkpoint.id)
    demanded = record.person or (waiting is not None and waiting.person)
    return demanded or demands_person(workflow, checkpoint, server=server)


def find_unattached_checkpoints(activity: Activity) -> list[Checkpoint]:
    """The checkpoints that no step names, in order."""
    attached = {step.checkpoint for step in activity.all_steps}
    return [checkpoint for checkpoint in activity.checkpoints if checkpoint.id not in attached]


def find_naming_steps(activity: Activity, checkpoint_id: str) -> list[Step]:
    """The steps that name the checkpoint, in loops too."""
    return [step for step in activity.all_steps if step.checkpoint == checkpoint_id]


def find_checkpoint_loop(activity: Activity, checkpoint_id: str) -> Loop | None:
    """The loop whose steps name the checkpoint; None if a step outside loops names it too, or none does."""
    if not activity.loops or any(step.checkpoint == checkpoint_id for step in activity.steps):
        return None
    return next((loop for loop in activity.loops if any(step.checkpoint == checkpoint_id for step in loop.steps)), None)


def count_known_iterations(workflow: Workflow, record: Record, checkpoint_id: str) -> int:
    """The number of iterations of the checkpoint's loop over a list that is known; 0 if it is in no such loop."""
    activity = workflow.activity(record.activity)
    loop = find_checkpoint_loop(activity, checkpoint_id) if activity is not None else None
    items = _find_items(workflow, record, loop) if loop is not None else None
    return min(len(items), loop.max_iterations) if loop is not None and items is not None else 0


def collect_instance_values(workflow: Workflow, record: Record, instance: CheckpointInstance) -> dict[str, Any]:
    """The values in scope of an instance: in a loop over a known list also the item of its iteration."""
    values, activity = collect_values(workflow, record), workflow.activity(record.activity)
    loop = find_checkpoint_loop(activity, instance.checkpoint) if activity is not None and instance.iteration else None
    items = _find_items(workflow, record, loop) if loop is not None else None
    if loop is not None and loop.variable and items and instance.iteration <= len(items):
        values[loop.variable] = items[instance.iteration - 1]
    return values


def list_values_at_questions(workflow: Workflow, record: Record, instance: CheckpointInstance) -> Iterator[dict[str, Any]]:
    """The values in scope of an instance in a loop without what agents have reported since each question of that loop.

    What people, the definition and children have set since counts. Without a question there are none.
    """
    known = record.here.in_loops.get(instance.checkpoint)
    activity = workflow.activity(record.activity)
    loop = find_checkpoint_loop(activity, instance.checkpoint) if activity is not None and known is not None else None
    for replaced in known.replaced if known is not None and loop is not None else ():
        values = collect_instance_values(workflow, restore_replaced(record, replaced), instance)
        if loop is not None and loop.variable and loop.variable not in values:
            # An item that was added since is known by its own value only.
            now = collect_instance_values(workflow, record, instance)
            values |= {loop.variable: now[loop.variable]} if loop.variable in now else {}
        yield values


def _find_items(workflow: Workflow, record: Record, loop: Loop) -> tuple[Any, ...] | None:
    if loop.type != "forEach":
        return None
    if find_running_loop(workflow, record.here) is loop and record.here.running is not None:
        return record.here.running.items
    return find_due_items(loop, record, collect_values(workflow, record))


def find_instance(workflow: Workflow, record: Record, checkpoint_id: str) -> CheckpointInstance:
    """The instance that yielding this checkpoint now would open, or that is open already."""
    if (waiting := record.find_pending(checkpoint_id)) is not None:
        return waiting.instance
    return CheckpointInstance(checkpoint_id, record.activity, record.visit, _find_iteration(workflow, record, checkpoint_id))


def evaluate_condition(
    workflow: Workflow, record: Record, checkpoint: Checkpoint, instance: CheckpointInstance | None = None
) -> Truth:
    if checkpoint.condition is None:
        return True
    instance = instance or find_instance(workflow, record, checkpoint.id)
    return holds(checkpoint.condition, collect_instance_values(workflow, record, instance))


# The rest is opened when the activity is entered again: a list may have thousands of items.
MAX_ARMED_ITERATIONS = 50


def find_checkpoints_to_arm(
    workflow: Workflow, record: Record, *, person: bool = False
) -> Iterator[tuple[Checkpoint, CheckpointInstance, Truth]]:
    """The instances of required checkpoints that entering the current activity opens in the gates dialect, with the truth of
    their conditions.

    A checkpoint that is open or was answered in this visit is not opened again. One that demands a person is opened for every
    iteration of a loop over a known list. `person`: the server demands people for all answers.
    """
    activity = workflow.activity(record.activity)
    for checkpoint in activity.checkpoints if activity is not None else ():
        per_item = needs_person(workflow, record, checkpoint, server=person)
        iterations = count_known_iterations(workflow, record, checkpoint.id) if per_item else 0
        is_due = checkpoint.required and not (per_item and _is_settled_loop(workflow, record, checkpoint.id))
        for instance in _list_unopened(workflow, record, checkpoint.id, iterations) if is_due else ():
            yield checkpoint, instance, evaluate_condition(workflow, record, checkpoint, instance)


def _list_unopened(workflow: Workflow, record: Record, checkpoint_id: str, iterations: int) -> list[CheckpointInstance]:
    if not iterations:
        settled = _is_settled(workflow, record, checkpoint_id)
        return [] if settled else [find_instance(workflow, record, checkpoint_id)]
    running = _find_running(workflow, record, checkpoint_id)
    waiting = {pending.iteration for pending in record.pending if pending.checkpoint == checkpoint_id}
    first = running.iteration if running is not None else 1
    rest = {*range(first, iterations + 1)} - waiting - {*_list_answered(record, checkpoint_id)}
    numbers = sorted(rest)[:MAX_ARMED_ITERATIONS]
    return [CheckpointInstance(checkpoint_id, record.activity, record.visit, number) for number in numbers]


def list_pending_checkpoints(workflow: Workflow, record: Record) -> Iterator[tuple[OpenCheckpoint, Truth]]:
    """Every open checkpoint with the truth of its condition; None also if the definition no longer has it."""
    for waiting in record.pending:
        checkpoint = find_current_checkpoint(workflow, record, waiting.checkpoint)
        truth = evaluate_condition(workflow, record, checkpoint, waiting.instance) if checkpoint is not None else None
        yield waiting, truth


def encode_effect(effect: Effect | None) -> dict[str, Any]:
    """The effect as it is stored in an event; empty if there is none."""
    if effect is None:
        return {}
    whole = {
        "setVariable": dict(effect.set_variable),
        "transitionTo": effect.transition_to,
        "skipActivities": list(effect.skip_activities),
    }
    return {name: value for name, value in whole.items() if value}


def describe_last_checkpoint(record: Record) -> dict[str, Any] | None:
    """The most recent checkpoint: the open checkpoint, else the last that was answered."""
    if (waiting := record.waiting) is not None:
        ids = {"activity_id": waiting.activity, "checkpoint_id": waiting.checkpoint}
        return {**ids, "state": "open", "option_id": None, "timestamp": waiting.yielded_at}
    if (last := record.last) is None:
        return None
    ids = {"activity_id": last.activity, "checkpoint_id": last.checkpoint}
    state = "dismissed" if last.mode == "condition_not_met" else "answered"
    return {**ids, "state": state, "option_id": last.option or None, "timestamp": last.answered_at}


def _is_settled(workflow: Workflow, record: Record, checkpoint_id: str) -> bool:
    if record.find_pending(checkpoint_id) is not None:
        return True
    if _find_running(workflow, record, checkpoint_id) is None:
        return record.find_answer(checkpoint_id) is not None
    instance = find_instance(workflow, record, checkpoint_id)
    # The record has only the newest answer itself, and another iteration may have been answered after this one.
    answered = instance.iteration in _list_answered(record, checkpoint_id)
    return answered or record.find_answer_of(instance) is not None


def _is_settled_loop(workflow: Workflow, record: Record, checkpoint_id: str) -> bool:
    """Whether the loop of the checkpoint was left for another loop, or is known to have no iteration."""
    activity = workflow.activity(record.activity)
    loop = find_checkpoint_loop(activity, checkpoint_id) if activity is not None else None
    if loop is None or _find_running(workflow, record, checkpoint_id) is not None:
        return False
    is_left, values = loop.id in record.here.looped, collect_values(workflow, record)
    return is_left or has_first_iteration(loop, record, values) is False


def _list_answered(record: Record, checkpoint_id: str) -> tuple[int, ...]:
    """The iterations of its loop for which the checkpoint was answered in this visit."""
    known = record.here.in_loops.get(checkpoint_id)
    return known.iterations if known is not None else ()


def _find_running(workflow: Workflow, record: Record, checkpoint_id: str) -> LoopIteration | None:
    """The running iteration, if a step of its loop names the checkpoint."""
    loop = find_running_loop(workflow, record.here)
    named = loop is not None and any(step.checkpoint == checkpoint_id for step in loop.steps)
    return record.here.running if named else None


def _find_iteration(workflow: Workflow, record: Record, checkpoint_id: str) -> int:
    activity = workflow.activity(record.activity)
    if activity is None or not activity.loops:
        return 0
    if (running := _find_running(workflow, record, checkpoint_id)) is not None:
        return _find_iteration_of(workflow, record, checkpoint_id, running)
    if find_checkpoint_loop(activity, checkpoint_id) is None:
        return 0
    answer = record.find_answer(checkpoint_id)
    if answer is not None and not (answer.resumed or answer.behind):
        return answer.iteration
    return _find_next_iteration(workflow, record, checkpoint_id, answer.iteration + 1 if answer is not None else 1)


def _find_iteration_of(workflow: Workflow, record: Record, checkpoint_id: str, running: LoopIteration) -> int:
    """The running iteration; the next that has no answer if the running iteration is over and settled.

    An agent that moves into the activities of a loop begins an iteration by that move, and asks before it.
    """
    number, answered = running.iteration, _list_answered(record, checkpoint_id)
    is_over = _is_over(workflow, record, running)
    if number not in answered and not (is_over and _is_inapplicable(workflow, record, checkpoint_id, number)):
        return number
    last = min(len(running.items), number + len(answered) + 1) if running.items is not None else number + 1
    free = (following for following in range(number + 1, last + 1) if is_over and following not in answered)
    newest = record.find_answer(checkpoint_id)
    return next(free, newest.iteration if newest is not None else number)


def _is_over(workflow: Workflow, record: Record, running: LoopIteration) -> bool:
    """Whether all of the running iteration was entered, and another is certain to follow."""
    loop = find_running_loop(workflow, record.here)
    if loop is None or running.at < len(loop.steps) or find_next_loop_activity(workflow, record, record.here) is not None:
        return False
    return has_next_iteration(loop, running, collect_values(workflow, record)) is True


def _is_inapplicable(workflow: Workflow, record: Record, checkpoint_id: str, iteration: int) -> bool:
    checkpoint = find_current_checkpoint(workflow, record, checkpoint_id)
    instance = CheckpointInstance(checkpoint_id, record.activity, record.visit, iteration)
    return checkpoint is not None and evaluate_condition(workflow, record, checkpoint, instance) is False


def _find_next_iteration(workflow: Workflow, record: Record, checkpoint_id: str, first: int) -> int:
    """The first iteration from `first` on in which the checkpoint applies, or `first`: agents do not say which item it is."""
    checkpoint = find_current_checkpoint(workflow, record, checkpoint_id)
    if checkpoint is None or checkpoint.condition is None:
        return first
    for number in range(first, count_known_iterations(workflow, record, checkpoint_id) + 1):
        instance = CheckpointInstance(checkpoint_id, record.activity, record.visit, number)
        if evaluate_condition(workflow, record, checkpoint, instance) is not False:
            return number
    return first

"""Checkpoints of an activity: when they are due, who may answer them, and which instance is open.

A checkpoint that a step names is due before that step. If no step names it, it is due as soon as the activity is entered. In
a loop it is asked in every iteration. If the agent does not report iterations, a checkpoint of a loop that is yielded again
after further work counts for the next iteration: an extra question is better than an iteration without its question.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fidelio.definitions.conditions import Truth, holds
from fidelio.engine.scope import collect_values, find_running_loop
from fidelio.engine.state import CheckpointInstance, OpenCheckpoint, Record

if TYPE_CHECKING:
    from fidelio.definitions.models import Activity, Checkpoint, Effect, Workflow


def find_checkpoint(activity: Activity, checkpoint_id: str) -> Checkpoint | None:
    return next((checkpoint for checkpoint in activity.checkpoints if checkpoint.id == checkpoint_id), None)


def find_current_checkpoint(workflow: Workflow, record: Record, checkpoint_id: str) -> Checkpoint | None:
    activity = workflow.activity(record.activity)
    return find_checkpoint(activity, checkpoint_id) if activity is not None else None


def demands_person(workflow: Workflow, checkpoint: Checkpoint, *, server: bool = False) -> bool:
    """Whether only a person may answer it. `server`: the server demands people for all answers."""
    return server or "person" in (checkpoint.answered_by, workflow.answered_by)


def needs_person(workflow: Workflow, record: Record, checkpoint: Checkpoint, *, server: bool = False) -> bool:
    """Like `demands_person`, but an open checkpoint keeps the demand of the time when it became open."""
    waiting = record.find_pending(checkpoint.id)
    return (waiting is not None and waiting.person) or demands_person(workflow, checkpoint, server=server)


def find_unattached_checkpoints(activity: Activity) -> list[Checkpoint]:
    """The checkpoints that no step names, in order."""
    attached = {step.checkpoint for step in activity.all_steps}
    return [checkpoint for checkpoint in activity.checkpoints if checkpoint.id not in attached]


def find_checkpoint_loop(activity: Activity, checkpoint_id: str) -> str:
    """The loop whose steps name the checkpoint; empty if a step outside loops names it too, or none does."""
    if any(step.checkpoint == checkpoint_id for step in activity.steps):
        return ""
    return next(
        (loop.id for loop in activity.loops if any(step.checkpoint == checkpoint_id for step in loop.steps)),
        "",
    )


def find_instance(workflow: Workflow, record: Record, checkpoint_id: str) -> CheckpointInstance:
    """The instance that yielding this checkpoint now would open, or that is open already."""
    if (waiting := record.find_pending(checkpoint_id)) is not None:
        return waiting.instance
    return CheckpointInstance(checkpoint_id, record.activity, record.visit, _find_iteration(workflow, record, checkpoint_id))


def evaluate_condition(workflow: Workflow, record: Record, checkpoint: Checkpoint) -> Truth:
    return holds(checkpoint.condition, collect_values(workflow, record))


def find_checkpoints_to_arm(workflow: Workflow, record: Record) -> Iterator[tuple[Checkpoint, Truth]]:
    """The required checkpoints that entering the current activity opens in the gates dialect, with the truth of their
    conditions.

    A checkpoint that is open or was answered in this visit is not opened again.
    """
    activity = workflow.activity(record.activity)
    for checkpoint in activity.checkpoints if activity is not None else ():
        if checkpoint.required and not _is_settled(workflow, record, checkpoint.id):
            yield checkpoint, evaluate_condition(workflow, record, checkpoint)


def list_pending_checkpoints(workflow: Workflow, record: Record) -> Iterator[tuple[OpenCheckpoint, Truth]]:
    """Every open checkpoint with the truth of its condition; None also if the definition no longer has it."""
    for waiting in record.pending:
        checkpoint = find_current_checkpoint(workflow, record, waiting.checkpoint)
        yield waiting, evaluate_condition(workflow, record, checkpoint) if checkpoint is not None else None


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
    if record.here.running is None:
        return record.find_answer(checkpoint_id) is not None
    return record.find_answer_of(find_instance(workflow, record, checkpoint_id)) is not None


def _find_iteration(workflow: Workflow, record: Record, checkpoint_id: str) -> int:
    activity = workflow.activity(record.activity)
    if activity is None or not activity.loops:
        return 0
    running = find_running_loop(workflow, record.here)
    if running is not None and record.here.running and any(step.checkpoint == checkpoint_id for step in running.steps):
        return record.here.running.iteration
    if not find_checkpoint_loop(activity, checkpoint_id):
        return 0
    answer = record.find_answer(checkpoint_id)
    if answer is None:
        return 1
    return answer.iteration + 1 if answer.resumed or answer.behind else answer.iteration

"""Where the checkpoints of an activity stand, and which asking of one is meant.

A checkpoint that a step names is reached before that step. One that no step names is there from the moment the activity is
entered. In a loop it is asked in every pass. Where nobody reports the passes, a question of a loop that is asked again after
the work went on is the question of the next pass: one question too many is better than a pass that nobody was asked about.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from fidelio.definitions.conditions import Truth, holds
from fidelio.engine.scope import known, running_loop
from fidelio.engine.state import Asked, OpenCheckpoint, Record

if TYPE_CHECKING:
    from fidelio.definitions.models import Activity, Checkpoint, Effect, Workflow

_ASKED = attrgetter("checkpoint")


def find_checkpoint(activity: Activity, checkpoint_id: str) -> Checkpoint | None:
    return next((checkpoint for checkpoint in activity.checkpoints if checkpoint.id == checkpoint_id), None)


def current_checkpoint(workflow: Workflow, record: Record, checkpoint_id: str) -> Checkpoint | None:
    activity = workflow.activity(record.activity)
    return find_checkpoint(activity, checkpoint_id) if activity is not None else None


def demands_person(workflow: Workflow, checkpoint: Checkpoint, *, server: bool = False) -> bool:
    """Whether only a person may answer it. `server`: the server wants people to answer everything."""
    return server or "person" in (checkpoint.answered_by, workflow.answered_by)


def only_person(workflow: Workflow, record: Record, checkpoint: Checkpoint, *, server: bool = False) -> bool:
    """The same for the question as it waits: what was demanded when it was asked holds until it is answered."""
    waiting = record.pending_as(checkpoint.id)
    return (waiting is not None and waiting.person) or demands_person(workflow, checkpoint, server=server)


def unattached(activity: Activity) -> list[Checkpoint]:
    """Those that no step names, in order."""
    named = set(map(_ASKED, activity.steps))
    for loop in activity.loops:
        named.update(map(_ASKED, loop.steps))
    return [checkpoint for checkpoint in activity.checkpoints if checkpoint.id not in named]


def loop_of(activity: Activity, checkpoint_id: str) -> str:
    """The loop whose steps ask the question; empty when a step outside loops asks it too, or none does."""
    if any(step.checkpoint == checkpoint_id for step in activity.steps):
        return ""
    return next(
        (loop.id for loop in activity.loops if any(step.checkpoint == checkpoint_id for step in loop.steps)),
        "",
    )


def asking(workflow: Workflow, record: Record, checkpoint_id: str) -> Asked:
    """The asking that putting this checkpoint to somebody now would mean."""
    if (waiting := record.pending_as(checkpoint_id)) is not None:
        return waiting.asked
    return Asked(checkpoint_id, record.activity, record.visit, _iteration(workflow, record, checkpoint_id))


def condition_holds(workflow: Workflow, record: Record, checkpoint: Checkpoint) -> Truth:
    return holds(checkpoint.condition, known(workflow, record))


def to_arm(workflow: Workflow, record: Record) -> Iterator[tuple[Checkpoint, Truth]]:
    """What entering the current activity asks where all its questions come at the door, with the truth of their conditions.

    What waits already or was answered in this visit is not asked again.
    """
    activity = workflow.activity(record.activity)
    for checkpoint in activity.checkpoints if activity is not None else ():
        if checkpoint.required and not _dealt_with(workflow, record, checkpoint.id):
            yield checkpoint, condition_holds(workflow, record, checkpoint)


def pending(workflow: Workflow, record: Record) -> Iterator[tuple[OpenCheckpoint, Truth]]:
    """Every question that waits, with the truth of its condition; None also where the definition has lost it."""
    for waiting in record.pending:
        checkpoint = current_checkpoint(workflow, record, waiting.checkpoint)
        yield waiting, condition_holds(workflow, record, checkpoint) if checkpoint is not None else None


def effect_of(effect: Effect | None) -> dict[str, Any]:
    """The effect as an event carries it; empty when there is none."""
    if effect is None:
        return {}
    whole = {
        "setVariable": dict(effect.set_variable),
        "transitionTo": effect.transition_to,
        "skipActivities": list(effect.skip_activities),
    }
    return {name: value for name, value in whole.items() if value}


def last_checkpoint(record: Record) -> dict[str, Any] | None:
    """The checkpoint that was dealt with last: the one that waits, else the one that was answered last."""
    if (waiting := record.waiting) is not None:
        ids = {"activity_id": waiting.activity, "checkpoint_id": waiting.checkpoint}
        return {**ids, "state": "open", "option_id": None, "timestamp": waiting.yielded_at}
    if (last := record.last) is None:
        return None
    ids = {"activity_id": last.activity, "checkpoint_id": last.checkpoint}
    state = "dismissed" if last.mode == "condition_not_met" else "answered"
    return {**ids, "state": state, "option_id": last.option or None, "timestamp": last.answered_at}


def _dealt_with(workflow: Workflow, record: Record, checkpoint_id: str) -> bool:
    if record.pending_as(checkpoint_id) is not None:
        return True
    if record.here.running is None:
        return record.answer_to(checkpoint_id) is not None
    return record.answer_for(asking(workflow, record, checkpoint_id)) is not None


def _iteration(workflow: Workflow, record: Record, checkpoint_id: str) -> int:
    activity = workflow.activity(record.activity)
    if activity is None or not activity.loops:
        return 0
    running = running_loop(workflow, record.here)
    if running is not None and record.here.running and any(step.checkpoint == checkpoint_id for step in running.steps):
        return record.here.running.iteration
    if not loop_of(activity, checkpoint_id):
        return 0
    answer = record.answer_to(checkpoint_id)
    if answer is None:
        return 1
    return answer.iteration + 1 if answer.resumed or answer.behind else answer.iteration

"""Where a workflow goes on: the first way that holds, as the definition writes them."""

from __future__ import annotations

import msgspec

from fidelio.definitions.models import Workflow
from fidelio.engine.checkpoints import find_current_checkpoint
from fidelio.engine.record import Record
from fidelio.engine.scope import find_running_loop
from fidelio.engine.transitions import list_open_transitions
from fidelio.engine.variables import find_unset_variables, find_variables


class Onward(msgspec.Struct, frozen=True):
    """The way to take, and the condition that it is taken for."""

    to: str
    claim: str | None


class Undecided(msgspec.Struct, frozen=True):
    """What nobody has said yet, and what decides."""

    variables: tuple[str, ...]


class NoWay(msgspec.Struct, frozen=True):
    """The definition leads nowhere from here."""


def choose(workflow: Workflow, record: Record) -> Onward | Undecided | NoWay:
    candidates = list_open_transitions(workflow, record)
    certain = next((way for way in candidates if way.holds is True), None)
    if certain is not None:
        return Onward(certain.to, certain.condition or None)
    conditions = [way.when for way in candidates if way.when is not None]
    if conditions:
        unsaid = find_unset_variables(conditions, workflow, record)
        return Undecided(tuple(unsaid or dict.fromkeys(name for one in conditions for name in find_variables(one))))
    return Onward(candidates[0].to, candidates[0].condition or None) if candidates else NoWay()


def seconds_to_default(workflow: Workflow, record: Record, now: int) -> float | None:
    """How long until the question that waits may be answered with its default; 0 when it may, None when it never may."""
    waiting = record.waiting
    checkpoint = find_current_checkpoint(workflow, record, waiting.checkpoint) if waiting else None
    if waiting is None or checkpoint is None or checkpoint.blocking:
        return None
    if checkpoint.auto_advance_ms is None or checkpoint.default_option is None:
        return None
    return max(0, waiting.yielded_at + checkpoint.auto_advance_ms - now) / 1000


def step_at(workflow: Workflow, record: Record) -> str:
    """The step that the worker is at, as far as its calls tell: the one whose question waits, or whose skill it loaded last."""
    activity = workflow.activity(record.activity)
    if activity is None:
        return ""
    loop = find_running_loop(workflow, record.here)
    others = (step for one in activity.loops for step in one.steps)
    # What a loop repeats is nearer than what came before it; often both use the same skill.
    steps = (*(loop.steps if loop is not None else ()), *activity.steps, *others)
    if record.waiting is not None:
        asked = record.waiting.checkpoint
        return next((step.id for step in steps if step.checkpoint == asked), "")
    return next((step.id for step in steps if step.skill and step.skill == record.skill), "")

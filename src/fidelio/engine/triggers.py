"""Workflows that start other workflows: whether a child belongs to a trigger, and which variables go down and come back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from fidelio.definitions.conditions import MISSING, look_up
from fidelio.engine.progress import finishes_steps
from fidelio.engine.record import BY_ANSWER, BY_DEFINITION, CHILD_FINISHED, CHILD_STARTED, Draft
from fidelio.engine.scope import known, running_loop
from fidelio.engine.state import Child, Place, Record
from fidelio.engine.variables import settled_by

if TYPE_CHECKING:
    from fidelio.definitions.models import Activity, Step, Trigger, Workflow


# No activity is called so: the question was asked in the parent.
_ABOVE = ".."


class Triggered(msgspec.Struct, frozen=True):
    """That the current activity starts this workflow: the step that says so, if one does, and the variables that go along."""

    workflow: str
    step: str
    pass_context: tuple[str, ...]


def trigger_for(workflow: Workflow, record: Record, child_workflow: str) -> Triggered | None:
    """The trigger of the current activity, or of one of its steps, that starts this workflow."""
    activity = workflow.activity(record.activity)
    for step, trigger in _triggers(activity) if activity is not None else ():
        if trigger.workflow == child_workflow:
            return Triggered(child_workflow, step, trigger.pass_context)
    return None


def fired(workflow: Workflow, before: Record, after: Record, step: str = "") -> list[Triggered]:
    """What a move starts: the triggers of the step that it completes, and those of the activity whose steps it finishes.

    An activity says only that it starts a workflow, not when. Where the server leads, that is when its own steps are done: what
    they prepare is there, and what the child brings back can still decide where the activity leads.
    """
    activity = workflow.activity(after.activity)
    if activity is None:
        return []
    found = [
        Triggered(trigger.workflow, step, trigger.pass_context)
        for one in _done_last(workflow, activity, before, after)
        if one.id == step
        for trigger in one.triggers
    ]
    if activity.triggers and finishes_steps(workflow, before, after):
        found += [Triggered(trigger.workflow, "", trigger.pass_context) for trigger in activity.triggers]
    return found


def inheritance(workflow: Workflow, parent: Record, triggered: Triggered, *, person: bool = False) -> dict[str, Any]:
    """What the first event of a child says about the variables that it begins with.

    What a person has settled for good in the parent is settled in the child, too: otherwise a model could answer for the person
    one floor below.
    """
    variables = handed_down(workflow, parent, triggered)
    elsewhere = replace(parent, here=Place())
    checkpoints = {name: settled_by(workflow, elsewhere, name, person=person) for name in variables}
    settled = {name: f"{BY_ANSWER}{_ABOVE}/{checkpoint}/" for name, checkpoint in checkpoints.items() if checkpoint}
    return {"variables": variables, "variables_by": "parent", **({"settled": settled} if settled else {})}


def handed_down(workflow: Workflow, record: Record, triggered: Triggered) -> dict[str, Any]:
    """The variables that the child begins with; the item that a running loop is at counts among them."""
    values = known(workflow, record)
    found = {name: look_up(name, values) for name in triggered.pass_context}
    return {name: value for name, value in found.items() if value is not MISSING}


def child_started(session: str, child_workflow: str, triggered: Triggered | None) -> Draft:
    """What the parent records. Only a child that a trigger asks for suspends it."""
    body: dict[str, Any] = {"session": session, "workflow": child_workflow, "suspends": triggered is not None}
    if triggered is not None:
        body |= {"step": triggered.step, "pass_context": list(triggered.pass_context)}
    return Draft(CHILD_STARTED, body)


def brought_back(workflow: Workflow | None, parent: Record, ended: Record, *, person: bool = False) -> dict[str, Any]:
    """The variables of a child as its parent takes them; `workflow` is the parent's, where it can still be read.

    What an answer has settled in the parent is changed by an answer or an action in the child, and not by what an agent of the
    child reports.
    """
    ours = (BY_ANSWER, *BY_DEFINITION)
    return {
        name: value
        for name, value in ended.variables.items()
        if ended.set_by.get(name, "").startswith(ours) or not settled_by(workflow, parent, name, person=person)
    }


def child_finished(child: Child, variables: Mapping[str, Any], outcome: str = "completed") -> Draft:
    """What the parent records when the child it waits for has ended, with the variables that come back."""
    back = {name: variables[name] for name in child.pass_context if name in variables}
    body = {"session": child.session, "workflow": child.workflow, "outcome": outcome, "variables": back}
    return Draft(CHILD_FINISHED, body)


def _done_last(workflow: Workflow, activity: Activity, before: Record, after: Record) -> Sequence[Step]:
    """The step that the record has come to behind; what is called the same elsewhere in the activity is another step."""
    loop, running = running_loop(workflow, after.here), after.here.running
    if loop is None or running is None or len(after.here.done) > len(before.here.done):
        return activity.steps[: after.here.at][-1:]
    return loop.steps[: running.at][-1:]


def _triggers(activity: Activity) -> Iterable[tuple[str, Trigger]]:
    yield from (("", trigger) for trigger in activity.triggers)
    for step in _steps(activity):
        yield from ((step.id, trigger) for trigger in step.triggers)


def _steps(activity: Activity) -> Iterable[Step]:
    return (*activity.steps, *(step for loop in activity.loops for step in loop.steps))

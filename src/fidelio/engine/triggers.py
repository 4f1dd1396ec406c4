"""Triggers: which child workflows an activity starts, and which variables are passed to them and returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from fidelio.definitions.conditions import MISSING, holds, look_up
from fidelio.engine import phrases
from fidelio.engine.progress import finishes_steps
from fidelio.engine.record import BY_ANSWER, BY_DEFINITION, CHILD_FINISHED, CHILD_STARTED, EventDraft
from fidelio.engine.scope import collect_reported_values, collect_values, find_running_loop
from fidelio.engine.state import ActivityVisit, ChildSession, Problem, Record
from fidelio.engine.variables import find_settling_checkpoint

if TYPE_CHECKING:
    from fidelio.definitions.models import Activity, Step, Workflow


# Authors of variables in a child: its parent, or a checkpoint of the parent; no activity can have the name `..`.
_BY_PARENT, _PARENT_ACTIVITY = "parent", ".."


class TriggerMatch(msgspec.Struct, frozen=True):
    """A trigger of the current activity: the workflow it starts, its step, if any, and the variables in its `passContext`."""

    workflow: str
    step: str
    pass_context: tuple[str, ...]


def find_trigger(workflow: Workflow, record: Record, child_workflow: str) -> TriggerMatch | None:
    """The trigger of the current activity, or of any of its steps, that starts this workflow."""
    activity = workflow.activity(record.activity)
    if activity is None:
        return None
    own = [("", trigger) for trigger in activity.triggers]
    own += [(step.id, trigger) for step in activity.all_steps for trigger in step.triggers]
    matching = (
        TriggerMatch(child_workflow, step, trigger.pass_context) for step, trigger in own if trigger.workflow == child_workflow
    )
    return next(matching, None)


def find_fired_triggers(workflow: Workflow, before: Record, after: Record, step: str = "") -> list[TriggerMatch]:
    """The triggers that a move fires: those of the step it completes, and those of the activity whose last step it completes.

    An activity does not declare when it starts a workflow. The server does it after the steps of the activity: their results
    are available, and the variables that the child returns can still decide the next transition.
    """
    activity = workflow.activity(after.activity)
    if activity is None:
        return []
    found = [
        TriggerMatch(trigger.workflow, step, trigger.pass_context)
        for done_step in _find_last_steps(workflow, activity, before, after)
        if done_step.id == step
        for trigger in done_step.triggers
    ]
    if activity.triggers and finishes_steps(workflow, before, after):
        found += [TriggerMatch(trigger.workflow, "", trigger.pass_context) for trigger in activity.triggers]
    return found


def check_unstarted_triggers(
    workflow: Workflow,
    record: Record,
    reported: Sequence[str],
    *,
    doubt: bool = False,
    explain: Callable[[str], str] = lambda _: "",
) -> list[Problem]:
    """The workflows that the activity should have started before it ends; `reported` are the steps of its manifest.

    It is a doubt if the condition of the step depends on variables that are not set, or for an agent that may not know how to
    start a child (`doubt`): older clients of the gates dialect. `explain` says why this server cannot start a workflow.
    """
    return [
        build_unstarted(name, explain(name), doubt=doubt or not certain)
        for name, certain in find_unstarted(workflow, record, reported)
    ]


def build_unstarted(name: str, why: str = "", *, doubt: bool = False) -> Problem:
    """The problem that a workflow was not started; `why` says why this server cannot start it."""
    sentence = phrases.workflow_never_started(name) + (f" {phrases.cannot_start(why)}" if why else "")
    return Problem("not-started", sentence, phrases.ADD_WORKFLOW if why else phrases.START_CHILD, doubt=doubt)


def find_unstarted(workflow: Workflow, record: Record, reported: Sequence[str]) -> list[tuple[str, bool]]:
    """The workflows that were started less often than they were due in this visit, and whether that is certain."""
    activity = workflow.activity(record.activity)
    if activity is None or record.forced:
        return []
    due = [(trigger.workflow, 1, True) for trigger in activity.triggers]
    for step in activity.all_steps if any(step.triggers for step in activity.all_steps) else ():
        times, truth = _count_due(workflow, record, activity, step, reported)
        due += [(trigger.workflow, times, truth) for trigger in step.triggers if times]
    return [(name, certain) for name, times, certain in due if record.here.started.count(name) < times]


def _count_due(workflow: Workflow, record: Record, activity: Activity, step: Step, reported: Sequence[str]) -> tuple[int, bool]:
    """How often a step was due, and whether that is certain. A step of a loop was due as often as it is reported."""
    done = reported.count(step.id) or int(step.id in record.here.done)
    if done or step not in activity.steps or not step.required:
        return done, True
    truth = holds(step.condition, collect_reported_values(workflow, record), reported_only=True)
    return int(truth is not False), truth is True


def build_initial_variables(
    workflow: Workflow, parent: Record, triggered: TriggerMatch, *, person: bool = False
) -> dict[str, Any]:
    """The initial variables of a child session, as its first event stores them.

    A value that a person has settled permanently in the parent is settled in the child too: otherwise a model could change it
    there.
    """
    variables = collect_passed_variables(workflow, parent, triggered)
    elsewhere = replace(parent, here=ActivityVisit())
    checkpoints = {name: find_settling_checkpoint(workflow, elsewhere, name, person=person) for name in variables}
    settled = {name: f"{BY_ANSWER}{_PARENT_ACTIVITY}/{checkpoint}/" for name, checkpoint in checkpoints.items() if checkpoint}
    return {"variables": variables, "variables_by": _BY_PARENT, **({"settled": settled} if settled else {})}


def collect_passed_variables(workflow: Workflow, record: Record, triggered: TriggerMatch) -> dict[str, Any]:
    """The variables that the child receives from the trigger, including the current item of a running loop."""
    values = collect_values(workflow, record)
    found = {name: look_up(name, values) for name in triggered.pass_context}
    return {name: value for name, value in found.items() if value is not MISSING}


def draft_child_started(session: str, child_workflow: str, triggered: TriggerMatch | None) -> EventDraft:
    """The event of the parent. Only a child that a trigger starts suspends the parent."""
    body: dict[str, Any] = {"session": session, "workflow": child_workflow, "suspends": triggered is not None}
    if triggered is not None:
        body |= {"step": triggered.step, "pass_context": list(triggered.pass_context)}
    return EventDraft(CHILD_STARTED, body)


def collect_returned_variables(
    workflow: Workflow | None, parent: Record, ended: Record, *, person: bool = False
) -> dict[str, Any]:
    """The variables of a child that its parent accepts; `workflow` is the parent's, None if it cannot be read.

    A value that the child has only been given does not come back: the child would count as its author.
    A value that an answer has settled in the parent is changed by an answer or an action in the child, but not by a report of
    the child's agent.
    """
    ours = (BY_ANSWER, *BY_DEFINITION)
    changed = {name: value for name, value in ended.variables.items() if not _is_inherited(ended.set_by.get(name, ""))}
    return {
        name: value
        for name, value in changed.items()
        if ended.set_by.get(name, "").startswith(ours) or not find_settling_checkpoint(workflow, parent, name, person=person)
    }


def _is_inherited(author: str) -> bool:
    """Whether the author of a variable in a child is its parent, or a checkpoint of the parent."""
    return author == _BY_PARENT or author.startswith(f"{BY_ANSWER}{_PARENT_ACTIVITY}/")


def draft_child_finished(child: ChildSession, variables: Mapping[str, Any], outcome: str = "completed") -> EventDraft:
    """The event of the parent when the child has ended, with the variables that it returns."""
    back = {name: variables[name] for name in child.pass_context if name in variables}
    body = {"session": child.session, "workflow": child.workflow, "outcome": outcome, "variables": back}
    return EventDraft(CHILD_FINISHED, body)


def _find_last_steps(workflow: Workflow, activity: Activity, before: Record, after: Record) -> Sequence[Step]:
    """The step that the move has completed, found by position, because other steps of the activity may have the same id."""
    loop, running = find_running_loop(workflow, after.here), after.here.running
    if loop is None or running is None or len(after.here.done) > len(before.here.done):
        return activity.steps[: after.here.at][-1:]
    return loop.steps[: running.at][-1:]

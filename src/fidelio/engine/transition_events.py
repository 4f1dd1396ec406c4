"""Build the events of a transition to another activity or to the end of the workflow.

A transition runs the exit actions of the activity that is left and the entry actions of the one that is entered. Entering the
current activity again continues the same visit, unless an answer or a declared transition leads back to it: then a new visit
begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fidelio.engine.record import COMPLETED, ENTERED, VARIABLES_SET, EventDraft, fold_drafts
from fidelio.engine.scope import collect_values, find_running_loop, find_skipped_activities
from fidelio.engine.state import Record
from fidelio.engine.transition_checks import check_claim
from fidelio.engine.transitions import ends_workflow, find_next_loop_activity, list_transitions
from fidelio.engine.variables import evaluate_set_actions

if TYPE_CHECKING:
    from fidelio.definitions.models import Action, Workflow


def draft_transition(
    workflow: Workflow,
    record: Record,
    target: str,
    *,
    condition: str | None = None,
    manifest: Sequence[dict[str, str]] | None = None,
    warnings: Sequence[str] = (),
    new_visit: bool | None = None,
) -> list[EventDraft]:
    """The events of a transition to `target`, which is not checked here.

    `new_visit` decides whether entering the current activity begins a new visit; None derives it from the transitions.
    """
    if new_visit is None:
        new_visit = target == record.activity and starts_new_visit(workflow, record, condition)
    body: dict[str, Any] = {"activity": target, "from": record.activity, "condition": condition or ""}
    body |= {"manifest": list(manifest)} if manifest is not None else {}
    body |= {"warnings": list(warnings)} if warnings else {}
    if target == record.activity and not new_visit:
        return [EventDraft(ENTERED, body)]
    body |= {"again": True} if new_visit else {}
    body |= _passed_activities(workflow, record, target) | _describe_loop_move(workflow, record, target)
    type_ = COMPLETED if ends_workflow(workflow, target) else ENTERED
    # A loop through other activities neither runs the exit actions of its own activity nor, on return, its entry actions.
    leaving = [] if body["how"] == "loop" else _draft_exit_actions(workflow, record)
    drafts = [*leaving, EventDraft(type_, body)]
    return drafts if body["how"] == "return" else [*drafts, *_draft_entry_actions(workflow, fold_drafts(record, drafts, 0))]


def starts_new_visit(workflow: Workflow, record: Record, claim: str | None) -> bool:
    """Whether a transition to the current activity begins a new visit."""
    if record.forced == record.activity:
        return True
    own = [
        candidate
        for candidate in list_transitions(workflow, record, reported_only=True)
        if candidate.to == record.activity and candidate.kind != "answer"
    ]
    if not own or all(candidate.holds is False for candidate in own):
        return False
    claimed = bool(claim) and not check_claim(workflow, record, record.activity, claim)
    return claimed or any(candidate.holds for candidate in own)


def _passed_activities(workflow: Workflow, record: Record, target: str) -> dict[str, Any]:
    if not find_skipped_activities(workflow, record):
        return {}
    candidate = next(
        (candidate for candidate in list_transitions(workflow, record) if candidate.to == target and candidate.via), None
    )
    return {"passed": list(candidate.via)} if candidate is not None else {}


def _describe_loop_move(workflow: Workflow, record: Record, target: str) -> dict[str, Any]:
    """The effect on a loop through activities: enter its first, go to its next, return to its owner, or leave it."""
    loop = find_running_loop(workflow, record.here)
    inward = find_next_loop_activity(workflow, record, record.here)
    if loop is not None and inward is not None and inward[0] == target and not record.forced:
        return {"how": "loop", "reached": inward[1], "at": len(loop.steps)}
    if record.outer and target == record.activity:
        return {"how": "pass", "reached": _count_entered(record)}
    if record.outer and not record.forced:
        following = find_next_loop_activity(workflow, record, record.outer[-1])
        if following is not None and following[0] == target:
            return {"how": "pass", "reached": following[1]}
        if following is None and record.outer[-1].activity == target:
            return {"how": "return"}
    return {"how": "next"}


def _count_entered(record: Record) -> int:
    running = record.outer[-1].running
    return running.entered if running is not None else 0


def _draft_exit_actions(workflow: Workflow, record: Record) -> list[EventDraft]:
    activity = workflow.activity(record.activity)
    return _draft_actions(workflow, record, activity.exit_actions, f"exit:{activity.id}") if activity is not None else []


def _draft_entry_actions(workflow: Workflow, record: Record) -> list[EventDraft]:
    activity = workflow.activity(record.activity)
    return _draft_actions(workflow, record, activity.entry_actions, f"entry:{activity.id}") if activity is not None else []


def _draft_actions(workflow: Workflow, record: Record, actions: Sequence[Action], author: str) -> list[EventDraft]:
    changed = evaluate_set_actions(actions, collect_values(workflow, record))
    return [EventDraft(VARIABLES_SET, {"variables": changed, "by": author})] if changed else []

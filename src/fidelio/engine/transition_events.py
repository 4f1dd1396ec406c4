"""Check a transition that an agent requests, and build the events of a transition.

A claimed condition is compared with every transition to the target, because several may lead there. It is reported as false
only if an answer or a reported variable contradicts it: an unconfirmed default value is no evidence against an agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fidelio.definitions import TERMINAL
from fidelio.definitions.conditions import matches_condition, matches_text
from fidelio.engine import phrases
from fidelio.engine.record import COMPLETED, ENTERED, VARIABLES_SET, EventDraft, fold_drafts
from fidelio.engine.scope import collect_values, find_running_loop, find_skipped_activities
from fidelio.engine.state import Problem, Record
from fidelio.engine.transitions import (
    CandidateTransition,
    ends_workflow,
    find_next_loop_activity,
    is_activity_missing,
    list_declared_transitions,
    list_transitions,
    target_exists,
)
from fidelio.engine.variables import evaluate_set_actions, find_unset_variables, suggest_report

if TYPE_CHECKING:
    from fidelio.definitions.models import Action, Activity, Workflow


_DEFAULT_CLAIMS = ("", "default")


def check_transition(
    workflow: Workflow,
    record: Record,
    target: str,
    claim: str | None = None,
    *,
    candidates: Sequence[CandidateTransition] | None = None,
    reported: Sequence[CandidateTransition] | None = None,
) -> list[Problem]:
    """The problems of a transition to `target` and of the condition that is claimed for it.

    `candidates` are the transitions of the record, if the caller has them; `reported` those with reported values only.
    """
    candidates = list_transitions(workflow, record) if candidates is None else candidates
    if is_activity_missing(workflow, record):
        return [_missing_activity_problem(workflow, record, begins=bool(_transitions_to(workflow, candidates, target)))]
    return _check_direct(workflow, record, target, candidates) or [
        *check_claim(workflow, record, target, claim, candidates),
        *_check_holds(workflow, record, target, claim, candidates, reported),
    ]


def check_claim(
    workflow: Workflow, record: Record, target: str, claim: str | None, candidates: Sequence[CandidateTransition]
) -> list[Problem]:
    """Compare a claimed condition with those of all transitions to the target; None claims nothing."""
    matching = _transitions_to(workflow, candidates, target)
    if claim is None or not matching or not record.activity or any(_matches(claim, candidate) for candidate in matching):
        return []
    texts = list(dict.fromkeys(candidate.condition for candidate in matching if candidate.condition))
    if not texts:
        return [Problem("claim", phrases.claims_condition_of_default(target, claim))]
    return [Problem("claim", phrases.claims_other_condition(target, claim or "default", texts))]


def check_drift(record: Record, version: str, definition: str) -> list[Problem]:
    """Check that the definition is still the same as when the session started."""
    if record.version and record.version != version:
        return [Problem("drift", phrases.version_drift(record.version, version), advisory=True)]
    if record.definition and record.definition != definition:
        return [Problem("drift", phrases.content_drift(version), advisory=True)]
    return []


def check_skill(workflow: Workflow, record: Record) -> list[Problem]:
    """Check that the skill loaded last belongs to the current activity. An activity without skills accepts any."""
    activity = workflow.activity(record.activity)
    if activity is None or not record.skill:
        return []
    own = {activity.skills.primary, *activity.skills.supporting, *(step.skill for step in activity.all_steps)} - {None}
    if not own or record.skill in {*own, workflow.skills.primary, *workflow.skills.supporting}:
        return []
    return [Problem("skill", phrases.skill_of_other_activity(record.skill, activity.id), advisory=True)]


def matches_any_transition(claim: str, activity: Activity) -> bool:
    """Whether the claim is the condition of any transition of the activity."""
    if claim.strip().lower() in _DEFAULT_CLAIMS:
        return True
    return any(
        matches_text(claim, edge.text) or (edge.condition and matches_condition(claim, edge.condition))
        for edge in list_declared_transitions(activity)
    )


def _matches(claim: str, candidate: CandidateTransition) -> bool:
    if claim.strip().lower() in _DEFAULT_CLAIMS:
        # An agent that follows an answer need not repeat it, because the answer is in the record.
        return candidate.default or not candidate.condition or (candidate.kind == "answer" and candidate.open)
    return matches_text(claim, candidate.condition) or (candidate.when is not None and matches_condition(claim, candidate.when))


def _missing_activity_problem(workflow: Workflow, record: Record, *, begins: bool) -> Problem:
    """A move to the initial activity is only warned about, because the definition still names it as a target."""
    sentence = phrases.activity_missing(record.activity, unreadable=record.activity in workflow.broken)
    return Problem("activity-gone", sentence, "Restore it, or start a new session.", advisory=begins)


def _check_direct(workflow: Workflow, record: Record, target: str, candidates: Sequence[CandidateTransition]) -> list[Problem]:
    if target == record.activity or workflow.independent:
        return []
    if _transitions_to(workflow, candidates, target):
        return []
    valid = list(dict.fromkeys(candidate.to for candidate in candidates))
    activity = workflow.activity(record.activity)
    if activity is None:
        return [Problem("first-activity", phrases.first_activity(", ".join(valid), target))]
    if target in find_skipped_activities(workflow, record) and any(
        edge.to == target for edge in list_declared_transitions(activity)
    ):
        return [Problem("left-out", phrases.activity_skipped(target), f"Go on with one of {phrases.list_names(valid)}.")]
    if not any(list_declared_transitions(activity)):
        return [Problem("not-direct", phrases.no_outgoing_transition(activity.id, target), doubt=True)]
    return [Problem("not-direct", phrases.not_direct_transition(target, activity.id, valid))]


def list_reported_transitions(
    workflow: Workflow, record: Record, candidates: Sequence[CandidateTransition]
) -> Sequence[CandidateTransition]:
    """The transitions evaluated with reported values only; they are the candidates if no value matters."""
    return (
        list_transitions(workflow, record, reported_only=True)
        if _depends_on_values(workflow, record, candidates)
        else candidates
    )


def _check_holds(
    workflow: Workflow,
    record: Record,
    target: str,
    claim: str | None,
    candidates: Sequence[CandidateTransition],
    reported: Sequence[CandidateTransition] | None,
) -> list[Problem]:
    if target == record.activity or workflow.independent or not record.activity:
        return []
    if record.forced and target_exists(workflow, record.forced) and not _is_same_target(workflow, record.forced, target):
        return [Problem("not-held", phrases.answer_leads_elsewhere(target, record.forced))]
    evaluated = list_reported_transitions(workflow, record, candidates) if reported is None else reported
    matching = _transitions_to(workflow, evaluated, target)
    # A claim that matches one of several transitions to the target claims that this one is open.
    claimed = [
        candidate for candidate in matching if claim is not None and candidate.when is not None and _matches(claim, candidate)
    ] or matching
    if claimed and all(candidate.holds is False for candidate in claimed):
        return [Problem("not-held", phrases.condition_not_met_for(target, _explain_not_held(claimed[0], evaluated)))]
    first = next(
        (candidate for candidate in evaluated if candidate.holds and candidate.when is not None and candidate.open), None
    )
    if (
        first is not None
        and matching
        and not any(candidate.open or candidate.kind in ("loop", "answer") for candidate in matching)
    ):
        return [Problem("not-held", phrases.condition_not_met_for(target, f"'{first.condition}' holds and comes first"))]
    return _find_doubts(workflow, record, target, candidates)


def _depends_on_values(workflow: Workflow, record: Record, candidates: Iterable[CandidateTransition]) -> bool:
    """Whether values from defaults and reported values can differ in effect. Skipping an activity may hide a condition."""
    return any(candidate.when is not None for candidate in candidates) or bool(find_skipped_activities(workflow, record))


def _find_doubts(workflow: Workflow, record: Record, target: str, evaluated: Sequence[CandidateTransition]) -> list[Problem]:
    matching = _transitions_to(workflow, evaluated, target)
    if any(candidate.holds or candidate.kind == "loop" for candidate in matching):
        return []
    same = _find_same_targets(workflow, evaluated, target)
    if all(candidate.to in same for candidate in evaluated if candidate.open):
        # All open transitions lead to this target, whatever the conditions evaluate to.
        return []
    conditions = [
        candidate.when
        for candidate in (matching if all(candidate.when for candidate in matching) else evaluated)
        if candidate.when
    ]
    open_names = find_unset_variables(conditions, workflow, record)
    remedy = suggest_report(workflow, open_names) if open_names else "Answer the checkpoint that leads there."
    return [Problem("not-known", phrases.transition_undecided(target, open_names), remedy, doubt=True)]


def _explain_not_held(candidate: CandidateTransition, evaluated: Sequence[CandidateTransition]) -> str:
    if candidate.kind == "answer":
        return f"the answer was not '{candidate.condition}'"
    if candidate.when is not None and not candidate.default:
        return f"'{candidate.condition}' is not so"
    other = next((other for other in evaluated if other.when is not None and other.holds), None)
    return f"'{other.condition}' holds" if other else "something else holds"


def _transitions_to(workflow: Workflow, candidates: Sequence[CandidateTransition], target: str) -> list[CandidateTransition]:
    names = _find_same_targets(workflow, candidates, target)
    return [candidate for candidate in candidates if candidate.to in names]


def _find_same_targets(workflow: Workflow, candidates: Sequence[CandidateTransition], target: str) -> set[str]:
    """The targets of the candidates that mean the same as `target`: each name is resolved once, not for each candidate."""
    wanted = _normalize_end(workflow, target)
    return {name for name in {candidate.to for candidate in candidates} if _normalize_end(workflow, name) == wanted}


def _is_same_target(workflow: Workflow, left: str, right: str) -> bool:
    return _normalize_end(workflow, left) == _normalize_end(workflow, right)


def _normalize_end(workflow: Workflow, target: str) -> str:
    return TERMINAL if ends_workflow(workflow, target) else target


def draft_transition(
    workflow: Workflow,
    record: Record,
    target: str,
    *,
    condition: str | None = None,
    manifest: Sequence[dict[str, Any]] | None = None,
    warnings: Sequence[str] = (),
    new_visit: bool | None = None,
    candidates: Sequence[CandidateTransition] | None = None,
) -> list[EventDraft]:
    """The events of a transition to `target`, which is not checked here.

    `new_visit` decides whether entering the current activity begins a new visit; None derives it from the transitions.
    `candidates` are the transitions of the record, if the caller has them.
    """
    candidates = list_transitions(workflow, record) if candidates is None else candidates
    if new_visit is None:
        new_visit = target == record.activity and starts_new_visit(workflow, record, condition, candidates)
    body: dict[str, Any] = {"activity": target, "from": record.activity, "condition": condition or ""}
    body |= {"manifest": list(manifest)} if manifest is not None else {}
    body |= {"warnings": list(warnings)} if warnings else {}
    if target == record.activity and not new_visit:
        return [EventDraft(ENTERED, body)]
    body |= {"again": True} if new_visit else {}
    body |= _passed_activities(target, candidates) | _describe_loop_move(workflow, record, target)
    type_ = COMPLETED if ends_workflow(workflow, target) else ENTERED
    # A loop through other activities neither runs the exit actions of its own activity nor, on return, its entry actions.
    leaving = [] if body["how"] == "loop" else _draft_exit_actions(workflow, record)
    drafts = [*leaving, EventDraft(type_, body)]
    return drafts if body["how"] == "return" else [*drafts, *_draft_entry_actions(workflow, fold_drafts(record, drafts, 0))]


def starts_new_visit(workflow: Workflow, record: Record, claim: str | None, candidates: Sequence[CandidateTransition]) -> bool:
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
    claimed = bool(claim) and not check_claim(workflow, record, record.activity, claim, candidates)
    return claimed or any(candidate.holds for candidate in own)


def _passed_activities(target: str, candidates: Sequence[CandidateTransition]) -> dict[str, Any]:
    candidate = next((candidate for candidate in candidates if candidate.to == target and candidate.via), None)
    return {"passed": list(candidate.via)} if candidate is not None else {}


def _describe_loop_move(workflow: Workflow, record: Record, target: str) -> dict[str, Any]:
    """The effect on a loop through activities: enter its first, go to its next, return to its owner, or end the loop."""
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

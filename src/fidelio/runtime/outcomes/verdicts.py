"""Verdicts as tools, notes and files show them, from recorded results and what is read live. Pure.

Every suggested call is valid for its own tool and names a tool that the caller has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from fidelio.clock import format_iso
from fidelio.runtime.outcomes.record import Criterion, CriterionResult, Evaluation, Outcome, Trend, VerdictStatus
from fidelio.runtime.outcomes.rules import (
    GradeStatus,
    LiveConditions,
    count_met,
    decide_status,
    find_worst,
    is_stalled,
    read_situation,
)
from fidelio.runtime.outcomes.rules import grade as find_grade
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.shell.plans import WAIT_MS, Suggestion, Tools, suggest
from fidelio.sandbox.commands.projection import project

Confidence: TypeAlias = Literal["high", "medium", "low"]
# What an answer shows of a reason.
_SHOWN_REASON = 400
_HISTORY_LIMIT = 6

_TREND_SENTENCES: dict[Trend, str] = {
    "first_iteration": "There is no earlier evaluation to compare with.",
    "improving": "The verdict is better than after the wake before.",
    "stable": "The verdict is the same as after the wake before.",
    "regressing": "The verdict is worse than after the wake before.",
}


class OutcomeVerdict(msgspec.Struct, frozen=True):
    """The verdict about an outcome now."""

    status: VerdictStatus
    promotion_ready: bool
    trend: Trend
    summary: str
    next_step: Suggestion | None
    results: tuple[CriterionResult, ...] = ()


def view_verdict(
    record: RuntimeRecord, outcome: Outcome | None, conditions: LiveConditions, tools: Tools, session: str = ""
) -> OutcomeVerdict:
    """The verdict about an outcome. `session` is the id that suggestions name, empty for the caller's own session."""
    status = decide_status(outcome, conditions)
    latest = outcome.latest if outcome else None
    return OutcomeVerdict(
        status=status,
        promotion_ready=status == "pass",
        # Recorded, not compared again: the newest entry would be compared with itself.
        trend=latest.trend if latest else "first_iteration",
        summary=_summarize(outcome, status, conditions),
        next_step=_find_next_step(record, outcome, status, conditions, tools, session),
        results=latest.results if latest else (),
    )


def read_verdict(
    record: RuntimeRecord, *, shell_busy: bool, tools: Tools, ignoring: str = "", now: int = 0, session: str = ""
) -> dict[str, Any]:
    """The evaluation of the worst outcome as JSON. `ignoring`: the request or call that is being carried out."""
    conditions = read_situation(record, shell_busy=shell_busy, ignoring=ignoring, now=now)
    return describe_worst(record, conditions, tools, session)


def describe_worst(record: RuntimeRecord, conditions: LiveConditions, tools: Tools, session: str = "") -> dict[str, Any]:
    """The evaluation of the outcome with the worst verdict."""
    outcome = find_worst(record.outcomes.outcomes, conditions)
    return describe_verdict(outcome, view_verdict(record, outcome, conditions, tools, session))


def describe_verdict(outcome: Outcome | None, verdict: OutcomeVerdict) -> dict[str, Any]:
    latest = outcome.latest if outcome else None
    return {
        "status": verdict.status,
        "confidence": _find_confidence(outcome, verdict),
        "promotionReady": verdict.promotion_ready,
        "trend": verdict.trend,
        "trendSummary": _TREND_SENTENCES[verdict.trend],
        "summary": verdict.summary,
        "evidence": list(_list_evidence(outcome)),
        "nextSuggestedTool": verdict.next_step,
        "outcomeId": outcome.id if outcome else None,
        "outcomeTitle": outcome.title if outcome else None,
        "author": outcome.author if outcome else None,
        "iteration": latest.iteration if latest else None,
        "criteria": describe_results(outcome) if outcome else [],
        "decidedBy": (outcome.decided_by or None) if outcome else None,
    }


def describe_results(outcome: Outcome) -> list[dict[str, Any]]:
    """Every criterion with what was found out about it last, and who found it out: `check` or `grader`, a model."""
    results = outcome.latest.results if outcome.latest else ()
    padded = (*results, *(CriterionResult(reason="Not evaluated yet.") for _ in outcome.criteria[len(results) :]))
    return [
        {
            "id": f"c{number}",
            "text": criterion.text,
            "verdict": result.verdict,
            "judgedBy": result.by or None,
            "reason": result.reason[:_SHOWN_REASON],
            "citations": list(result.citations),
        }
        for number, (criterion, result) in enumerate(zip(outcome.criteria, padded, strict=False), 1)
    ]


def describe_outcome(outcome: Outcome | None) -> dict[str, Any] | None:
    """The definition of an outcome."""
    if outcome is None:
        return None
    return {
        "outcomeId": outcome.id,
        "title": outcome.title,
        "detail": outcome.detail or None,
        "successCriteria": [_describe_criterion(criterion) for criterion in outcome.criteria],
        "author": outcome.author,
        "maxIterations": outcome.max_iterations,
        "decided": outcome.decided or None,
        "decidedBy": outcome.decided_by or None,
    }


def _describe_criterion(criterion: Criterion) -> str | dict[str, Any]:
    return {"text": criterion.text, "check": criterion.check} if criterion.check else criterion.text


def describe_evaluation(outcome: Outcome, evaluation: Evaluation) -> dict[str, Any]:
    """An entry of the history."""
    met = sum(result.verdict == "met" for result in evaluation.results)
    return {
        "evaluatedAt": format_iso(evaluation.time),
        "wakeId": evaluation.wake or None,
        "iteration": evaluation.iteration,
        "outcomeId": outcome.id,
        "outcomeTitle": outcome.title,
        "gradeStatus": _grade_entry(evaluation),
        "matchedCriteria": met,
        "totalCriteria": len(outcome.criteria),
        "evaluation": {
            "status": evaluation.status,
            "promotionReady": evaluation.status == "pass",
            "trend": evaluation.trend,
            "summary": evaluation.summary,
        },
    }


def _grade_entry(evaluation: Evaluation) -> GradeStatus:
    if evaluation.status == "pass":
        return "done_candidate"
    return "in_progress" if evaluation.results else "sleeping"


def read_grade(record: RuntimeRecord, *, shell_busy: bool, tools: Tools, now: int = 0, session: str = "") -> dict[str, Any]:
    """The grade of the session as JSON. It is read from the record and calls no model."""
    conditions = read_situation(record, shell_busy=shell_busy, now=now)
    found = find_grade(record.outcomes.outcomes, conditions)
    worst = find_worst(record.outcomes.outcomes, conditions)
    sentences = {
        "missing_outcome": "No outcome is defined.",
        "blocked": _describe_blocked(conditions),
        "sleeping": f"{conditions.queued} queued wakes have not run yet.",
        "done_candidate": "Every criterion is met on record.",
        "in_progress": f"{found.matched} of {found.total} criteria are met on record.",
    }
    verdict = view_verdict(record, worst, conditions, tools, session)
    step = verdict.next_step
    if found.status == "done_candidate":
        step = suggest(tools, "outcome_evaluate", _target(session), "Check it once more before relying on it.")
    return {
        "status": found.status,
        "confidence": "high" if found.status in ("missing_outcome", "blocked") else "medium" if found.matched else "low",
        "summary": sentences[found.status],
        "matchedCriteria": found.matched,
        "totalCriteria": found.total,
        "evidence": [line for outcome in record.outcomes.outcomes for line in _list_evidence(outcome)],
        "nextSuggestedTool": step,
    }


def find_gate_step(verdict: dict[str, Any], tools: Tools) -> Suggestion | None:
    """What to do about a gate that is closed; None if it is open."""
    if verdict["promotionReady"] or verdict["status"] == "missing_outcome":
        return None
    if verdict["trend"] in ("stable", "regressing"):
        why = "The verdict does not get better: see what the last evaluations said."
        if history := suggest(tools, "outcome_history", {}, why):
            return history
    step: Suggestion | None = verdict["nextSuggestedTool"]
    return step or suggest(tools, "outcome_evaluate", {}, "Evaluate the outcome.")


def _find_confidence(outcome: Outcome | None, verdict: OutcomeVerdict) -> Confidence:
    if verdict.status in ("missing_outcome", "blocked", "fail"):
        return "high"
    if verdict.status == "pass":
        is_judged = outcome is not None and not outcome.decided and any(result.by == "grader" for result in verdict.results)
        return "medium" if is_judged else "high"
    return "low" if verdict.status == "uncertain" else "medium"


def _summarize(outcome: Outcome | None, status: VerdictStatus, conditions: LiveConditions) -> str:
    if outcome is None:
        return "No outcome is defined."
    if conditions.is_blocked:
        return _describe_blocked(conditions)
    if conditions.is_busy:
        return "A command still runs in the shell."
    if conditions.queued:
        return f"{conditions.queued} queued wakes have not run yet."
    if outcome.decided:
        return f"A person has decided: {outcome.decided}."
    return _summarize_results(outcome, status)


def _summarize_results(outcome: Outcome, status: VerdictStatus) -> str:
    total, met = len(outcome.criteria), count_met(outcome)
    if outcome.latest is None or not outcome.latest.results:
        return "The outcome has not been evaluated yet." if outcome.latest is None else "The last wake evaluated nothing."
    if outcome.latest.is_void:
        return "Something was changed after the last evaluation, so it does not count any more."
    sentences: dict[VerdictStatus, str] = {
        "fail": "A check has failed.",
        "not_ready": "A criterion is not met.",
        "uncertain": "A criterion could not be verified.",
        "pass": "Every criterion is met.",
    }
    results = enumerate(outcome.latest.results, 1)
    unmet = next((f" c{number}: {result.reason}" for number, result in results if result.verdict != "met"), "")
    return f"{sentences[status]} {met} of {total} criteria are met.{unmet}"[:_SHOWN_REASON]


def _describe_blocked(conditions: LiveConditions) -> str:
    if conditions.approval is not None:
        return f"The call of {conditions.approval.tool} waits for a person."
    return f"The custom tool {conditions.custom.name if conditions.custom else ''} waits for its result."


def _list_evidence(outcome: Outcome | None) -> Iterator[str]:
    """Lines about the criteria, with what was cited for them."""
    if outcome is None:
        return
    for shown in describe_results(outcome):
        judged = {"check": "by a check", "grader": "by a model"}.get(shown["judgedBy"] or "", "by nobody")
        cited = f" Cited: {', '.join(shown['citations'])}." if shown["citations"] else ""
        yield f"{shown['id']} {shown['verdict']}, judged {judged}: {shown['reason']}{cited}"


def _target(session: str) -> dict[str, str]:
    return {"sessionId": session} if session else {}


def _find_next_step(
    record: RuntimeRecord,
    outcome: Outcome | None,
    status: VerdictStatus,
    conditions: LiveConditions,
    tools: Tools,
    session: str,
) -> Suggestion | None:
    if outcome is None:
        arguments = {"title": "What must become true"}
        return (
            None
            if session
            else suggest(tools, "outcome_define", arguments, "Define what must become true, and how to check it.")
        )
    if status == "pass":
        return None
    if conditions.is_blocked:
        return _suggest_for_blocked(record, conditions, tools, session)
    if conditions.is_busy:
        return _suggest_waiting(record, tools, session)
    if conditions.queued:
        return suggest(tools, "session_get_snapshot", _target(session), "See which wakes are queued.")
    return _suggest_for_results(outcome, tools, session)


def _suggest_for_blocked(record: RuntimeRecord, conditions: LiveConditions, tools: Tools, session: str) -> Suggestion | None:
    approval = conditions.approval
    snapshot = suggest(tools, "session_get_snapshot", _target(session), "See what the session waits for.")
    if approval is None or session:
        return snapshot
    found = project(approval.command, approval.cwd or record.shell.cwd) if approval.command else None
    alternative = suggest(tools, found.tool, found.arguments, "It only reads and needs no approval.") if found else None
    return (
        alternative
        or suggest(tools, "permissions_check", {"toolName": approval.tool}, "See why this call waits for a person.")
        or suggest(tools, "permissions_describe", {}, "See what waits for a person.")
    )


def _suggest_waiting(record: RuntimeRecord, tools: Tools, session: str) -> Suggestion | None:
    if session:
        return suggest(tools, "session_get_snapshot", _target(session), "See whether its command has ended.")
    running = next(iter(record.shell.unsettled), None)
    named = {"commandId": running.id} if running is not None else {}
    return suggest(tools, "shell_wait", {**named, "timeoutMs": WAIT_MS}, "A command runs: wait for it.")


def _suggest_for_results(outcome: Outcome, tools: Tools, session: str) -> Suggestion | None:
    latest = outcome.latest
    evaluate = suggest(tools, "outcome_evaluate", _target(session), "Run the checks and read the verdict.")
    if latest is None or not latest.results or latest.is_void:
        return evaluate
    if is_stalled(outcome):
        limit = min(len(outcome.evaluations), _HISTORY_LIMIT)
        why = "Several evaluations changed nothing: see what they said."
        if history := suggest(tools, "outcome_history", {**_target(session), "limit": limit}, why):
            return history
    if latest.wake:
        # Without the id of a wake the call would be refused.
        why = "See what the wake did that was evaluated last."
        if trace := suggest(tools, "session_get_trace", {"wakeId": latest.wake, **_target(session)}, why):
            return trace
    return evaluate

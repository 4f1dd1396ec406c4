"""The files about outcomes: what must become true, how far it is, the verdicts, and what to do next.

They show the recorded verdicts: writing them runs no check and calls no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fidelio.runtime.artifacts.model import RuntimeFile, Subject
from fidelio.runtime.outcomes.record import OutcomesRecord
from fidelio.runtime.outcomes.verdicts import describe_evaluation, describe_outcome, read_grade, read_verdict
from fidelio.runtime.record import RuntimeRecord


def _part(record: RuntimeRecord) -> OutcomesRecord:
    return record.outcomes


def _describe_outcomes(subject: Subject) -> Mapping[str, Any]:
    outcomes = subject.record.outcomes
    return {
        "sessionId": subject.session,
        "activeOutcome": describe_outcome(outcomes.active),
        "outcomes": [describe_outcome(outcome) for outcome in outcomes.outcomes],
    }


def _describe_grade(subject: Subject) -> Mapping[str, Any]:
    record = subject.record
    busy = record.shell.running is not None
    grade = read_grade(record, shell_busy=busy, tools=subject.tools, now=subject.now)
    return {"sessionId": subject.session, "outcomeTitle": _title(record), "grade": grade}


def _describe_verdict(subject: Subject) -> Mapping[str, Any]:
    record, outcome = subject.record, subject.record.outcomes.active
    busy = record.shell.running is not None
    latest = outcome.latest if outcome is not None else None
    return {
        "sessionId": subject.session,
        "outcomeTitle": _title(record),
        "evaluation": read_verdict(record, shell_busy=busy, tools=subject.tools, now=subject.now),
        "historyCount": len(outcome.evaluations) if outcome is not None else 0,
        "latestIteration": latest.iteration if latest is not None else None,
    }


def _describe_history(subject: Subject) -> Mapping[str, Any]:
    outcomes = subject.record.outcomes.outcomes
    entries = [describe_evaluation(outcome, evaluation) for outcome in outcomes for evaluation in outcome.evaluations]
    return {"sessionId": subject.session, "count": len(entries), "evaluations": entries}


def _title(record: RuntimeRecord) -> str | None:
    return record.outcomes.active.title if record.outcomes.active is not None else None


def _explain_grade(body: Mapping[str, Any]) -> list[str]:
    grade = body["grade"]
    met = f"{grade['matchedCriteria']} of {grade['totalCriteria']} criteria are met"
    return [
        "# Outcome grade",
        f"{body['outcomeTitle'] or 'No outcome'}: {grade['status']}, {met}.",
        grade["summary"],
        *_list_evidence(grade),
        *_explain_step(grade),
    ]


def _explain_repair(body: Mapping[str, Any]) -> list[str]:
    grade = body["grade"]
    steps = list(_explain_step(grade))
    return ["# Outcome repair", grade["summary"], *(steps or ["Nothing needs to be repaired."])]


def _explain_verdict(body: Mapping[str, Any]) -> list[str]:
    evaluation = body["evaluation"]
    ready = "ready" if evaluation["promotionReady"] else "not ready"
    return [
        "# Outcome evaluation",
        f"{body['outcomeTitle'] or 'No outcome'}: {evaluation['status']}, {ready} for promotion, trend {evaluation['trend']}.",
        evaluation["summary"],
        *_list_evidence(evaluation),
        *_explain_step(evaluation),
    ]


def _explain_history(body: Mapping[str, Any]) -> list[str]:
    lines = [
        f"- {entry['evaluatedAt']} {entry['outcomeTitle']}, iteration {entry['iteration']}: {entry['evaluation']['status']}, "
        f"{entry['matchedCriteria']} of {entry['totalCriteria']} met."
        for entry in body["evaluations"]
    ]
    return ["# Outcome evaluations", *(lines or ["Nothing was evaluated yet."])]


def _list_evidence(found: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"- {line}" for line in found["evidence"])


def _explain_step(found: Mapping[str, Any]) -> Iterator[str]:
    step = found["nextSuggestedTool"]
    if step is not None:
        yield f"Next step: `{step['tool']}`. {step['rationale']}"


OUTCOME_FILES = (
    RuntimeFile("outcome.json", _part, _describe_outcomes),
    RuntimeFile("outcome-grade.json", _part, _describe_grade, _explain_grade),
    RuntimeFile("outcome-repair.md", _part, _describe_grade, _explain_repair),
    RuntimeFile("outcome-evaluation.json", _part, _describe_verdict, _explain_verdict),
    RuntimeFile("outcome-evaluations.json", _part, _describe_history, _explain_history),
)

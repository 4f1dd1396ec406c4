"""The part of a session's record that holds its outcomes and the verdicts about them. Pure: no clock, no I/O.

A criterion is a text, and may carry a check that the runtime carries out itself. Verdicts are read from here: lists and
snapshots never evaluate anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from fidelio.ledger.unit_of_work import RecordEvent
from fidelio.runtime import events as e

# Verdicts about an outcome, from worst to best.
VerdictStatus = Literal["missing_outcome", "fail", "blocked", "not_ready", "uncertain", "pass"]
Trend = Literal["first_iteration", "improving", "stable", "regressing"]
CriterionVerdict = Literal["met", "not_met", "unverified"]
# Verdicts that are kept in the record; older ones are read from the events.
HISTORY = 12


class Criterion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of an outcome. `check` is empty, or a mapping with `type` and what that type needs."""

    text: str
    check: dict[str, Any] = {}


class CriterionResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found out about a criterion. `by`: `check`, `grader` or `person`. `citations` are ids of events and digests."""

    verdict: CriterionVerdict
    by: str = ""
    reason: str = ""
    citations: tuple[str, ...] = ()


class Evaluation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A verdict about an outcome at the end of a wake."""

    wake: str
    time: int
    iteration: int
    status: VerdictStatus
    trend: Trend
    results: tuple[CriterionResult, ...] = ()
    summary: str = ""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What must become true. `author` is `person` or `agent`. The same title replaces, another title adds."""

    id: str
    title: str
    criteria: tuple[Criterion, ...]
    author: Literal["person", "agent"]
    detail: str = ""
    defined_seq: int = 0
    max_iterations: int = 3
    evaluations: tuple[Evaluation, ...] = ()
    # A person's decision about the whole outcome, which overrides the checks.
    decided: Literal["", "pass", "fail"] = ""
    decided_by: str = ""

    @property
    def latest(self) -> Evaluation | None:
        return self.evaluations[-1] if self.evaluations else None


class OutcomesRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcomes of a session, oldest first."""

    outcomes: tuple[Outcome, ...] = ()

    @property
    def active(self) -> Outcome | None:
        """The newest outcome."""
        return max(self.outcomes, key=lambda outcome: outcome.defined_seq, default=None)

    def find(self, outcome: str) -> Outcome | None:
        return next((known for known in self.outcomes if known.id == outcome), None)


OutcomeFold: TypeAlias = Callable[[OutcomesRecord, RecordEvent], OutcomesRecord]


def _define(record: OutcomesRecord, event: RecordEvent) -> OutcomesRecord:
    body = event.body
    outcome = Outcome(
        id=body["outcome_id"],
        title=body["title"],
        criteria=tuple(Criterion(item["text"], dict(item.get("check", {}))) for item in body.get("criteria", ())),
        author=body.get("author", "agent"),
        detail=body.get("detail", ""),
        defined_seq=event.seq,
        max_iterations=body.get("max_iterations", 3),
    )
    others = tuple(known for known in record.outcomes if known.title.casefold() != outcome.title.casefold())
    return replace(record, outcomes=(*others, outcome))


def _evaluate(record: OutcomesRecord, event: RecordEvent) -> OutcomesRecord:
    body = event.body
    evaluation = Evaluation(
        wake=body.get("wake_id", ""),
        time=event.time,
        iteration=body["iteration"],
        status=body["status"],
        trend=body["trend"],
        results=msgspec.convert(body.get("results", ()), tuple[CriterionResult, ...]),
        summary=body.get("summary", ""),
    )
    return _change(record, body["outcome_id"], lambda outcome: _append(outcome, evaluation))


def _append(outcome: Outcome, evaluation: Evaluation) -> Outcome:
    """Add an evaluation; another one of the same wake replaces it."""
    kept = tuple(known for known in outcome.evaluations if known.wake != evaluation.wake or not evaluation.wake)
    return replace(outcome, evaluations=(*kept, evaluation)[-HISTORY:])


def _decide(record: OutcomesRecord, event: RecordEvent) -> OutcomesRecord:
    body = event.body
    return _change(
        record, body["outcome_id"], lambda outcome: replace(outcome, decided=body["decision"], decided_by=body.get("by", ""))
    )


def _change(record: OutcomesRecord, name: str, change: Callable[[Outcome], Outcome]) -> OutcomesRecord:
    changed = tuple(change(outcome) if outcome.id == name else outcome for outcome in record.outcomes)
    return replace(record, outcomes=changed)


OUTCOME_FOLDS: Mapping[str, OutcomeFold] = {
    e.OUTCOME_DEFINED: _define,
    e.EVALUATION_ENDED: _evaluate,
    e.OUTCOME_DECIDED: _decide,
}

"""Rules of verdicts: what is read live, what follows from recorded results, trend and grade. Pure.

A verdict never follows from texts: neither from what an agent says nor from its criteria. Nothing here runs a check or a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from fidelio.runtime.outcomes.record import CriterionResult, Evaluation, Outcome, Trend, VerdictStatus
from fidelio.runtime.record import ApprovalRecord, RuntimeRecord
from fidelio.runtime.wakes.record import OpenCall

GradeStatus = Literal["missing_outcome", "blocked", "sleeping", "done_candidate", "in_progress"]
RANKS: dict[VerdictStatus, int] = {
    "missing_outcome": 0,
    "fail": 1,
    "blocked": 2,
    "not_ready": 3,
    "uncertain": 4,
    "pass": 5,
}


class LiveConditions(msgspec.Struct, frozen=True):
    """What is read live of a session: what waits for a person or the caller, a busy shell, queued wakes."""

    approval: ApprovalRecord | None = None
    custom: OpenCall | None = None
    is_busy: bool = False
    queued: int = 0

    @property
    def is_blocked(self) -> bool:
        return self.approval is not None or self.custom is not None

    @property
    def is_unfinished(self) -> bool:
        return self.is_busy or self.queued > 0


def read_situation(record: RuntimeRecord, *, shell_busy: bool, ignoring: str = "", now: int = 0) -> LiveConditions:
    """Read the conditions. `ignoring`: the request or the call that is being carried out, which waits for nobody.

    An answered request does not block, even while its call has not gone on. With `now`, neither does an expired one.
    """
    waiting = (
        approval
        for approval in record.approvals.values()
        if approval.state == "open"
        and ignoring not in (approval.request, approval.tool_use or approval.request)
        and not 0 < approval.expires <= now
    )
    custom = (call for call in record.wakes.open_calls if call.state == "custom" and call.id != ignoring)
    return LiveConditions(
        approval=min(waiting, key=lambda approval: (approval.opened_at, approval.request), default=None),
        custom=next(custom, None),
        is_busy=shell_busy,
        queued=len(record.wakes.queued),
    )


def combine(results: Sequence[CriterionResult], criteria: int) -> VerdictStatus:
    """The verdict that follows from the results of all criteria. Without results nothing was evaluated yet."""
    if not criteria or len(results) != criteria:
        return "not_ready"
    if any(result.verdict == "not_met" and result.by == "check" for result in results):
        return "fail"
    if any(result.verdict == "not_met" for result in results):
        return "not_ready"
    return "uncertain" if any(result.verdict != "met" for result in results) else "pass"


def find_recorded(outcome: Outcome) -> VerdictStatus:
    """The recorded verdict. A person's decision is about the whole outcome and wins; a void evaluation says nothing."""
    if outcome.decided:
        return outcome.decided
    latest = outcome.latest
    if latest is not None and latest.is_void:
        return "not_ready"
    return combine(latest.results if latest else (), len(outcome.criteria))


def decide_status(outcome: Outcome | None, conditions: LiveConditions) -> VerdictStatus:
    """The verdict about an outcome now, in the order of its conditions."""
    if outcome is None:
        return "missing_outcome"
    if conditions.is_blocked:
        return "blocked"
    return "not_ready" if conditions.is_unfinished else find_recorded(outcome)


def find_worst(outcomes: Sequence[Outcome], conditions: LiveConditions) -> Outcome | None:
    """The outcome with the worst verdict; of equal ones the newest."""
    newest_first = sorted(outcomes, key=lambda outcome: outcome.defined_seq, reverse=True)
    return min(newest_first, key=lambda outcome: RANKS[decide_status(outcome, conditions)], default=None)


def compute_rank(status: VerdictStatus) -> int:
    """What verdicts are compared by. A verdict that is ready for promotion counts more than its rank."""
    return RANKS[status] + (status == "pass")


def find_previous(outcome: Outcome, wake: str) -> Evaluation | None:
    """The evaluation to compare with: the newest of another wake, and never that of the wake itself."""
    earlier = (known for known in reversed(outcome.evaluations) if not wake or known.wake != wake)
    return next(earlier, None)


def find_trend(outcome: Outcome, wake: str, status: VerdictStatus) -> Trend:
    previous = find_previous(outcome, wake)
    if previous is None:
        return "first_iteration"
    now, before = compute_rank(status), compute_rank(previous.status)
    if now == before:
        return "stable"
    return "improving" if now > before else "regressing"


def find_iteration(outcome: Outcome, wake: str) -> int:
    """The number of the evaluation, from 0. A wake in which nothing was checked or graded does not count."""
    previous = find_previous(outcome, wake)
    return 0 if previous is None else previous.iteration + bool(previous.results)


def is_stalled(outcome: Outcome) -> bool:
    """Whether the last evaluations changed nothing, so that their history says more than another attempt."""
    return len(outcome.evaluations) >= 2 and all(known.status != "pass" for known in outcome.evaluations[-3:])


def needs_another_wake(outcome: Outcome, status: VerdictStatus, iteration: int, *, has_grader: bool) -> bool:
    """Whether a person's outcome lets the session go on: it can still be met, and evaluations are left."""
    if outcome.author != "person" or outcome.decided or status in ("pass", "blocked", "missing_outcome"):
        return False
    # What nobody can grade is not graded after another wake either.
    is_hopeless = status == "uncertain" and not has_grader
    return not is_hopeless and iteration + 1 < outcome.max_iterations


class Grade(msgspec.Struct, frozen=True):
    """Where a session stands with all its outcomes, from what is recorded."""

    status: GradeStatus
    matched: int = 0
    total: int = 0


def grade(outcomes: Sequence[Outcome], conditions: LiveConditions) -> Grade:
    total = sum(len(outcome.criteria) for outcome in outcomes)
    matched = sum(map(count_met, outcomes))
    if not outcomes:
        return Grade("missing_outcome")
    if conditions.is_blocked:
        return Grade("blocked", matched, total)
    if conditions.queued:
        return Grade("sleeping", matched, total)
    is_done = all(find_recorded(outcome) == "pass" for outcome in outcomes)
    return Grade("done_candidate" if is_done else "in_progress", matched, total)


def count_met(outcome: Outcome) -> int:
    """How many criteria are met on record."""
    if outcome.decided:
        return len(outcome.criteria) if outcome.decided == "pass" else 0
    latest = outcome.latest
    return sum(result.verdict == "met" for result in latest.results) if latest and not latest.is_void else 0

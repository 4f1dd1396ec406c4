"""Evaluation of the outcomes of a session: run the checks, ask the grader, and build the events of the verdicts.

It is done at the end of a wake and by outcome_evaluate for the own session. Everything else reads what is recorded. Nothing is
committed here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from fidelio.errors import RuntimeProblem, SandboxError, UsageProblem
from fidelio.ids import new_id
from fidelio.ledger.model import NewEvent
from fidelio.providers.model import TokenUsage
from fidelio.runtime import events as e
from fidelio.runtime.outcomes.checking import CheckContext, carry_out
from fidelio.runtime.outcomes.definitions import EVALUATE
from fidelio.runtime.outcomes.evidence import Evidence, collect_evidence
from fidelio.runtime.outcomes.gate import check_gate, is_shell_busy
from fidelio.runtime.outcomes.grader import GradeModel, Grading, grade_criteria
from fidelio.runtime.outcomes.parsing import parse_outcome
from fidelio.runtime.outcomes.record import CriterionResult, Outcome, VerdictStatus
from fidelio.runtime.outcomes.rules import (
    LiveConditions,
    combine,
    find_iteration,
    find_trend,
    needs_another_wake,
    read_situation,
)
from fidelio.runtime.outcomes.verdicts import (
    OutcomeVerdict,
    describe_worst,
    find_gate_step,
    read_grade,
    read_verdict,
    view_verdict,
)
from fidelio.runtime.outcomes.workspace import WorkspaceView
from fidelio.runtime.shell.settle import fold_ahead
from fidelio.runtime.specs import build_spec
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext, ToolCall
from fidelio.sandbox.model import SandboxSpec

__all__ = [
    "EvaluationRun",
    "GradeModel",
    "OutcomeVerdict",
    "check_gate",
    "evaluate",
    "find_gate_step",
    "observe_busy",
    "parse_outcome",
    "read_grade",
    "read_verdict",
]

# All checks of an evaluation together, at the end of a wake and in a tool call.
WAKE_SECONDS = 300.0
CALL_SECONDS = 35.0


class EvaluationRun(msgspec.Struct, frozen=True):
    """The result of an evaluation: what to commit, and the verdict about the worst outcome as JSON.

    `goes_on`: an outcome of a person can still be met, and evaluations are left. `is_busy`: a command still runs.
    """

    verdict: dict[str, Any]
    verdicts: tuple[OutcomeVerdict, ...] = ()
    events: tuple[NewEvent, ...] = ()
    blobs: tuple[bytes, ...] = ()
    goes_on: bool = False
    is_busy: bool = False
    usage: TokenUsage = TokenUsage()


class _Judged(msgspec.Struct, frozen=True):
    """An evaluated outcome."""

    outcome: Outcome
    status: VerdictStatus
    iteration: int
    results: tuple[CriterionResult, ...]
    usage: TokenUsage = TokenUsage()


async def observe_busy(context: RuntimeContext, session: LoadedRuntime) -> bool:
    """Whether a command of a session runs, also of another session than the caller's. Starts no sandbox."""
    call = ToolCall(context, session, "", EVALUATE, SandboxSpec("", "", ()), frozenset())
    call.build_spec = build_spec
    try:
        return await is_shell_busy(call)
    except (SandboxError, RuntimeProblem, UsageProblem):
        # A sandbox lives and does not say what it does: the work may go on.
        return True


async def evaluate(
    context: RuntimeContext,
    session: LoadedRuntime,
    *,
    wake: str,
    grade: GradeModel | None,
    tools: frozenset[str] = frozenset(),
    seconds: float = WAKE_SECONDS,
    ignoring: str = "",
) -> EvaluationRun:
    """Evaluate every outcome. `ignoring`: the call that asks for it. `tools`: those that suggestions may name.

    While the session waits for a person nothing is evaluated or recorded: its wake has not ended. While a command runs or wakes
    are queued the entry of the wake says so, without a check.
    """
    record = session.record
    is_busy = bool(record.outcomes.outcomes) and await observe_busy(context, session)
    conditions = read_situation(record, shell_busy=is_busy, ignoring=ignoring, now=context.clock())
    judged: Sequence[_Judged] = ()
    if not conditions.is_blocked:
        judged = await _evaluate_all(context, session, conditions, wake, grade, seconds)
    events = tuple(event for each in judged for event in _describe(each, wake))
    after = fold_ahead(record, events, now=context.clock())
    return EvaluationRun(
        verdict=describe_worst(after, conditions, tools),
        verdicts=tuple(view_verdict(after, outcome, conditions, tools) for outcome in after.outcomes.outcomes),
        events=events,
        goes_on=not conditions.is_unfinished and any(_goes_on(each, grade) for each in judged),
        is_busy=is_busy,
        usage=_sum_usage(each.usage for each in judged),
    )


def _goes_on(judged: _Judged, grade: GradeModel | None) -> bool:
    return needs_another_wake(judged.outcome, judged.status, judged.iteration, has_grader=grade is not None)


def _sum_usage(usages: Any) -> TokenUsage:
    total = TokenUsage()
    for usage in usages:
        pairs = ((name, getattr(total, name) + getattr(usage, name)) for name in TokenUsage.__struct_fields__)
        total = TokenUsage(**dict(pairs))
    return total


async def _evaluate_all(
    context: RuntimeContext,
    session: LoadedRuntime,
    conditions: LiveConditions,
    wake: str,
    grade: GradeModel | None,
    seconds: float,
) -> list[_Judged]:
    outcomes = session.record.outcomes.outcomes
    if conditions.is_unfinished:
        return [_Judged(outcome, "not_ready", find_iteration(outcome, wake), ()) for outcome in outcomes]
    deadline = asyncio.get_running_loop().time() + seconds
    evaluator = _Evaluator(context, session, grade, deadline)
    async with WorkspaceView(context, session) as evaluator.view:
        return [await evaluator.evaluate(outcome, wake) for outcome in outcomes]


class _Evaluator:
    """An evaluation of all outcomes of a session. Evidence is collected once, and only if a criterion needs it."""

    def __init__(self, context: RuntimeContext, session: LoadedRuntime, grade: GradeModel | None, deadline: float) -> None:
        self._context, self._session, self._grade, self._deadline = context, session, grade, deadline
        self.view = WorkspaceView(context, session)
        self._evidence: tuple[Evidence, ...] | None = None

    async def evaluate(self, outcome: Outcome, wake: str) -> _Judged:
        iteration = find_iteration(outcome, wake)
        if outcome.decided:
            return _Judged(outcome, outcome.decided, iteration, ())
        checked = {
            number: await self._check(outcome, number) for number, criterion in enumerate(outcome.criteria) if criterion.check
        }
        graded = await self._grade_rest(outcome, [number for number in range(len(outcome.criteria)) if number not in checked])
        results = tuple((checked.get(number) or graded.results[number]) for number in range(len(outcome.criteria)))
        return _Judged(outcome, combine(results, len(outcome.criteria)), iteration, results, graded.usage)

    async def _check(self, outcome: Outcome, number: int) -> CriterionResult:
        is_own = outcome.author != "person"
        subject = CheckContext(self._context, self._session, self.view, self._deadline, is_own, outcome.defined_seq)
        return await carry_out(subject, outcome.criteria[number].check)

    async def _grade_rest(self, outcome: Outcome, numbers: Sequence[int]) -> Grading:
        if not numbers:
            return Grading({})
        if self._evidence is None:
            self._evidence = await collect_evidence(self._context.ledger, self._session.id, self._session.record, self.view)
        conversation = f"{self._session.id}:grader"
        return await grade_criteria(outcome, numbers, self._evidence, self._grade, conversation=conversation)


def _describe(judged: _Judged, wake: str) -> tuple[NewEvent, NewEvent]:
    """The events of a verdict."""
    outcome, status = judged.outcome, judged.status
    named = {"outcome_id": outcome.id, "iteration": judged.iteration, **({"wake_id": wake} if wake else {})}
    started = NewEvent(type=e.EVALUATION_STARTED, body=named, id=new_id("evt_", 20))
    summary = _summarize(judged)
    body = {
        **named,
        "outcome_evaluation_start_id": started.id,
        "result": _name_result(judged),
        "explanation": summary,
        "usage": msgspec.to_builtins(judged.usage),
        "status": status,
        "trend": find_trend(outcome, wake, status),
        "summary": summary,
        "results": [msgspec.to_builtins(result) for result in judged.results],
    }
    return started, NewEvent(type=e.EVALUATION_ENDED, body=body)


def _name_result(judged: _Judged) -> str:
    """The verdict in the words of the vendor."""
    if judged.status == "pass":
        return "satisfied"
    is_last = bool(judged.results) and judged.iteration + 1 >= judged.outcome.max_iterations
    return "max_iterations_reached" if is_last else "needs_revision"


def _summarize(judged: _Judged) -> str:
    if judged.outcome.decided:
        return f"A person has decided: {judged.outcome.decided}."
    if not judged.results:
        return "A command still ran or wakes were queued, so nothing was evaluated."
    met = sum(result.verdict == "met" for result in judged.results)
    unmet = next((result.reason for result in judged.results if result.verdict != "met"), "")
    return f"{met} of {len(judged.results)} criteria are met. {unmet}".strip()[:600]

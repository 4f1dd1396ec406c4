"""The tools for outcomes: define, read, grade, evaluate, history.

Only outcome_evaluate of the own session runs checks or a model. Another session of the same agent is read from its record and
what is live there; it cannot be written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.errors import ToolRefused
from fidelio.ids import new_id
from fidelio.ledger.model import NewEvent
from fidelio.runtime.navigation.visibility import load_visible
from fidelio.runtime.outcomes.decisions import plan_outcome
from fidelio.runtime.outcomes.evaluation import CALL_SECONDS, evaluate, observe_busy
from fidelio.runtime.outcomes.parameters import OutcomeDefine, OutcomeHistory
from fidelio.runtime.outcomes.record import OutcomesRecord
from fidelio.runtime.outcomes.rules import find_worst, read_situation
from fidelio.runtime.outcomes.verdicts import (
    describe_evaluation,
    describe_outcome,
    describe_verdict,
    read_grade,
    read_verdict,
    view_verdict,
)
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.shell.settle import fold_ahead
from fidelio.runtime.tools.model import Implementation, LoadedRuntime, Preparation, ToolCall, ToolResult
from fidelio.runtime.tools.parameters import SessionParameters

_COMMAND_TOOLS = frozenset({"shell_run", "shell_exec"})
# What outcome_evaluate shows of the history.
_SHOWN = 6


async def _define(call: ToolCall, arguments: OutcomeDefine, _: Preparation) -> ToolResult:
    if arguments.sessionId not in (None, call.session.id):
        raise ToolRefused(
            f"Session {arguments.sessionId!r:.80} is another session: an outcome can only be defined in the own one.",
            remedy="Leave sessionId out, or delegate with an outcome.",
            reason="other_session",
        )
    body = {name: value for name, value in msgspec.to_builtins(arguments).items() if value is not None}
    event = replace(
        await plan_outcome(call.session, body, author="agent", wake=call.wake),
        id=new_id("evt_", 20),
    )
    _refuse_commands(call, event)
    known = call.record.outcomes.find_title(event.body["title"])
    after = fold_ahead(call.record, (event,), now=call.context.clock())
    output = {
        "sessionId": call.session.id,
        "activeOutcome": describe_outcome(after.outcomes.active),
        "eventId": event.id,
        "replaced": known.id if known else None,
    }
    return ToolResult(output=output, events=(event,))


def _refuse_commands(call: ToolCall, event: NewEvent) -> None:
    """An agent that has no commands does not get them through a check."""
    types = {criterion.get("check", {}).get("type") for criterion in event.body["criteria"]}
    if "command" in types and not _COMMAND_TOOLS & call.tools:
        raise ToolRefused(
            "This agent has no tool that runs commands, so it cannot define a check that runs one.",
            remedy="Use file_exists, file_matches or json_schema, or a criterion without a check.",
            reason="command_unavailable",
        )


async def _read(call: ToolCall, arguments: SessionParameters, _: Preparation) -> ToolResult:
    target = await load_visible(call, arguments.sessionId)
    outcomes = target.record.outcomes
    output = {**_head(target), "outcomes": [describe_outcome(outcome) for outcome in outcomes.outcomes]}
    return ToolResult(output=output)


async def _grade(call: ToolCall, arguments: SessionParameters, _: Preparation) -> ToolResult:
    target = await load_visible(call, arguments.sessionId)
    is_busy = await observe_busy(call.context, target)
    return ToolResult(output={**_head(target), "grade": _read_grade(call, target, target.record, is_busy=is_busy)})


async def _evaluate(call: ToolCall, arguments: SessionParameters, _: Preparation) -> ToolResult:
    target = await load_visible(call, arguments.sessionId)
    if target.id != call.session.id:
        is_busy = await observe_busy(call.context, target)
        return ToolResult(output=_describe_all(call, target, target.record, is_busy=is_busy))
    run = await evaluate(
        call.context,
        call.session,
        wake=call.wake,
        grade=call.origin.grade,
        tools=call.tools,
        seconds=CALL_SECONDS,
        ignoring=call.id,
    )
    after = fold_ahead(call.record, run.events, now=call.context.clock())
    output = {**_describe_all(call, target, after, is_busy=run.is_busy), "evaluation": run.verdict}
    return ToolResult(output=output, events=run.events, blobs=run.blobs)


async def _history(call: ToolCall, arguments: OutcomeHistory, _: Preparation) -> ToolResult:
    target = await load_visible(call, arguments.sessionId)
    listed = list(list_history(target.record.outcomes))
    active = target.record.outcomes.active
    output = {
        **_head(target),
        "count": len(listed),
        "latestIteration": active.latest.iteration if active and active.latest else None,
        "evaluations": listed[-arguments.limit :],
    }
    return ToolResult(output=output)


def _head(target: LoadedRuntime) -> dict[str, Any]:
    return {"sessionId": target.id, "activeOutcome": describe_outcome(target.record.outcomes.active)}


def _named(call: ToolCall, target: LoadedRuntime) -> str:
    """The id that suggestions name; empty for the own session."""
    return "" if target.id == call.session.id else target.id


def _read_grade(call: ToolCall, target: LoadedRuntime, record: RuntimeRecord, *, is_busy: bool) -> dict[str, Any]:
    now, session = call.context.clock(), _named(call, target)
    return read_grade(record, shell_busy=is_busy, tools=call.tools, now=now, session=session)


def _describe_all(call: ToolCall, target: LoadedRuntime, record: RuntimeRecord, *, is_busy: bool) -> dict[str, Any]:
    now, session = call.context.clock(), _named(call, target)
    conditions = read_situation(record, shell_busy=is_busy, ignoring=call.id, now=now)
    outcomes = record.outcomes
    worst = find_worst(outcomes.outcomes, conditions)
    return {
        "sessionId": target.id,
        "activeOutcome": describe_outcome(outcomes.active),
        "grade": _read_grade(call, target, record, is_busy=is_busy),
        "evaluation": read_verdict(record, shell_busy=is_busy, tools=call.tools, ignoring=call.id, now=now, session=session),
        # The worst is in `evaluation` already.
        "evaluations": [
            describe_verdict(outcome, view_verdict(record, outcome, conditions, call.tools, session))
            for outcome in outcomes.outcomes
            if outcome is not worst
        ],
        "evaluationHistory": list(list_history(outcomes))[-_SHOWN:],
    }


def list_history(outcomes: OutcomesRecord) -> Iterable[dict[str, Any]]:
    """The evaluations on record of all outcomes, oldest first."""
    entries = [(entry, outcome) for outcome in outcomes.outcomes for entry in outcome.evaluations]
    ordered = sorted(entries, key=lambda pair: (pair[0].time, pair[1].defined_seq))
    return (describe_evaluation(outcome, entry) for entry, outcome in ordered)


IMPLEMENTATIONS: dict[str, Implementation] = {
    "outcome_define": Implementation(_define),
    "outcome_read": Implementation(_read),
    "outcome_grade": Implementation(_grade),
    "outcome_evaluate": Implementation(_evaluate),
    "outcome_history": Implementation(_history),
}

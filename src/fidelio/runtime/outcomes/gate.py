"""The gate in front of writes that other sessions see: every outcome of the session must have passed.

It is computed from the record, without the approval that is being carried out: otherwise the question whether a write is
allowed would itself block the write. Only a person can switch it off, for a single write, and that is an event.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fidelio.errors import ToolRefused
from fidelio.runtime.outcomes.record import Outcome
from fidelio.runtime.outcomes.rules import decide_status, read_situation
from fidelio.runtime.outcomes.verdicts import find_gate_step, read_verdict
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.shell.live import observe
from fidelio.runtime.shell.plans import Tools
from fidelio.runtime.shell.settle import reconcile
from fidelio.runtime.tools.model import ToolCall

# A request shows no more outcomes than this.
_SHOWN = 10


async def is_shell_busy(call: ToolCall) -> bool:
    """Whether a command of the session still runs. Asks the live sandbox, and starts none."""
    shell = call.record.shell
    if not (shell.is_open or shell.unsettled) or await call.context.sandboxes.state(call.session.id) is None:
        return False
    seen = await observe(call)
    findings = reconcile(shell, seen, now=call.context.clock())
    ended = {*(answer.command_id for answer in findings.ended), *findings.lost}
    return any(command.id not in ended for command in shell.unsettled) or (seen.shell is not None and seen.shell.busy)


def refuse_switch(requires: bool | None) -> None:
    """Refuse `requireOutcomePass: false`: the caller cannot switch off what judges it."""
    if requires is False:
        raise ToolRefused(
            "requireOutcomePass: false is refused: only a person can switch the check of the outcome off.",
            remedy="Leave it out.",
            reason="outcome_gate",
        )


def check_gate(
    record: RuntimeRecord,
    *,
    shell_busy: bool,
    request: str,
    requires: bool | None,
    tools: Tools = frozenset(),
    now: int = 0,
) -> None:
    """Raise `ToolRefused` unless every outcome has passed. `request`: the request or call that is being carried out.

    `requires` None: the gate is closed only where an outcome exists. True: it is closed without an outcome, too.
    """
    refuse_switch(requires)
    if record.outcomes.overridden_by or (requires is None and not record.outcomes.outcomes):
        return
    verdict = read_verdict(record, shell_busy=shell_busy, tools=tools, ignoring=request, now=now)
    if not verdict["promotionReady"]:
        raise _refuse(verdict, tools)


def _refuse(verdict: dict[str, Any], tools: Tools) -> ToolRefused:
    step = find_gate_step(verdict, tools) or verdict["nextSuggestedTool"]
    title = f" of {verdict['outcomeTitle']!r:.120}" if verdict["outcomeTitle"] else ""
    remedy = f"Next: {step['tool']}." if step else "Reach the outcome first, or ask a person to decide."
    return ToolRefused(
        f"Nothing was shared: the verdict{title} is {verdict['status']}. {verdict['summary']}",
        remedy=remedy,
        reason="outcome_gate",
        retryable=verdict["status"] in ("blocked", "not_ready"),
        output={"outcomeEvaluation": verdict, "nextOutcomeStep": step},
    )


def describe_outcomes(record: RuntimeRecord, *, shell_busy: bool, request: str) -> Iterator[str]:
    """Lines of the question about a shared write: each outcome, who defined it, and its verdict."""
    outcomes = record.outcomes.outcomes
    if record.outcomes.overridden_by:
        yield f"{record.outcomes.overridden_by} has switched the check of the outcome off for this write."
    if not outcomes:
        yield "No outcome is defined for this session, so nothing was checked."
        return
    conditions = read_situation(record, shell_busy=shell_busy, ignoring=request)
    for outcome in outcomes[-_SHOWN:]:
        yield f"Outcome {outcome.title!r}, defined by {_describe_author(outcome)}: {decide_status(outcome, conditions)}."
    if all(outcome.author != "person" for outcome in outcomes):
        yield "No person has defined an outcome: the agent is judged only by what it has set itself."


def _describe_author(outcome: Outcome) -> str:
    return "a person" if outcome.author == "person" else "the agent itself"

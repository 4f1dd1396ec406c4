"""The tool session_get_snapshot: where a session stands."""

from __future__ import annotations

from typing import Any

import msgspec

from fidelio.clock import format_iso
from fidelio.errors import EnvironmentProblem, SandboxError
from fidelio.ledger.long_text import shorten_to_line
from fidelio.runtime.navigation.listing import count_children
from fidelio.runtime.navigation.own_files import name_session_files
from fidelio.runtime.navigation.summaries import ListedSession, describe_listed, lift_fields
from fidelio.runtime.navigation.verdicts import Verdict, find_verdict
from fidelio.runtime.navigation.visibility import load_visible
from fidelio.runtime.outcomes.record import Outcome
from fidelio.runtime.outcomes.verdicts import describe_outcome, read_grade
from fidelio.runtime.permissions.posture import describe_request
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.shell.live import observe
from fidelio.runtime.shell.plans import Suggestion, plan_next_step, suggest
from fidelio.runtime.shell.views import render_state
from fidelio.runtime.specs import build_spec
from fidelio.runtime.tools.model import LoadedRuntime, Preparation, ToolCall, ToolResult
from fidelio.runtime.tools.parameters import SessionParameters

# The mounts that every session has; the project and each vault are further ones.
_MOUNTS = 5
_SHOWN_WAKES = 10


async def get_snapshot(call: ToolCall, arguments: SessionParameters, _: Preparation) -> ToolResult:
    session = await load_visible(call, arguments.sessionId)
    now, busy = call.context.clock(), await is_shell_busy(call, session)
    listed = describe_listed(call.session, session.session, session.record, now=now, shell_busy=busy)
    other = session.id if session.id != call.session.id else ""
    verdict = find_verdict(session.record, call.tools, now=now, session=other, shell_busy=busy)
    output = {
        **_describe_session(call, session, listed),
        "childCount": await count_children(call.context, session.id),
        **_describe_pending(session.record),
        **_describe_outcome(call, session, verdict, shell_busy=busy),
        **_describe_progress(session),
        "artifactPaths": name_session_files(call) if session.id == call.session.id else {},
        "nextStep": _find_next_step(call, session, listed, verdict, shell_busy=busy),
    }
    return ToolResult(output=output)


async def is_shell_busy(call: ToolCall, session: LoadedRuntime) -> bool:
    """Whether a command runs in the shell. A record does not know of an end that no call has looked for."""
    shell = session.record.shell
    if shell.running is None:
        return False
    state = await call.context.sandboxes.state(session.id)
    if state is None or state.incarnation != shell.incarnation:
        return False
    if session.id != call.session.id:
        return True
    try:
        call.spec = await build_spec(call.context, session)
        live = (await observe(call)).shell
    except (SandboxError, EnvironmentProblem):
        return True
    return live is not None and live.busy


def _describe_session(call: ToolCall, session: LoadedRuntime, listed: ListedSession) -> dict[str, Any]:
    record, row = session.record, session.session
    return {
        "sessionId": session.id,
        "agentId": record.agent,
        "title": record.title or row.name,
        "parentSessionId": row.parent,
        **lift_fields(listed),
        "setupFingerprint": record.wakes.setup or None,
        "currentSetupFingerprint": call.record.wakes.setup or None,
        "environment": {"name": record.environment, "version": record.environment_version},
        "createdAt": format_iso(row.created_at),
        "updatedAt": format_iso(row.updated_at),
        "resourceCount": _MOUNTS + bool(record.mount_mode) + len(record.vaults),
    }


def _describe_pending(record: RuntimeRecord) -> dict[str, Any]:
    """What it waits for, and what waits for it."""
    requests = [describe_request(approval) for approval in record.approvals.values() if approval.state == "open"]
    custom = [{"id": call.id, "name": call.name} for call in record.wakes.blocking if call.state == "custom"]
    queued = [
        {"id": wake.id, "dueAt": format_iso(wake.due), "reason": wake.reason, "note": wake.note, "priority": wake.priority}
        for wake in sorted(record.wakes.queued, key=lambda wake: wake.due)[:_SHOWN_WAKES]
    ]
    return {
        "pendingToolConfirmationRequests": requests,
        "pendingCustomToolRequests": custom,
        "pendingEventCount": record.wakes.pending,
        "queuedWakes": queued,
    }


def _describe_outcome(call: ToolCall, session: LoadedRuntime, verdict: Verdict, *, shell_busy: bool) -> dict[str, Any]:
    record = session.record
    outcome = record.outcomes.active
    other, now = session.id if session.id != call.session.id else "", call.context.clock()
    return {
        "activeOutcome": describe_outcome(outcome),
        "outcomeGrade": read_grade(record, shell_busy=shell_busy, tools=call.tools, now=now, session=other),
        "nextOutcomeStep": verdict.next_step,
        "outcomeTrendSummary": verdict.trend_summary or None,
        "outcomeEvaluation": verdict.json,
        **_count_evaluations(outcome),
    }


def _count_evaluations(outcome: Outcome | None) -> dict[str, Any]:
    latest = outcome.latest if outcome is not None else None
    return {
        "evaluationHistoryCount": len(outcome.evaluations) if outcome is not None else 0,
        "latestIteration": latest.iteration if latest is not None else None,
    }


def _describe_progress(session: LoadedRuntime) -> dict[str, Any]:
    record, wakes = session.record, session.record.wakes
    return {
        "turns": wakes.count,
        "lastWakeId": wakes.current or wakes.last or None,
        "latestSummary": shorten_to_line(wakes.summary, 400) or None,
        "eventCursor": {
            "lastSeq": session.session.last_seq,
            "processedSeq": wakes.processed_seq,
            "compactedSeq": wakes.compacted_seq,
        },
        "usage": msgspec.to_builtins(wakes.usage),
        "shellState": render_state(record.shell),
    }


def _find_next_step(
    call: ToolCall, session: LoadedRuntime, listed: ListedSession, verdict: Verdict, *, shell_busy: bool
) -> Suggestion | None:
    """What runs first, then what is missing for the outcome, then what happened last."""
    is_own, wake = session.id == call.session.id, session.record.wakes.last
    if shell_busy and is_own:
        return plan_next_step(session.record.shell, None, call.tools)
    if not is_own and listed.setup_matches is False:
        args = {"sessionId": session.id}
        return suggest(call.tools, "agent_compare_setup", args, "It worked with another setup: see what differs first.")
    if verdict.next_step is not None and is_own:
        return dict(verdict.next_step)
    args = {"sessionId": session.id, "wakeId": wake}
    return suggest(call.tools, "session_get_trace", args, "Read what its last wake did.") if wake else None

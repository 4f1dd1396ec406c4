"""The checkpoint of a session: where it stands, for an agent that continues after a wake. A projection of the record.

It is read-only and the only continuity that the runtime itself provides. Nothing is read back from it.
"""

from __future__ import annotations

from typing import Any

from fidelio.clock import format_iso
from fidelio.runtime.outcomes.verdicts import describe_evaluation, describe_outcome
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.runtime.wakes.record import QueuedWake, WakeRecord


async def describe_checkpoint(context: RuntimeContext, session: LoadedRuntime) -> dict[str, Any]:
    """The checkpoint as JSON. Ids of events are looked up; everything else is in the record."""
    record, wakes = session.record, session.record.wakes
    due = wakes.next_due
    return {
        "sessionId": session.id,
        "agentId": record.agent,
        "updatedAt": format_iso(session.session.updated_at),
        "lastWakeId": wakes.last or None,
        "eventCursor": {
            "lastProcessedEventId": await _find_event(context, session.id, wakes.processed_seq),
            "lastProcessedSeq": wakes.processed_seq,
            "lastProducedEventId": await _find_event(context, session.id, record.seq),
            "lastProducedSeq": record.seq,
            "contextStartsAfterSeq": wakes.compacted_seq,
        },
        "lastOutcome": _describe_directive(wakes),
        "lastSummary": wakes.summary or None,
        "nextWakeAt": None if due is None else format_iso(due),
        "consecutiveFollowUps": wakes.continues,
        "activeOutcome": describe_outcome(record.outcomes.active),
        "queuedWakes": [_describe_wake(wake) for wake in wakes.queued],
        "stopReason": wakes.stop_reason or None,
        "lastAgentSetupFingerprint": wakes.setup or None,
        "outcomeEvaluationHistory": [
            describe_evaluation(outcome, evaluation)
            for outcome in record.outcomes.outcomes
            for evaluation in outcome.evaluations
        ],
    }


async def _find_event(context: RuntimeContext, session: str, seq: int) -> str | None:
    if seq < 1:
        return None
    return next((event.id for event in await context.ledger.events(session, after=seq - 1, limit=1)), None)


def _describe_directive(wakes: WakeRecord) -> str | None:
    """What the directive of the last wake was: to go on, or to sleep."""
    return None if not wakes.last else "continue" if wakes.continues else "sleep"


def _describe_wake(wake: QueuedWake) -> dict[str, Any]:
    return {"id": wake.id, "reason": wake.reason, "dueAt": format_iso(wake.due), "note": wake.note or None}

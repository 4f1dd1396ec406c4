"""A session in a list: the fields by which an agent chooses which session to look at. Pure.

A summary takes at most `MAX_SUMMARY` characters of JSON; everything else is in session_get_snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec

from fidelio.clock import format_iso
from fidelio.ledger.long_text import shorten_to_line
from fidelio.ledger.model import Session
from fidelio.runtime.navigation.verdicts import Standing, read_standing
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.shell.plans import suggest
from fidelio.runtime.tools.model import LoadedRuntime

MAX_SUMMARY = 2_400
_TEXT = 300
_TITLE = 160
# Texts that are shortened further until a summary fits.
_LONG_FIELDS = ("nextOutcomeStep", "latestSummary", "outcomeTitle", "title", "nextStep")

Relation = Literal["self", "parent", "child", "sibling"]


class ListedSession(msgspec.Struct, frozen=True):
    """A session with what lists filter and order by."""

    session: Session
    record: RuntimeRecord
    relation: Relation | None
    standing: Standing
    setup_matches: bool | None
    outcome_matches: bool


def describe_listed(
    own: LoadedRuntime, session: Session, record: RuntimeRecord, *, now: int, shell_busy: bool | None = None
) -> ListedSession:
    """What lists and snapshots show of a session. `shell_busy` None: as the record says."""
    return ListedSession(
        session=session,
        record=record,
        relation=find_relation(own.session, session),
        standing=read_standing(record, now=now, shell_busy=shell_busy),
        setup_matches=match_setup(own.record, record),
        outcome_matches=match_outcome(own.record, record),
    )


def find_relation(own: Session, other: Session) -> Relation | None:
    """What the other session is to the own."""
    if other.id == own.id:
        return "self"
    if other.parent == own.id:
        return "child"
    if own.parent is None:
        return None
    return "parent" if own.parent == other.id else "sibling" if own.parent == other.parent else None


def match_setup(own: RuntimeRecord, other: RuntimeRecord) -> bool | None:
    """Whether both had the same setup at their last wake; None if there is no setup to compare."""
    return own.wakes.setup == other.wakes.setup if own.wakes.setup and other.wakes.setup else None


def match_outcome(own: RuntimeRecord, other: RuntimeRecord) -> bool:
    """Whether both work on an outcome of the same title."""
    mine, theirs = own.outcomes.active, other.outcomes.active
    return mine is not None and theirs is not None and mine.title.casefold() == theirs.title.casefold()


def lift_fields(listed: ListedSession) -> dict[str, Any]:
    """The fields that summaries and snapshots have in common."""
    standing, pending = listed.standing, listed.standing.pending
    return {
        "status": listed.record.status,
        "stopReason": listed.record.wakes.stop_reason or None,
        "requiresAction": pending is not None,
        "pendingActionKind": pending.kind if pending is not None else None,
        "pendingActionToolName": pending.tool if pending is not None else None,
        "relationToCurrent": listed.relation,
        "setupMatchesCurrent": listed.setup_matches,
        "outcomeMatchesCurrent": listed.outcome_matches,
        "outcomeStatus": standing.status,
        "promotionReady": standing.promotion_ready,
        "outcomeTrend": standing.trend,
    }


def render_summary(
    listed: ListedSession, child_count: int, tools: Collection[str], *, next_outcome_step: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A session of a list."""
    session, record, outcome = listed.session, listed.record, listed.record.outcomes.active
    why = "See its status, outcome, shell and usage."
    summary: dict[str, Any] = {
        "sessionId": session.id,
        "agentId": record.agent,
        "title": shorten_to_line(record.title or session.name or "", _TITLE) or None,
        **lift_fields(listed),
        "nextOutcomeStep": next_outcome_step,
        "childCount": child_count,
        "outcomeTitle": shorten_to_line(outcome.title, _TITLE) if outcome is not None else None,
        "latestSummary": shorten_to_line(record.wakes.summary, _TEXT) or None,
        "turns": record.wakes.count,
        "pendingEventCount": record.wakes.pending,
        "createdAt": format_iso(session.created_at),
        "updatedAt": format_iso(session.updated_at),
        "nextStep": suggest(tools, "session_get_snapshot", {"sessionId": session.id}, why),
    }
    return _fit(summary)


def _fit(summary: dict[str, Any]) -> dict[str, Any]:
    """Drop the longest texts until the summary has its size: escaped characters are long."""
    for field in _LONG_FIELDS:
        if measure(summary) <= MAX_SUMMARY:
            return summary
        summary[field] = None
    return summary


def measure(value: Mapping[str, Any]) -> int:
    """The characters of a value as JSON."""
    return len(msgspec.json.encode(value).decode())

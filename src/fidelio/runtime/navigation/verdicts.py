"""The verdict about the outcomes of a session, as the navigation tools, the notes and the files show it. Pure.

It is read from the record: listing a hundred sessions runs no check and calls no model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec

from fidelio.runtime.outcomes.rules import decide_status, find_worst, read_situation
from fidelio.runtime.outcomes.verdicts import read_verdict
from fidelio.runtime.record import RuntimeRecord


class PendingAction(msgspec.Struct, frozen=True):
    """What a session waits for."""

    kind: Literal["tool_confirmation", "custom_tool"]
    tool: str


class Standing(msgspec.Struct, frozen=True):
    """Where a session stands, without the reasons: what lists filter and order by. `trend` is None without an outcome."""

    status: str
    trend: str | None
    pending: PendingAction | None

    @property
    def promotion_ready(self) -> bool:
        return self.status == "pass"


def read_standing(record: RuntimeRecord, *, now: int, shell_busy: bool | None = None) -> Standing:
    """Where a session stands. It costs a tenth of the whole verdict. `shell_busy` None: as the record says."""
    busy = record.shell.running is not None if shell_busy is None else shell_busy
    conditions = read_situation(record, shell_busy=busy, now=now)
    outcome = find_worst(record.outcomes.outcomes, conditions)
    latest = outcome.latest if outcome is not None else None
    trend = None if outcome is None else latest.trend if latest is not None else "first_iteration"
    pending = None
    if conditions.approval is not None:
        pending = PendingAction("tool_confirmation", conditions.approval.tool)
    elif conditions.custom is not None:
        pending = PendingAction("custom_tool", conditions.custom.name)
    return Standing(decide_status(outcome, conditions), trend, pending)


class Verdict(msgspec.Struct, frozen=True):
    """The verdict about the worst outcome of a session. `json` is the whole evaluation."""

    status: str
    promotion_ready: bool
    trend: str | None
    trend_summary: str
    next_step: Mapping[str, Any] | None
    json: Mapping[str, Any]


def find_verdict(
    record: RuntimeRecord, tools: Collection[str], *, now: int, session: str = "", shell_busy: bool | None = None
) -> Verdict:
    """The verdict. `session`: the id that suggestions name, if it is another. `shell_busy` None: as the record says."""
    busy = record.shell.running is not None if shell_busy is None else shell_busy
    return parse_verdict(read_verdict(record, shell_busy=busy, tools=frozenset(tools), now=now, session=session))


def parse_verdict(evaluation: Mapping[str, Any]) -> Verdict:
    """The verdict of an evaluation as JSON."""
    is_missing = evaluation.get("status") == "missing_outcome"
    return Verdict(
        status=str(evaluation.get("status", "missing_outcome")),
        promotion_ready=bool(evaluation.get("promotionReady", False)),
        # Nothing can get better or worse without an outcome.
        trend=None if is_missing else evaluation.get("trend"),
        trend_summary="" if is_missing else str(evaluation.get("trendSummary") or ""),
        next_step=evaluation.get("nextSuggestedTool"),
        json=evaluation,
    )

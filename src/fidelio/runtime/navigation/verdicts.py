"""The verdict about the outcomes of a session, as the navigation tools, the notes and the files show it. Pure.

It is read from the record: listing a hundred sessions runs no check and calls no model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from fidelio.runtime.outcomes.verdicts import read_verdict
from fidelio.runtime.record import RuntimeRecord


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
    """The verdict. `session`: the id that suggestions name, if it is another one. `shell_busy` None: as the record says."""
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

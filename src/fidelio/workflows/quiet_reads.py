"""Aggregate repeated reading calls, so that an agent that polls does not fill the record.

`get_workflow_status` and `get_trace` change nothing and are not in the trace. The first such call of an agent after a change is
an event like any other. What the agent repeats while nothing has changed is only counted, and the count is in the next event of
the session: `reads` of `tool.called`. A count is written after five minutes at the latest, so what a crash can lose is bounded.

The counts belong to a process, because each process commits its own. They decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fidelio.engine.record import CALLED
from fidelio.ledger.model import Event

QUIET_TOOLS = frozenset({"get_workflow_status", "get_trace"})
LONGEST_MS = 5 * 60_000
MAX_SESSIONS = 1_000


class _Session(msgspec.Struct):
    """The reads of a session since its last change. `end` is the last event that was a read."""

    end: int
    recorded_at: dict[tuple[str, str], int]
    counts: dict[str, int] = msgspec.field(default_factory=dict)


class QuietReads:
    """The reads of the sessions of a process that were counted and not committed."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}

    def count_if_repeated(self, session: str, seq: int, agent: str, tool: str, *, now: int) -> bool:
        """Count a read if this agent has made it since the last change; `seq` is the last event of the session."""
        known = self._sessions.get(session)
        if tool not in QUIET_TOOLS or known is None or known.end != seq:
            return False
        if now - known.recorded_at.get((agent, tool), -LONGEST_MS) >= LONGEST_MS:
            return False
        known.counts[tool] = known.counts.get(tool, 0) + 1
        return True

    def pop_counts(self, session: str) -> dict[str, int]:
        """Return the counts for the next event of the session."""
        known = self._sessions.get(session)
        if known is None:
            return {}
        counts, known.counts = known.counts, {}
        return counts

    def note_commit(self, session: str, before: int, events: tuple[Event, ...]) -> None:
        """Note what a call has committed after event `before`: a read, or a change that ends the reads."""
        if not events:
            return
        known = self._sessions.pop(session, None)
        reads = list(_iter_reads(events))
        if len(reads) != len(events):
            return
        # Counts that another commit has not taken are kept: a call that lost a conflict is carried out again.
        again = known is not None and known.end == before
        merged = _Session(before, dict(known.recorded_at) if known is not None and again else {}, known.counts if known else {})
        for read, time in reads:
            merged.recorded_at[read] = time
        merged.end = events[-1].seq
        if len(self._sessions) >= MAX_SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))
        self._sessions[session] = merged


def _iter_reads(events: tuple[Event, ...]) -> Iterator[tuple[tuple[str, str], int]]:
    for event in events:
        if event.type == CALLED and event.body.get("name") in QUIET_TOOLS and event.body.get("s") == "ok":
            yield (str(event.body.get("aid", "")), str(event.body["name"])), event.time

"""Aggregate repeated reading calls, so that an agent that polls or reads again does not fill the record.

A call that only reads names what it reads: `reading` of `WorkflowUnit.perform`. The first such call of an agent after a change
is an event like any other. Equal calls while nothing changes are only counted; before the next event of the session, a single
`tool.called` stands for each run of them, with their number as `reads`. It is written after five minutes, when the trace is
read and when the application ends at the latest, so what a crash can lose is bounded. Equal are calls of one agent, with one
tool, of the same text, and with the same warnings.

The counts belong to a process, because each process commits its own. They decide nothing. Events that only record calls, of
other processes or refused ones, are no change: otherwise two processes that poll would make an event of each read.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

LONGEST_MS = 5 * 60_000
MAX_SESSIONS = 1_000
# Different reads of a session that are known. More of them are events each.
MAX_READS = 200


class Read(msgspec.Struct, frozen=True):
    """A reading call, as far as it is compared with others."""

    agent: str
    tool: str
    text: str
    activity: str = ""
    warnings: tuple[str, ...] = ()
    source: str = ""

    @property
    def run(self) -> Read:
        """What the calls have in common that a single event stands for."""
        return Read(self.agent, self.tool, "", self.activity, source=self.source)


class _Session(msgspec.Struct):
    """The reads of a session since its last change. There was none up to the event `end`."""

    end: int
    recorded_at: dict[Read, int] = msgspec.field(default_factory=dict)
    counts: dict[Read, int] = msgspec.field(default_factory=dict)


class QuietReads:
    """The reads of the sessions of a process that were counted and not committed."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}

    @property
    def sessions(self) -> Collection[str]:
        """The sessions with reads that are not committed."""
        return tuple(session for session, known in self._sessions.items() if known.counts)

    def may_repeat(self, session: str, tool: str, text: str) -> bool:
        """Whether a call may turn out to be a repeated read, for which the session must be loaded from the ledger."""
        known = self._sessions.get(session)
        return known is not None and any(read.tool == tool and read.text == text for read in known.recorded_at)

    def find_end(self, session: str) -> int:
        """The event up to which the session has not changed since these reads; 0 if there are none."""
        known = self._sessions.get(session)
        return known.end if known is not None else 0

    def advance(self, session: str, end: int, seq: int) -> None:
        """Note that the events after `end` up to `seq` have changed nothing."""
        known = self._sessions.get(session)
        if known is not None and known.end == end:
            known.end = seq

    def count_if_repeated(self, session: str, seq: int, read: Read, *, now: int) -> bool:
        """Count a read that equals a read on record since the last change; `seq` is the last event of the session."""
        known = self._sessions.get(session)
        if known is None or known.end != seq or now - known.recorded_at.get(read, -LONGEST_MS) >= LONGEST_MS:
            return False
        known.counts[read.run] = known.counts.get(read.run, 0) + 1
        return True

    def list_repeated(self, session: str) -> dict[Read, int]:
        """The repeated reads that are not on record, and how many there are of each."""
        known = self._sessions.get(session)
        return dict(known.counts) if known is not None else {}

    def note_commit(self, session: str, seq: int, stored: Collection[Read], read: Read | None, *, now: int) -> None:
        """Note a commit up to event `seq` with these repeated reads: of `read`, or of a change, which ends the reads."""
        known = self._sessions.pop(session, None) or _Session(seq)
        for run in stored:
            known.counts.pop(run, None)
        if read is None:
            # Counts that another process has overtaken are not lost: the next commit writes them.
            known.recorded_at = {}
            if not known.counts:
                return
        elif len(known.recorded_at) < MAX_READS:
            known.recorded_at[read] = now
        known.end = seq
        if len(self._sessions) >= MAX_SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))
        self._sessions[session] = known

    def note_stored(self, session: str, stored: Collection[Read]) -> None:
        """Note a commit that has stored repeated reads, and has changed nothing."""
        known = self._sessions.get(session)
        if known is not None:
            for read in stored:
                known.counts.pop(read, None)

"""Admission of runs: which of the queued runs may begin now.

Projects are served round robin, so that a project with a thousand queued runs does not block the first run of another; within
a project the first queued run is the first to begin. Slots are counted for each depth separately: a parent that waits for its
children occupies a slot, and must not prevent them from starting.

The queue is the jobs of the ledger, and the slots are those of the jobs that the host has claimed. The only memory here is the
order in which the projects were served.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import count
from typing import NamedTuple

from fidelio.errors import Command, Hint, Text
from fidelio.ledger.model import Job
from fidelio.orchestrator.record.model import AgentSession
from fidelio.settings import AgentLimits

# A run that waits for a person occupies no slot.
OCCUPYING_STATES = ("starting", "running")
_MAX_HOLDERS = 5
# What starts a session starts an agent host, too, if none runs. That takes a few seconds on a busy machine.
_START_MS = 10_000


class SlotKey(NamedTuple):
    """What slots are counted by. The jobs of earlier versions, and of adopted runs, name no project."""

    project: str
    depth: int


def slot_key(job: Job) -> SlotKey:
    return SlotKey(job.payload.get("project", ""), job.payload.get("depth", 0))


class Admission:
    """The limits, and the order in which the projects were served."""

    def __init__(self, *, per_project: int, total: int) -> None:
        self._per_project, self._total = per_project, total
        self._sequence = count(1)
        self._last_served: Counter[SlotKey] = Counter()

    def admit(self, due: Iterable[Job], occupying: Iterable[Job]) -> list[Job]:
        """The due jobs that may begin, in this order. A run that was admitted before continues, even above the limits."""
        queues: dict[SlotKey, deque[Job]] = {}
        admitted: list[Job] = []
        for job in due:
            if job.attempts or not slot_key(job).project:
                admitted.append(job)
            else:
                queues.setdefault(slot_key(job), deque()).append(job)
        occupied = Counter(map(slot_key, (*occupying, *admitted)))
        while (key := self._next_key(queues, occupied)) is not None:
            admitted.append(queues[key].popleft())
            occupied[key] += 1
            self._last_served[key] = next(self._sequence)
        return admitted

    def _next_key(self, queues: dict[SlotKey, deque[Job]], occupied: Counter[SlotKey]) -> SlotKey | None:
        """The key with a free slot that was served least recently; None if no run can begin."""
        in_total: Counter[int] = Counter()
        for key, number in occupied.items():
            in_total[key.depth] += number
        free = [
            key
            for key, queue in queues.items()
            if queue and occupied[key] < self._per_project and in_total[key.depth] < self._total
        ]
        return min(free, key=self._last_served.__getitem__, default=None)


def explain_waiting(
    session: AgentSession, holders: Sequence[AgentSession], limits: AgentLimits, *, hosted: bool, now: int
) -> Text:
    """Why a session does not continue now: its run is queued, or messages wait. `holders` are the runs that occupy slots."""
    if session.run.state != "queued":
        return "Its messages wait until the running turn has ended." if session.queued_messages else ""
    if not hosted and now - session.run.queued_at < _START_MS:
        return "Its agent host is being started."
    if not hosted:
        return Hint("No agent host runs for this home. Start one with ", Command("work"), ".")
    rivals = [holder for holder in holders if holder.depth == session.depth]
    in_project = [holder for holder in rivals if holder.project == session.project]
    if len(in_project) >= limits.per_project:
        return f"{_describe_limit(limits.per_project, in_project)} in this project (FIDELIO_AGENTS_PER_PROJECT)."
    if len(rivals) >= limits.total:
        return f"{_describe_limit(limits.total, rivals)} in all projects (FIDELIO_AGENTS_TOTAL)."
    return "The agent host starts it in a moment."


def _describe_limit(limit: int, holders: Sequence[AgentSession]) -> str:
    names = [holder.name for holder in holders[:_MAX_HOLDERS]]
    more = [f"{len(holders) - _MAX_HOLDERS} more"] if len(holders) > _MAX_HOLDERS else []
    return f"{', '.join([*names, *more])} hold the {limit} slots" if limit > 1 else f"{names[0]} holds the only slot"

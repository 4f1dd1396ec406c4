"""Admission queue of runs: fair between projects, first in first out within a project, limited in number.

Projects are served round robin, so that a project with a thousand queued runs does not block the first run of another. Slots
are counted for each depth separately: a parent that waits for its children occupies a slot, and must not prevent them from
starting. A run that waits for a person occupies no slot, and gets one again when it continues, even above the limit.

A plain object without a clock or a lock; the host calls it whenever something has changed.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque

import msgspec


class Candidate(msgspec.Struct, frozen=True):
    """A queued run."""

    run: str
    session: str
    project: str
    depth: int


class Admission:
    """The queued runs, and the runs that occupy a slot."""

    def __init__(self, *, per_project: int, total: int) -> None:
        self._per_project, self._total = per_project, total
        # By depth, then by project: the depths are independent, and the order of the projects is the order of service.
        self._levels: dict[int, OrderedDict[str, deque[Candidate]]] = {}
        self._queued: dict[str, Candidate] = {}
        self._occupying: dict[str, Candidate] = {}
        self._in_project: Counter[tuple[str, int]] = Counter()
        self._in_total: Counter[int] = Counter()

    @property
    def queued_count(self) -> int:
        return len(self._queued)

    @property
    def occupied_count(self) -> int:
        return len(self._occupying)

    def enqueue(self, candidate: Candidate) -> None:
        """Queue a run; a run that is known already keeps its position."""
        if candidate.run in self._queued or candidate.run in self._occupying:
            return
        self._queued[candidate.run] = candidate
        level = self._levels.setdefault(candidate.depth, OrderedDict())
        level.setdefault(candidate.project, deque()).append(candidate)

    def occupy(self, candidate: Candidate) -> None:
        """Assign a slot to a run that is active already, whatever the limits say."""
        self.withdraw(candidate.run)
        if candidate.run not in self._occupying:
            self._occupying[candidate.run] = candidate
            self._in_project[candidate.project, candidate.depth] += 1
            self._in_total[candidate.depth] += 1

    def withdraw(self, run: str) -> None:
        """Remove a run from the queue."""
        candidate = self._queued.pop(run, None)
        if candidate is not None:
            self._dequeue(candidate)

    def release(self, run: str) -> None:
        """Free the slot of a run, or remove it from the queue."""
        self.withdraw(run)
        candidate = self._occupying.pop(run, None)
        if candidate is not None:
            self._in_project[candidate.project, candidate.depth] -= 1
            self._in_total[candidate.depth] -= 1

    def admit(self) -> Candidate | None:
        """The next run that may begin, which occupies a slot from now on; None: no run is queued, or no slot is free for it."""
        for level in self._levels.values():
            candidate = next((queue[0] for queue in level.values() if self._has_slot(queue[0])), None)
            if candidate is not None:
                # The project that was served moves to the end of the order.
                level.move_to_end(candidate.project)
                self.occupy(candidate)
                return candidate
        return None

    def _has_slot(self, candidate: Candidate) -> bool:
        in_project = self._in_project[candidate.project, candidate.depth]
        return in_project < self._per_project and self._in_total[candidate.depth] < self._total

    def _dequeue(self, candidate: Candidate) -> None:
        level = self._levels[candidate.depth]
        queue = level[candidate.project]
        queue.remove(candidate)
        if not queue:
            del level[candidate.project]

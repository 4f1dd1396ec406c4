"""Which run may begin next: fair between projects, in order within one, and not while as many work as was allowed.

Projects take turns, so that one with a thousand runs waiting does not keep another from its first. Places are counted for each
depth on its own: a parent that waits for its children occupies a place, and must not be what keeps them from starting. A run
that waits for a person occupies none, and has one again when it goes on, also when all are taken by then.

A plain object without a clock or a lock of its own; the host asks it whenever something has changed.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque

import msgspec


class Candidate(msgspec.Struct, frozen=True):
    """A run that waits for a place."""

    run: str
    session: str
    project: str
    depth: int


class Admission:
    """The queue, and the places that are taken."""

    def __init__(self, *, per_project: int, total: int) -> None:
        self._per_project, self._total = per_project, total
        # By depth, then by project: the levels share nothing, and within one the projects stand in a row.
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
        """Queues a run; one that is known already keeps its place."""
        if candidate.run in self._queued or candidate.run in self._occupying:
            return
        self._queued[candidate.run] = candidate
        level = self._levels.setdefault(candidate.depth, OrderedDict())
        level.setdefault(candidate.project, deque()).append(candidate)

    def occupy(self, candidate: Candidate) -> None:
        """Gives a place to a run that is at work already, whatever the limits say."""
        self.withdraw(candidate.run)
        if candidate.run not in self._occupying:
            self._occupying[candidate.run] = candidate
            self._in_project[candidate.project, candidate.depth] += 1
            self._in_total[candidate.depth] += 1

    def withdraw(self, run: str) -> None:
        """Takes a run out of the queue that no longer waits."""
        candidate = self._queued.pop(run, None)
        if candidate is not None:
            self._dequeue(candidate)

    def release(self, run: str) -> None:
        """Gives the place of a run back."""
        self.withdraw(run)
        candidate = self._occupying.pop(run, None)
        if candidate is not None:
            self._in_project[candidate.project, candidate.depth] -= 1
            self._in_total[candidate.depth] -= 1

    def admit(self) -> Candidate | None:
        """The next run that may begin; it has its place from now on. None: nobody waits, or there is no place for those."""
        for level in self._levels.values():
            candidate = next((queue[0] for queue in level.values() if self._has_slot(queue[0])), None)
            if candidate is not None:
                # Who was served goes to the end of the row.
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

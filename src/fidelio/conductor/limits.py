"""Limits of a run: a workflow that never ends, or that starts itself, must not cost money for ever.

Counted is what may have no end: visits, and iterations of loops with a condition. A loop over a list ends by itself, and so do
the activities it goes through; there only the length of the list is checked, before the first iteration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fidelio.conductor.context import BlockedRun
from fidelio.conductor.history import count_visits_outside_loops
from fidelio.conductor.plan import LINT_HINT
from fidelio.engine.progress import find_loop_items
from fidelio.engine.scope import collect_values

if TYPE_CHECKING:
    from fidelio.definitions.models import Loop, Workflow
    from fidelio.engine.record import Record
    from fidelio.ledger import Ledger

MAX_REPETITIONS, MAX_DEPTH = 1_000, 8
_START_NEW = "Running it again would end here again. Correct the workflow, then start a new run with --new (new: true)."


async def check_run_limits(ledger: Ledger, session: str, record: Record, depth: int) -> None:
    """Raise `BlockedRun` if the run has repeated itself too often or is nested too deep."""
    running_loops = (visit.running for visit in (*record.outer, record.here))
    iterations = max((loop.iteration for loop in running_loops if loop is not None and loop.items is None), default=0)
    visits = 0 if record.outer else record.visits
    if visits > MAX_REPETITIONS:
        # Only now, because it reads the whole log: visits made by a loop do not count.
        visits = await count_visits_outside_loops(ledger, session)
    if max(visits, iterations) > MAX_REPETITIONS or depth > MAX_DEPTH:
        reason = (
            f"{record.workflow} repeats without end: {visits} visits, {iterations} iterations of a loop, {depth} levels deep. "
            f"The limits are {MAX_REPETITIONS} repetitions and {MAX_DEPTH} levels."
        )
        raise BlockedRun(reason, record, remedy=_START_NEW)


def check_loop(workflow: Workflow, record: Record, loop: Loop) -> None:
    """Raise `BlockedRun` for a loop that cannot be run to its end."""
    missing = [name for name in loop.activities if workflow.activity(name) is None]
    if missing:
        reason = f"Loop {loop.id} of {record.activity} goes through {missing[0]!r}, which is no activity of {workflow.id}."
        raise BlockedRun(reason, record, remedy=LINT_HINT)
    iterations = min(len(find_loop_items(loop, collect_values(workflow, record)) or ()), loop.max_iterations)
    if iterations > MAX_REPETITIONS:
        reason = f"Loop {loop.id} of {record.activity} needs {iterations} iterations; the limit is {MAX_REPETITIONS}."
        raise BlockedRun(reason, record, remedy="Give it a smaller maxIterations, or several lists.")

"""How far a run may go. A workflow that goes round for ever, or that starts itself, costs money with every round.

What is counted is what may have no end. A loop over a list has one, and so have the activities that it goes through: there only
the length of the list matters, and that is looked at before its first pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fidelio.conductor.context import Stuck
from fidelio.conductor.history import visits_outside_loops
from fidelio.engine.progress import find_loop_items
from fidelio.engine.scope import collect_values

if TYPE_CHECKING:
    from fidelio.definitions.models import Loop, Workflow
    from fidelio.engine.record import Record
    from fidelio.ledger import Ledger

MOST_ROUNDS, DEEPEST = 1_000, 8
_ANEW = "Going on would end here again: mend the workflow, then begin another run with --new (new: true)."


async def refuse_endless(ledger: Ledger, session: str, record: Record, depth: int) -> None:
    running = (place.running for place in (*record.outer, record.here))
    rounds = max((one.iteration for one in running if one is not None and one.items is None), default=0)
    visits = 0 if record.outer else record.visits
    if visits > MOST_ROUNDS:
        visits = await visits_outside_loops(ledger, session)
    if max(visits, rounds) > MOST_ROUNDS or depth > DEEPEST:
        reason = f"{record.workflow} goes round and round: {visits} visits, {rounds} passes of a loop, {depth} levels deep."
        raise Stuck(reason, record, remedy=_ANEW)


def require_passable(workflow: Workflow, record: Record, loop: Loop) -> None:
    """Raises for a loop that cannot be carried out to its end."""
    lost = [name for name in loop.activities if workflow.activity(name) is None]
    if lost:
        reason = f"Loop {loop.id} of {record.activity} goes through {lost[0]!r}, which is no activity of {workflow.id}."
        raise Stuck(reason, record, remedy=f"See `fidelio lint {workflow.id}`.")
    passes = min(len(find_loop_items(loop, collect_values(workflow, record)) or ()), loop.max_iterations)
    if passes > MOST_ROUNDS:
        reason = (
            f"Loop {loop.id} of {record.activity} has {passes} passes before it; a run makes up to {MOST_ROUNDS} of one loop."
        )
        raise Stuck(reason, record, remedy="Give it a smaller maxIterations, or several lists.")

"""Which workflows the current activity still has to start: those it declares, less those that this visit has started."""

from __future__ import annotations

from fidelio.definitions.models import Workflow
from fidelio.engine.record import CHILD_STARTED, ENTERED, Record
from fidelio.ledger import Ledger


async def children_to_start(ledger: Ledger, session: str, workflow: Workflow, record: Record) -> list[str]:
    declared = _declared(workflow, record.activity)
    if not declared:
        return []
    since: list[str] = []
    for event in await ledger.events(session, types=(ENTERED, CHILD_STARTED), limit=10_000):
        since = [] if event.type == ENTERED else [*since, str(event.body["workflow"])]
    return [name for name in declared if name not in since]


def _declared(workflow: Workflow, activity_id: str) -> list[str]:
    activity = workflow.activity(activity_id)
    if activity is None:
        return []
    own = [trigger.workflow for trigger in activity.triggers]
    return list(dict.fromkeys([*own, *(trigger.workflow for step in activity.steps for trigger in step.triggers)]))

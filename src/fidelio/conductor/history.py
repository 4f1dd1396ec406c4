"""What the events of a session say about an activity that is led stretch by stretch, beyond where it stands."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fidelio.conductor.keeping import TAKEN
from fidelio.engine.record import (
    CHILD_FINISHED,
    CHILD_STARTED,
    ENTERED,
    LOOP_ADVANCED,
    RESTORED,
    STARTED,
    Record,
    fold,
)
from fidelio.ledger import Ledger
from fidelio.ledger.model import Event
from fidelio.orchestrator.model import AgentSession

_PAGE = 1_000


async def was_taken(ledger: Ledger, session: str, worker: AgentSession) -> bool:
    """Whether what the worker has handed in last is on record."""
    taken = await _events(ledger, session, TAKEN)
    return any((one.body["worker"], one.body["run"]) == (worker.name, worker.run.number) for one in taken)


async def came_back(ledger: Ledger, session: str) -> list[dict[str, Any]]:
    """What the workflows have brought back that ended since the last report: the next worker has to know it."""
    since: list[dict[str, Any]] = []
    for event in await _events(ledger, session, ENTERED, TAKEN, CHILD_FINISHED):
        since = [*since, dict(event.body)] if event.type == CHILD_FINISHED else []
    return since


async def started_by_activity(ledger: Ledger, session: str, here: Record) -> set[str]:
    """What the activity itself has started in this visit; loops may have led through others in between."""
    record, found = Record(), set[str]()
    for event in await _events(ledger, session, STARTED, RESTORED, ENTERED, CHILD_STARTED):
        if event.type == CHILD_STARTED and record.visit == here.visit and not event.body.get("step"):
            found.add(str(event.body["workflow"]))
        record = fold(record, [event])
    return found


async def started_in_pass(ledger: Ledger, session: str) -> Counter[str]:
    """How often each workflow was started since the steps of the pass, or of the activity, began, by whomever."""
    found = Counter[str]()
    for event in await _events(ledger, session, ENTERED, LOOP_ADVANCED, CHILD_STARTED):
        found = found + Counter([str(event.body["workflow"])]) if event.type == CHILD_STARTED else Counter()
    return found


async def _events(ledger: Ledger, session: str, *types: str) -> list[Event]:
    found: list[Event] = []
    while page := await ledger.events(session, after=found[-1].seq if found else 0, types=types, limit=_PAGE):
        found += page
    return found

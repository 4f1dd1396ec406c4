"""What the events of a session say about an activity that is led stretch by stretch, beyond where it stands."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from fidelio.conductor.plan import TAKEN, TOLD
from fidelio.engine.record import (
    ANSWERED,
    CHILD_FINISHED,
    CHILD_STARTED,
    COMPLETED,
    ENTERED,
    LOOP_ADVANCED,
    RESTORED,
    STARTED,
    Record,
    fold,
)
from fidelio.ledger import Ledger
from fidelio.ledger.paging import all_events
from fidelio.orchestrator.record.model import AgentSession


class Past(msgspec.Struct, frozen=True):
    """What became of the runs of a worker, by their numbers, and the requests that were answered since its turn began."""

    taken: frozenset[int]
    told: frozenset[int]
    answered: frozenset[str]


async def past_of(ledger: Ledger, session: str, worker: AgentSession) -> Past:
    runs, answered = {TAKEN: set[int](), TOLD: set[int]()}, set[str]()
    for event in await all_events(ledger, session, types=(ENTERED, ANSWERED, TAKEN, TOLD)):
        if event.type == ANSWERED:
            answered.add(event.body["request"])
            continue
        mine = event.type in runs and event.body["worker"] == worker.name
        if mine:
            runs[event.type].add(event.body["run"])
        # Where the process ended before the worker went on, it has not heard what it was to be told.
        if not (mine and event.type == TOLD and event.body["run"] == worker.run.number):
            answered.clear()
    return Past(frozenset(runs[TAKEN]), frozenset(runs[TOLD]), frozenset(answered))


async def was_taken(ledger: Ledger, session: str, worker: AgentSession) -> bool:
    """Whether what the worker has handed in last is on record."""
    return worker.run.number in (await past_of(ledger, session, worker)).taken


async def came_back(ledger: Ledger, session: str) -> list[dict[str, Any]]:
    """What the workflows have brought back that ended since the last report: the next worker has to know it."""
    since: list[dict[str, Any]] = []
    for event in await all_events(ledger, session, types=(ENTERED, TAKEN, CHILD_FINISHED)):
        since = [*since, dict(event.body)] if event.type == CHILD_FINISHED else []
    return since


async def started_by_activity(ledger: Ledger, session: str, here: Record) -> set[str]:
    """What the activity itself has started in this visit; loops may have led through others in between."""
    record, found = Record(), set[str]()
    for event in await all_events(ledger, session, types=(STARTED, RESTORED, ENTERED, CHILD_STARTED)):
        if event.type == CHILD_STARTED and record.visit == here.visit and not event.body.get("step"):
            found.add(str(event.body["workflow"]))
        record = fold(record, [event])
    return found


async def started_in_pass(ledger: Ledger, session: str) -> Counter[str]:
    """How often each workflow was started since the steps of the pass, or of the activity, began, by whomever."""
    found = Counter[str]()
    for event in await all_events(ledger, session, types=(ENTERED, LOOP_ADVANCED, CHILD_STARTED)):
        found = found + Counter([str(event.body["workflow"])]) if event.type == CHILD_STARTED else Counter()
    return found


async def ended_unchecked_by(ledger: Ledger, session: str) -> str:
    """Who has ended a session whose definition was gone; empty for an end that was checked."""
    ends = await all_events(ledger, session, types=(COMPLETED,))
    return next((one.body.get("without_definition", {}).get("by", "") for one in ends), "")


async def visits_outside_loops(ledger: Ledger, session: str) -> int:
    """How often the session has entered an activity, other than those that a loop leads through and back from."""
    return sum(event.body.get("how", "next") == "next" for event in await all_events(ledger, session, types=(ENTERED,)))

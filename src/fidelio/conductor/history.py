"""Queries over the event log of a session for what the record does not hold.

The record says where a session is. Which reports of a worker are recorded, which answers it has received, and which child
workflows were started in this iteration is only in the events. All pages are read: a long run has more events than one page.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from fidelio.conductor.plan import ANSWERS_DELIVERED, REPORT_RECORDED
from fidelio.engine.record import (
    ANSWERED,
    CANCELLED,
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
from fidelio.ledger.paging import all_events
from fidelio.orchestrator.record.model import AgentSession


class WorkerHistory(msgspec.Struct, frozen=True):
    """Run numbers of a worker by what followed them, and the requests answered since its last run began.

    `recorded_runs` have their report in the log; after `informed_runs` the worker was sent answers of people.
    """

    recorded_runs: frozenset[int]
    informed_runs: frozenset[int]
    answered_requests: frozenset[str]


async def load_worker_history(ledger: Ledger, session: str, worker: AgentSession) -> WorkerHistory:
    runs, answered = {REPORT_RECORDED: set[int](), ANSWERS_DELIVERED: set[int]()}, set[str]()
    for event in await all_events(ledger, session, types=(ENTERED, ANSWERED, REPORT_RECORDED, ANSWERS_DELIVERED)):
        if event.type == ANSWERED:
            answered.add(event.body["request"])
            continue
        is_of_worker = event.type in runs and event.body["worker"] == worker.name
        if is_of_worker:
            runs[event.type].add(event.body["run"])
        # The event is written before the worker is resumed. If the process was killed in between, the last run is still the
        # current one, the worker has not received the answers, and they must be sent again.
        if not (is_of_worker and event.type == ANSWERS_DELIVERED and event.body["run"] == worker.run.number):
            answered.clear()
    return WorkerHistory(frozenset(runs[REPORT_RECORDED]), frozenset(runs[ANSWERS_DELIVERED]), frozenset(answered))


async def is_report_recorded(ledger: Ledger, session: str, worker: AgentSession) -> bool:
    """Whether the report of the worker's last run is in the log."""
    return worker.run.number in (await load_worker_history(ledger, session, worker)).recorded_runs


async def list_finished_children(ledger: Ledger, session: str) -> list[dict[str, Any]]:
    """The child workflows that finished since the last report, with their results, for the prompt of the next worker."""
    finished: list[dict[str, Any]] = []
    for event in await all_events(ledger, session, types=(ENTERED, REPORT_RECORDED, CHILD_FINISHED)):
        finished = [*finished, dict(event.body)] if event.type == CHILD_FINISHED else []
    return finished


async def find_children_of_activity(ledger: Ledger, session: str, current: Record) -> set[str]:
    """The workflows that the activity itself, not a step of it, has started in this visit.

    Events are folded to compare visits, because a loop may enter other activities during the visit.
    """
    record, workflows = Record(), set[str]()
    for event in await all_events(ledger, session, types=(STARTED, RESTORED, ENTERED, CHILD_STARTED)):
        if event.type == CHILD_STARTED and record.visit == current.visit and not event.body.get("step"):
            workflows.add(str(event.body["workflow"]))
        record = fold(record, [event])
    return workflows


async def count_children_of_iteration(ledger: Ledger, session: str) -> Counter[str]:
    """How often each workflow was started since the current iteration or visit began, by the conductor or by a worker."""
    count = Counter[str]()
    for event in await all_events(ledger, session, types=(ENTERED, LOOP_ADVANCED, CHILD_STARTED)):
        count = count + Counter([str(event.body["workflow"])]) if event.type == CHILD_STARTED else Counter()
    return count


async def describe_cancellation(ledger: Ledger, session: str) -> str:
    """Who cancelled the session, and why."""
    *_, last = await all_events(ledger, session, types=(CANCELLED,))
    return f"{last.body['by']}{': ' if last.body['reason'] else ''}{last.body['reason']}"


async def count_visits_outside_loops(ledger: Ledger, session: str) -> int:
    """How many visits the session has made, without those that a loop has made to its activities."""
    return sum(event.body.get("how", "next") == "next" for event in await all_events(ledger, session, types=(ENTERED,)))

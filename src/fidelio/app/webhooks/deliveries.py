"""What became of the deliveries to webhooks: read from the jobs that are due and the newest events of the sender."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from fidelio.app.webhooks.sending import DELIVERED, JOB, QUEUED
from fidelio.ledger.model import Event, Job
from fidelio.runtime.stores import find_store

if TYPE_CHECKING:
    from fidelio.app.application import Application

# Events that are read, two for each delivery, and jobs.
_LOOK_BACK, _MOST_JOBS = 200, 1000
DeliveryState = Literal["due", "retrying", "delivered", "failed", "dropped"]


class Delivery(msgspec.Struct, frozen=True):
    """The delivery of a request to a webhook.

    `time`: when it was delivered or is tried next, else when it was queued. `problem`: why the last attempt was not accepted.
    `dropped`: its webhook or its request was deleted before it was delivered. `failed`: it is not tried any more.
    """

    id: str
    webhook: str
    request: str
    state: DeliveryState
    time: int
    attempts: int = 0
    status: int | None = None
    problem: str = ""

    @property
    def is_pending(self) -> bool:
        return self.state in ("due", "retrying")


async def list_deliveries(application: Application, *, limit: int = 20) -> tuple[Delivery, ...]:
    """What is due or has failed, then what was delivered, newest first; at most `limit`."""
    context = (await application.runtime()).context
    store = await find_store(context, "webhooks")
    if store is None:
        return ()
    newest = await context.ledger.events(store.id, after=max(0, store.last_seq - _LOOK_BACK), limit=_LOOK_BACK)
    jobs = [
        job
        for is_dead in (False, True)
        for job in await context.ledger.jobs(session=store.id, kind=JOB, dead=is_dead, limit=_MOST_JOBS)
    ]
    found = [*map(_read_job, jobs), *_read_events(newest, {str(job.payload.get("delivery")) for job in jobs})]
    return tuple(sorted(found, key=_sort_key)[:limit])


def _sort_key(delivery: Delivery) -> tuple[bool, int]:
    return not (delivery.is_pending or delivery.state == "failed"), -delivery.time


def _make(body: Mapping[str, object], state: DeliveryState, time: int) -> Delivery:
    """The delivery that a job or an event names."""
    return Delivery(str(body["delivery"]), str(body["webhook"]), str(body["request"]), state, time)


def _read_job(job: Job) -> Delivery:
    state: DeliveryState = "failed" if job.state == "dead" else "retrying" if job.error else "due"
    problem = job.error.removeprefix("DeliveryRefused: ")
    return replace(_make(job.payload, state, job.due), attempts=job.attempts, problem=problem)


def _read_events(events: Sequence[Event], waiting: Iterable[str]) -> list[Delivery]:
    """What has left the queue. A delivery whose job is still there is read from it."""
    delivered = {str(event.body["delivery"]): event for event in events if event.type == DELIVERED and not event.redacted}
    queued = [event for event in events if event.type == QUEUED and not event.redacted]
    return [_read_event(event, delivered) for event in queued if event.body["delivery"] not in waiting]


def _read_event(queued: Event, delivered: Mapping[str, Event]) -> Delivery:
    if (done := delivered.get(str(queued.body["delivery"]))) is None:
        return _make(queued.body, "dropped", queued.time)
    about = done.body
    return replace(_make(queued.body, "delivered", done.time), attempts=int(about["attempt"]), status=int(about["status"]))

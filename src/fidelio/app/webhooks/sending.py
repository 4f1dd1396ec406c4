"""Sends each new request of the inbox to the webhooks of the home, signed, and at least once.

A delivery becomes due in the ledger, as a job with the event that queues it in one transaction, so a process that is killed
loses none; the job is retried with backoff until the receiver accepts it. The receiver may see a delivery twice, after a crash
between its reply and our record, and recognizes it by its id. One process of a home sends at a time. It looks at the webhooks
whenever the ledger changes, so one that is added or removed while it runs counts from the next request on.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec

from fidelio.app.webhooks.settings import Webhook, Webhooks
from fidelio.clock import Clock, now_ms
from fidelio.errors import FidelioError, RequestNotFound
from fidelio.ids import new_id
from fidelio.inbox import Inbox
from fidelio.ledger import Ledger
from fidelio.ledger.jobs import Assignment, Jobs
from fidelio.ledger.model import Change, Completion, NewEvent, NewJob, Request
from fidelio.ledger.paging import event_pages
from fidelio.locks import FileLock
from fidelio.retry import cancel_tasks, restart_on_failure
from fidelio.runtime.stores import Store, open_store

if TYPE_CHECKING:
    from fidelio.app.application import Application

QUEUED, DELIVERED = "webhook.queued", "webhook.delivered"
JOB = "webhook"
# With the backoff of jobs, which grows to five minutes, a receiver may be away for a day.
MAX_ATTEMPTS = 300
_LEASE_MS = 10_000
_TIMEOUT = httpx2.Timeout(10.0, connect=5.0)
# Another process takes over this long after the sender has ended, or with the next change of the ledger.
_WAIT_SECONDS = 30.0
# Looking through a large inbox takes at most a tenth of the time, however often the ledger changes.
_PAUSE_SECONDS, _PAUSE_FACTOR = 0.05, 10
# What a delivery says about a request: `request` and `url`.
DescribeRequest = Callable[[Request], Mapping[str, Any]]


class DeliveryRefused(FidelioError):
    """The receiver could not be reached, or did not accept a delivery."""

    code = "webhook.refused"


def sign(secret: str, timestamp: int, body: bytes) -> str:
    """The value of the header `Fidelio-Signature`: an HMAC-SHA-256 over the time and the body."""
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


async def post_delivery(webhook: Webhook, delivery: str, message: Mapping[str, Any], *, now: int) -> int:
    """Send a signed message, and return the status of the reply. Raises `DeliveryRefused` if it is not accepted."""
    content, timestamp = msgspec.json.encode(message), now // 1000
    headers = {
        "Content-Type": "application/json",
        "Fidelio-Delivery": delivery,
        "Fidelio-Signature": sign(webhook.secret, timestamp, content),
    }
    try:
        async with (
            httpx2.AsyncClient(timeout=_TIMEOUT, follow_redirects=False) as client,
            # The reply is not read: only its status counts, and it may have no end.
            client.stream("POST", webhook.url, content=content, headers=headers) as response,
        ):
            status = response.status_code
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
        raise DeliveryRefused(f"{webhook.url} could not be reached ({type(error).__name__}).") from None
    if not 200 <= status < 300:
        raise DeliveryRefused(f"{webhook.url} answered {status}.")
    return status


async def send_test(webhook: Webhook, url: str, *, now: int) -> int:
    """Send a delivery of the type `test`, which tells of no request. Raises `DeliveryRefused` if it is not accepted."""
    delivery = f"{webhook.id}.{new_id('test_')}"
    return await post_delivery(webhook, delivery, {"type": "test", "delivery": delivery, "url": url}, now=now)


class Outbox:
    """Queues the open requests for all webhooks, and delivers what is due."""

    def __init__(self, webhooks: Webhooks, ledger: Ledger, store: Store, describe: DescribeRequest, clock: Clock) -> None:
        self._webhooks, self._ledger, self._store, self._describe, self._clock = webhooks, ledger, store, describe, clock
        self._inbox = Inbox(ledger, clock=clock)
        self._queued: set[str] = set()

    async def load(self) -> None:
        """Read what was queued before, by this process or another."""
        async for page in event_pages(self._ledger, self._store.id, types=(QUEUED,)):
            self._queued.update(str(event.body["delivery"]) for event in page if not event.redacted)

    async def queue_open(self) -> None:
        """Queue every open request for each webhook that it was not queued for."""
        known = set[str]()
        async for request in self._inbox.iterate():
            for webhook in self._webhooks.list():
                delivery = f"{webhook.id}.{request.id}"
                # What was opened before the webhook was added is no news.
                if delivery not in self._queued and request.opened_at >= webhook.created_at:
                    await self._queue(webhook, request, delivery)
                known.add(delivery)
        # Closed requests are not seen again.
        self._queued &= known

    async def _queue(self, webhook: Webhook, request: Request, delivery: str) -> None:
        # A row that differs from its event was not asked by a session of ours.
        if await self._inbox.find_mismatch(request):
            return
        body = {"delivery": delivery, "webhook": webhook.id, "request": request.id}
        job = NewJob(kind=JOB, session=self._store.id, payload=body, key=delivery)
        event = NewEvent(type=QUEUED, body=body, actor="webhooks")
        await self._ledger.commit(Change(session=self._store.id, events=(event,), jobs=(job,)))
        self._queued.add(delivery)

    async def deliver(self, work: Assignment) -> None:
        """Deliver a request as it is now. Raises if the receiver does not accept it: then the job is retried."""
        payload = work.lease.payload
        webhook = next((each for each in self._webhooks.list() if each.id == payload["webhook"]), None)
        if webhook is None:
            return
        try:
            request = await self._inbox.find(str(payload["request"]))
        except RequestNotFound:
            # Its session was deleted meanwhile.
            return
        delivery = str(payload["delivery"])
        message = {"type": "request.opened", "delivery": delivery, **self._describe(request)}
        status = await post_delivery(webhook, delivery, message, now=self._clock())
        body = {"delivery": delivery, "status": status, "attempt": work.lease.attempt}
        event = NewEvent(type=DELIVERED, body=body, actor="webhooks")
        await work.commit(Change(session=self._store.id, events=(event,)), settle=Completion())


class WebhookSender:
    """Sends while it runs, if no other process of the home does."""

    def __init__(self, application: Application, describe: DescribeRequest, clock: Clock) -> None:
        self._application, self._describe, self._clock = application, describe, clock
        self._webhooks = Webhooks(application.settings.home)
        self._lock: FileLock | None = None
        self._outbox: Outbox | None = None
        self._delivering: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Look for new requests whenever the ledger changes. Does not end by itself."""
        records, loop = await self._application.records(), asyncio.get_running_loop()
        while True:
            position, began = await records.wait(after=0, timeout=0), loop.time()
            if self._webhooks.list() and self._is_sender():
                await (await self._open()).queue_open()
            await asyncio.sleep(_PAUSE_SECONDS + _PAUSE_FACTOR * (loop.time() - began))
            await records.wait(after=position, timeout=_WAIT_SECONDS)

    def _is_sender(self) -> bool:
        # The home exists once it has a webhook.
        self._lock = self._lock or self._webhooks.lock()
        return self._lock.is_held or self._lock.acquire()

    async def _open(self) -> Outbox:
        """The outbox. With the first webhook the ledger is read, and what is due is delivered from then on."""
        if self._delivering is not None and self._delivering.done():
            ended, self._delivering, self._outbox = self._delivering, None, None
            ended.result()
        if self._outbox is None:
            context = (await self._application.runtime()).context
            store = await open_store(context, "webhooks")
            outbox = Outbox(self._webhooks, context.ledger, store, self._describe, self._clock)
            await outbox.load()
            jobs = Jobs(context.ledger, clock=self._clock, lease_ms=_LEASE_MS, max_attempts=MAX_ATTEMPTS, grace=0.0)
            jobs.register(JOB, outbox.deliver)
            self._delivering = asyncio.create_task(jobs.run())
            self._outbox = outbox
        return self._outbox

    async def close(self) -> None:
        """Stop delivering. What is due waits for the next sender."""
        if self._delivering is not None:
            await cancel_tasks(self._delivering)
        if self._lock is not None:
            self._lock.release()


@asynccontextmanager
async def send_webhooks(application: Application, describe: DescribeRequest, clock: Clock = now_ms) -> AsyncIterator[None]:
    """Send webhooks during the block, also those that are added meanwhile. `describe`: what a delivery says of a request."""
    sender, ending = WebhookSender(application, describe, clock), asyncio.Event()
    sending = asyncio.create_task(restart_on_failure(sender.run, name="Sending webhooks", until=ending))
    try:
        yield
    finally:
        ending.set()
        await cancel_tasks(sending)
        await sender.close()

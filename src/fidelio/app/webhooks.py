"""Webhooks: sends each new request of the inbox to addresses of the user, signed, and at least once.

A delivery becomes due in the ledger, as a job with the event that queues it in one transaction, so a process that is killed
loses none; the job is retried with backoff until the receiver accepts it. The receiver may see a delivery twice, after a crash
between its reply and our record, and recognizes it by its id. Addresses and secrets are in a file of the home that only its
owner can read. They are the user's own setting, so private addresses are allowed; a home that nobody trusts has none.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
import msgspec

from fidelio.clock import Clock, now_ms
from fidelio.errors import FidelioError, HomeProblem, RequestNotFound, UsageProblem
from fidelio.home import Home
from fidelio.ids import new_id
from fidelio.inbox import Inbox
from fidelio.ledger import Ledger
from fidelio.ledger.jobs import Assignment, Jobs
from fidelio.ledger.model import Change, Completion, NewEvent, NewJob, Request
from fidelio.ledger.paging import event_pages
from fidelio.retry import cancel_tasks, restart_on_failure
from fidelio.runtime.stores import Store, open_store

if TYPE_CHECKING:
    from fidelio.app.application import Application

QUEUED, DELIVERED = "webhook.queued", "webhook.delivered"
JOB = "webhook"
MAX_WEBHOOKS, MIN_SECRET, MAX_SECRET = 20, 16, 512
# With the backoff of jobs, which grows to five minutes, a receiver may be away for a day.
MAX_ATTEMPTS = 300
_LEASE_MS = 10_000
_TIMEOUT = httpx2.Timeout(10.0, connect=5.0)
RequestJson = Callable[[Request], dict[str, Any]]


class Webhook(msgspec.Struct, frozen=True):
    """An address that is notified. `secret` signs what is sent."""

    id: str
    url: str
    secret: str
    created_at: int

    def __repr__(self) -> str:
        return f"Webhook({self.id!r}, {self.url!r})"


class _File(msgspec.Struct):
    webhooks: tuple[Webhook, ...] = ()


class DeliveryRefused(FidelioError):
    """The receiver could not be reached, or did not accept a delivery."""

    code = "webhook.refused"


class Webhooks:
    """The webhooks of a home, in a file with mode 0600."""

    def __init__(self, home: Home) -> None:
        self._home, self._path = home, home.path / "webhooks.json"

    def list(self) -> tuple[Webhook, ...]:
        """The webhooks; none in a home that nobody trusts."""
        if not self._home.is_trusted:
            return ()
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return ()
        try:
            return msgspec.json.decode(content, type=_File).webhooks
        except msgspec.MsgspecError as error:
            raise HomeProblem(f"{self._path} is damaged: {error}.", remedy="Remove it, and add the webhooks again.") from error

    def add(self, url: str, secret: str, *, now: int) -> Webhook:
        """Store a webhook."""
        check_url(url)
        if not MIN_SECRET <= len(secret) <= MAX_SECRET or not secret.isprintable():
            raise UsageProblem(
                f"The secret has {len(secret)} characters.", remedy=f"Use {MIN_SECRET} to {MAX_SECRET} printable characters."
            )
        known = self.list()
        if len(known) >= MAX_WEBHOOKS:
            raise UsageProblem(f"There are {len(known)} webhooks already.", remedy="Remove one first.")
        webhook = Webhook(new_id("wh_"), url, secret, now)
        self._save((*known, webhook))
        return webhook

    def remove(self, name: str) -> Webhook:
        """Remove the webhook with this id. Deliveries that are due to it are dropped."""
        known = self.list()
        found = next((webhook for webhook in known if webhook.id == name), None)
        if found is None:
            listed = ", ".join(webhook.id for webhook in known) or "none"
            raise UsageProblem(f"There is no webhook {name!r:.80}.", remedy=f"The webhooks are: {listed}.")
        self._save(tuple(webhook for webhook in known if webhook.id != name))
        return found

    def _save(self, webhooks: Sequence[Webhook]) -> None:
        self._home.ensure()
        draft = self._path.with_name(f".webhooks.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(_File(tuple(webhooks))))
            draft.replace(self._path)
        except OSError:
            Path(draft).unlink(missing_ok=True)
            raise


def check_url(url: str) -> None:
    """Raise for an address that cannot be used, or that carries a secret itself."""
    try:
        address = urlsplit(url)
        host, _ = address.hostname, address.port
    except ValueError as error:
        raise UsageProblem(f"{url!r:.200} is not an address: {error}.", remedy="Write https://HOST/PATH.") from error
    if address.scheme not in ("http", "https") or not host:
        raise UsageProblem(f"{url!r:.200} is not an HTTP address.", remedy="Write https://HOST/PATH.")
    if address.username or address.password:
        raise UsageProblem("The address contains a user or a password.", remedy="Leave it out; deliveries are signed.")


def describe_address(url: str) -> str:
    """What a person should know about where the questions go; empty if there is nothing."""
    address = urlsplit(url)
    host = address.hostname or ""
    try:
        is_private = not ip_address(host).is_global
    except ValueError:
        is_private = host == "localhost" or host.endswith((".localhost", ".local", ".internal")) or "." not in host
    where = "The address is on this machine or in a private network. " if is_private else ""
    clear = "" if address.scheme == "https" else "It is not encrypted: whoever is between can read the questions. "
    return (where + clear).strip()


def sign(secret: str, timestamp: int, body: bytes) -> str:
    """The value of the header `Fidelio-Signature`: an HMAC-SHA-256 over the time and the body."""
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


class WebhookSender:
    """Queues the open requests for all webhooks, and delivers what is due."""

    def __init__(self, webhooks: Webhooks, ledger: Ledger, store: Store, encode: RequestJson, clock: Clock) -> None:
        self._webhooks, self._ledger, self._store, self._encode, self._clock = webhooks, ledger, store, encode, clock
        self._inbox = Inbox(ledger, clock=clock)
        self._queued: set[str] = set()

    async def load(self) -> None:
        """Read what was queued before, by this process or another."""
        async for page in event_pages(self._ledger, self._store.id, types=(QUEUED,)):
            self._queued.update(str(event.body["delivery"]) for event in page if not event.redacted)

    async def follow(self) -> None:
        """Queue every request that any process opens."""
        async for request in self._inbox.follow():
            # A row that differs from its event was not asked by a session of ours.
            if request.state == "open" and not await self._inbox.find_mismatch(request):
                await self._queue(request)

    async def _queue(self, request: Request) -> None:
        for webhook in self._webhooks.list():
            delivery = f"{webhook.id}.{request.id}"
            # What was opened before the webhook was added is no news.
            if delivery in self._queued or request.opened_at < webhook.created_at:
                continue
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
        status = await self._post(webhook, str(payload["delivery"]), request)
        body = {"delivery": payload["delivery"], "status": status, "attempt": work.lease.attempt}
        event = NewEvent(type=DELIVERED, body=body, actor="webhooks")
        await work.commit(Change(session=self._store.id, events=(event,)), settle=Completion())

    async def _post(self, webhook: Webhook, delivery: str, request: Request) -> int:
        message = {"type": "request.opened", "delivery": delivery, "request": self._encode(request)}
        content, timestamp = msgspec.json.encode(message), self._clock() // 1000
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


@asynccontextmanager
async def send_webhooks(application: Application, encode: RequestJson, clock: Clock = now_ms) -> AsyncIterator[None]:
    """Send webhooks during the block, if the home has any. `encode` is the JSON of a request."""
    webhooks = Webhooks(application.settings.home)
    if not webhooks.list():
        yield
        return
    context = (await application.runtime()).context
    sender = WebhookSender(webhooks, context.ledger, await open_store(context, "webhooks"), encode, clock)
    jobs = Jobs(context.ledger, clock=clock, lease_ms=_LEASE_MS, max_attempts=MAX_ATTEMPTS, grace=0.0)
    await sender.load()
    jobs.register(JOB, sender.deliver)
    ending = asyncio.Event()
    delivering = asyncio.create_task(jobs.run())
    following = asyncio.create_task(restart_on_failure(partial(sender.follow), name="Sending webhooks", until=ending))
    try:
        yield
    finally:
        ending.set()
        jobs.stop()
        await cancel_tasks(following, delivering)

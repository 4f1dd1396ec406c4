"""The work queue of a self-hosted environment: which sessions need a worker, and which worker has which.

An item is a document; each change of it is based on the version that was read, so of two workers only one gets it. A session
has at most one live item. When a worker is lost, its session learns which calls may have taken effect: no call is lost, and
none is carried out twice without that the model knows it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from fidelio.errors import DocumentConflict, SessionNotFound
from fidelio.ledger.encoding import DELETED
from fidelio.ledger.model import Document, NewEvent, PutDocument
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.stores import Store, find_store, open_store
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.runtime.wakes import ending
from fidelio.runtime.work.results import may_have_begun, needs_worker
from fidelio.runtime.work.rules import RECLAIM_MS, SelfHostedWork, acknowledge, beat, request_stop, requeue

NO_HEARTBEAT = "NO_HEARTBEAT"
_PAGE = 200
_ATTEMPTS = 16
_LOST = "The worker that carried out this call has ended. Look before you repeat it."
# Later times have smaller keys, so that lists are newest first.
_LAST = 1 << 44


class StaleHeartbeat(Exception):
    """A heartbeat does not name the last heartbeat: another worker may have the item."""

    def __init__(self, item: SelfHostedWork) -> None:
        super().__init__(item.id)
        self.item = item


class WorkStopped(Exception):
    """The item has stopped, so nothing can be done with it."""


class WorkPage(msgspec.Struct, frozen=True):
    """A page of items, and where the next begins."""

    items: tuple[SelfHostedWork, ...]
    next: str | None


class QueueState(msgspec.Struct, frozen=True):
    """How many items wait, how many were polled and not acknowledged, and since when the oldest of them waits."""

    waiting: int
    polled: int
    oldest: int | None


class WorkQueue:
    """The work of the sessions of an environment in a project."""

    def __init__(self, context: RuntimeContext, project: str, environment: str) -> None:
        self._context, self._project, self._environment = context, project, environment

    async def enqueue(self, session: str) -> None:
        """Queue work for a session, unless it has some."""
        store = await open_store(self._context, "work", project=self._project, agent=self._environment)
        known = await self._context.ledger.document(store.space, f"sessions/{session}")
        if known is not None and known.text is not None and (await self._load(store, known.text))[1].is_live:
            return
        now = self._context.clock()
        item = SelfHostedWork(
            id=f"work_{_LAST - now:011x}{secrets.token_hex(6)}", session=session, state="queued", created_at=now
        )
        owner = self._put(store, f"sessions/{session}", item.id, 0 if known is None else known.version)
        try:
            await self._commit(store, item, 0, "queued", owner)
        except DocumentConflict:
            # Somebody else has queued it at the same moment.
            return

    async def poll(self, *, reclaim_ms: int = RECLAIM_MS) -> SelfHostedWork | None:
        """The oldest item that waits, which the caller then acknowledges; None if there is none."""
        store = await self._find()
        if store is None:
            return None
        for name in reversed(await self._list_live(store)):
            version, item = await self._load(store, name)
            item = await self._settle(store, version, item)
            now = self._context.clock()
            if not item.can_be_polled(now, reclaim_ms):
                # A read from SQLite does not suspend, and an environment may have many items.
                await asyncio.sleep(0)
                continue
            version, current = await self._load(store, name)
            try:
                if current.can_be_polled(now, reclaim_ms):
                    return await self._commit(store, replace(current, polled_at=now), version, "")
            except DocumentConflict:
                continue
        return None

    async def acknowledge(self, name: str) -> SelfHostedWork:
        """Acknowledge a polled item. Raises `WorkStopped` if it has stopped."""

        def change(item: SelfHostedWork) -> SelfHostedWork:
            _require_live(item)
            return acknowledge(item, self._context.clock())

        return await self._change(name, change)

    async def heartbeat(
        self, name: str, *, expected: Callable[[SelfHostedWork], bool], ttl_seconds: int
    ) -> tuple[SelfHostedWork, bool]:
        """Record a heartbeat; False if the item has stopped, so that nothing was extended. Raises `StaleHeartbeat`."""

        def change(item: SelfHostedWork) -> SelfHostedWork:
            if not item.is_live:
                return item
            if item.state != "stopping" and (item.state == "queued" or not expected(item)):
                raise StaleHeartbeat(item)
            return beat(item, self._context.clock(), ttl_seconds)

        item = await self._change(name, change)
        return item, item.is_live

    async def stop(self, name: str, *, force: bool) -> SelfHostedWork:
        """Stop an item. A call that a worker may have begun gets a result that says so; the others get a new item."""
        former = await self.load(name)
        _require_live(former)

        def change(item: SelfHostedWork) -> SelfHostedWork:
            _require_live(item)
            return request_stop(item, self._context.clock(), force=force)

        stopped = await self._change(name, change)
        if not stopped.is_live:
            await self._abandon_calls(former)
            await self._queue_again(former.session)
        return stopped

    async def update(self, name: str, metadata: Callable[[dict[str, str]], dict[str, str]]) -> SelfHostedWork:
        return await self._change(name, lambda item: replace(item, metadata=metadata(item.metadata)))

    async def load(self, name: str) -> SelfHostedWork:
        """An item. Raises `SessionNotFound` if it is unknown."""
        store = await self._find()
        if store is None:
            raise _unknown(name)
        return (await self._load(store, name))[1]

    async def list_items(self, *, cursor: str | None = None, limit: int = 50) -> WorkPage:
        """A page of the items, newest first, with the stopped ones."""
        store = await self._find()
        if store is None:
            return WorkPage((), None)
        page = await self._context.ledger.documents(store.space, prefix="items/", cursor=cursor, limit=limit)
        items = [(await self._load(store, document.path.removeprefix("items/")))[1] for document in page.items]
        return WorkPage(tuple(items), page.next)

    async def describe(self) -> QueueState:
        store = await self._find()
        names = [] if store is None else await self._list_live(store)
        items = [] if store is None else [(await self._load(store, name))[1] for name in names]
        queued = [item for item in items if item.state == "queued"]
        polled = sum(1 for item in queued if item.polled_at)
        return QueueState(len(queued) - polled, polled, min((item.created_at for item in queued), default=None))

    async def _find(self) -> Store | None:
        return await find_store(self._context, "work", project=self._project, agent=self._environment)

    async def _list_live(self, store: Store) -> list[str]:
        """The ids of the items that have not stopped, newest first."""
        names: list[str] = []
        cursor: str | None = None
        while True:
            page = await self._context.ledger.documents(store.space, prefix="live/", cursor=cursor, limit=_PAGE)
            names += [document.path.removeprefix("live/") for document in page.items]
            if (cursor := page.next) is None:
                return names

    async def _load(self, store: Store, name: str) -> tuple[int, SelfHostedWork]:
        document: Document | None = await self._context.ledger.document(store.space, f"items/{name}")
        if document is None or document.text is None:
            raise _unknown(name)
        return document.version, msgspec.json.decode(document.text, type=SelfHostedWork)

    async def _change(self, name: str, change: Callable[[SelfHostedWork], SelfHostedWork]) -> SelfHostedWork:
        """Change an item as it is now, and again if somebody else was faster."""
        store = await self._find()
        if store is None:
            raise _unknown(name)
        for attempt in range(_ATTEMPTS):
            version, item = await self._load(store, name)
            changed = change(item)
            if changed == item:
                return item
            try:
                return await self._commit(store, changed, version, changed.state if changed.state != item.state else "")
            except DocumentConflict:
                if attempt + 1 == _ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _commit(self, store: Store, item: SelfHostedWork, version: int, state: str, *more: PutDocument) -> SelfHostedWork:
        """Store an item that was read in this version. A new state is an event."""
        text = msgspec.json.encode(item).decode()
        documents = [self._put(store, f"items/{item.id}", text, version), *more]
        if state == "queued" and version == 0:
            documents.append(self._put(store, f"live/{item.id}", item.session, 0))
        elif not item.is_live:
            documents.append(self._put(store, f"live/{item.id}", None, None))
        body = {"work": item.id, "session": item.session, "state": state}
        events = (NewEvent(type=e.WORK_CHANGED, body=body),) if state else ()
        await self._context.ledger.commit(store.change(*events, documents=tuple(documents)))
        return item

    def _put(self, store: Store, path: str, text: str | None, expect: int | None) -> PutDocument:
        return PutDocument(space=store.space, path=path, text=text, expect=expect)

    async def _settle(self, store: Store, version: int, item: SelfHostedWork) -> SelfHostedWork:
        """The item as it is now: queued again if its worker is silent, stopped if its session has ended."""
        now = self._context.clock()
        record = await self._load_record(item.session)
        if record is None or record.status == "terminated" or record.is_archived:
            settled = request_stop(item, now, force=True)
        elif item.has_lapsed(now):
            await self._abandon_calls(item)
            settled = requeue(item, now)
        else:
            return item
        try:
            settled = await self._commit(store, settled, version, settled.state)
        except DocumentConflict:
            return (await self._load(store, item.id))[1]
        if not settled.is_live:
            await self._queue_again(item.session)
        return settled

    async def _load_record(self, session: str) -> RuntimeRecord | None:
        try:
            loaded = await self._context.unit.load(session)
        except SessionNotFound:
            return None
        return None if loaded.session.status == DELETED else loaded.record

    async def _abandon_calls(self, item: SelfHostedWork) -> None:
        """End every call that the lost worker may have begun, so that only the model decides to repeat it."""
        if not item.lease_end:
            return

        def decide(current: LoadedRuntime) -> SessionDecision[None] | None:
            calls = [call for call in current.record.wakes.open_calls if may_have_begun(current.record, call, item)]
            if not calls or current.record.status == "terminated":
                return None
            refused = ending.refuse_calls([replace(call, is_unknown=True, request="") for call in calls], _LOST)
            return SessionDecision(None, events=refused, jobs=ending.wake_job(item.session))

        if await self._load_record(item.session) is not None:
            await self._context.unit.update(item.session, decide)

    async def _queue_again(self, session: str) -> None:
        record = await self._load_record(session)
        if record is not None and record.status != "terminated" and needs_worker(record):
            await self.enqueue(session)


async def queue_work(context: RuntimeContext, session: LoadedRuntime) -> None:
    """Queue work for a session whose calls wait for a worker."""
    record = session.record
    if needs_worker(record):
        await WorkQueue(context, record.project, record.environment).enqueue(session.id)


def _require_live(item: SelfHostedWork) -> None:
    if not item.is_live:
        raise WorkStopped(item.id)


def _unknown(name: str) -> SessionNotFound:
    return SessionNotFound(f"There is no work {name!r:.80}.", remedy="Poll for work.")

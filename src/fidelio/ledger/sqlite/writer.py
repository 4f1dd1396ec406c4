"""Writer: decides whether work is committed by the writer thread in a group or inline on the event loop of the caller.

The writer thread executes all queued work in a single transaction, syncs once and resolves the futures of all callers. Sessions
that append at the same time share a sync, and no event loop blocks. No call returns before COMMIT has returned.

For a single caller, waking the thread and being woken by it costs more than the commit. Its work is then committed inline, on
the thread of its event loop, which blocks for a fraction of a millisecond. That is done only

- once per iteration of the event loop: further work of that iteration is batched for the thread, and inline commits resume
  after an iteration with a single piece of work,
- if no work is queued for the thread (it would be overtaken) and the thread does not use the connection,
- for brief work, and only if the lock is free: the event loop never waits for another process,
- while the disk is fast, according to the moving average of commit times.

Checkpoints and indexing are always left to the thread.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, TypeVar

import apsw
import msgspec

from fidelio.errors import LedgerClosed, LedgerUnavailable
from fidelio.ledger.sqlite.connection import ConnectionOptions
from fidelio.ledger.sqlite.group_commit import Committer, Work, WorkItem
from fidelio.ledger.sqlite.notifications import Notifier

T = TypeVar("T")

MAX_GROUP_SIZE = 512
POLL_S = 0.075
# How often the bytes of erased texts are tried again that a reader still holds.
ERASURE_RETRY_S = 0.5
# Blocking the event loop for this long is acceptable; calls that arrive meanwhile join the next group.
INLINE_COMMIT_S = 0.02


class WakeUp(msgspec.Struct):
    """Queue entry that wakes the writer thread: a listener was added, the index is behind, or the ledger closes."""

    is_last: bool = False
    needs_index: bool = False


class Writer:
    """Queue and thread of the writer, and inline commits. All public methods are thread-safe."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._queue: queue.SimpleQueue[list[WorkItem] | WakeUp] = queue.SimpleQueue()
        self._batches: dict[asyncio.AbstractEventLoop, list[WorkItem]] = {}
        self._group: list[WorkItem] = []
        # Work items that the thread has been given and has not finished.
        self._queued_count = 0
        self._is_idle = False
        self._has_inline_commit = False
        self._is_contended = False
        self._is_closed = False
        self._is_stopping = False
        # None at first: the version that the thread finds when it begins may already hold what a listener waits for.
        self._seen_version: int | None = None
        self._polled_at = 0.0
        self._erased_at = 0.0
        self._lock = threading.Lock()
        self.notifier = Notifier(lambda: self._queue.put(WakeUp()))
        self._committer = Committer(options)
        self._thread = threading.Thread(target=self._run, name="fidelio-ledger", daemon=True)
        self._thread.start()

    async def execute(
        self,
        work: Work[T],
        sessions: tuple[str, ...] = (),
        *,
        is_brief: bool = False,
        erases: bool = False,
    ) -> T:
        """Run `work` in a transaction and return its result once it is durable. It may run again after a rollback."""
        loop = asyncio.get_running_loop()
        item = WorkItem(work, sessions, loop.create_future(), loop, is_brief, erases)
        is_committed = self._reserve_inline_commit(item) and self._commit_inline(item)
        result: T = _get_result(item) if is_committed else await item.future
        return result

    def schedule_indexing(self) -> None:
        with self._lock:
            self._require_open()
            self._queue.put(WakeUp(needs_index=True))

    def close(self) -> None:
        """Finish the queued work and stop the thread. Blocks, so call it in a thread."""
        with self._lock:
            first, self._is_closed = not self._is_closed, True
            if first:
                for batch in self._batches.values():
                    self._enqueue(batch)
                self._batches.clear()
                # Put under the lock, so that no work can be queued behind it and wait for ever.
                self._queue.put(WakeUp(is_last=True))
        self._thread.join()

    # Runs in the thread of the caller

    def _reserve_inline_commit(self, item: WorkItem) -> bool:
        """Reserve an inline commit for an item; if that is not possible, queue the item and return False."""
        with self._lock:
            self._require_open()
            if self._has_inline_commit or self._is_contended or self._batches or not self._can_commit_inline([item]):
                self._add_to_batch(item)
                return False
            self._has_inline_commit = True
        item.loop.call_soon(self._release_inline_commit)
        return True

    def _release_inline_commit(self) -> None:
        self._has_inline_commit = False

    def _add_to_batch(self, item: WorkItem) -> None:
        batch = self._batches.get(item.loop)
        if batch is None:
            # Sent at the end of this iteration of the event loop: a single wake-up for all work of the iteration, and the two
            # threads do not compete for the GIL while other tasks still encode their changes.
            batch = self._batches[item.loop] = []
            item.loop.call_soon(self._flush_batch, item.loop)
        batch.append(item)

    def _require_open(self) -> None:
        if self._is_closed:
            raise LedgerClosed("The ledger was closed.", remedy="Open it again.")

    def _flush_batch(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            batch = [item for item in self._batches.pop(loop, ()) if not item.future.cancelled()]
            if not batch:
                return
            self._is_contended = len(batch) > 1
            if not self._can_commit_inline(batch):
                self._enqueue(batch)
                return
        try:
            if self._commit_inline(batch[0]):
                _resolve(batch)
        except BaseException as bug:
            # This is a callback of the event loop: without a result in the future the caller would wait for ever.
            batch[0].future.set_exception(bug)
            raise

    def _enqueue(self, items: list[WorkItem]) -> None:
        self._queued_count += len(items)
        self._queue.put(items)

    def _can_commit_inline(self, batch: Sequence[WorkItem]) -> bool:
        """Whether the batch is a single brief item and the connection is free; if so, its lock is now held."""
        return (
            len(batch) == 1
            and batch[0].is_brief
            and not self._queued_count
            and self._committer.commit_seconds <= INLINE_COMMIT_S
            and self._committer.lock.acquire(blocking=False)
        )

    def _commit_inline(self, item: WorkItem) -> bool:
        """Commit an item and release the lock; if another process holds the file, queue the item and return False."""
        try:
            committed = self._committer.commit_unless_busy(item)
            if not committed:
                # Queued before the lock is released, or the thread could shut down first and never answer.
                with self._lock:
                    self._enqueue([item])
        finally:
            self._committer.lock.release()
        if committed:
            self._notify([item])
            self._wake_writer()
        return committed

    def _wake_writer(self) -> None:
        """Wake the thread if it would otherwise sleep although there is work; waking it for every commit costs too much."""
        if self._is_idle or self._committer.checkpoint_due:
            self._is_idle = False
            self._queue.put(WakeUp())

    # Runs in the writer thread

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._collect()
                if self._group or self._is_stopping:
                    self._commit_group()
                self._run_periodic_work()
        finally:
            self._shut_down()

    def _collect(self) -> None:
        """Fill the group from the queue; wait for the first entry until periodic work is due."""
        # Set before the timeout is computed: an inline commit between the two lines must wake the thread.
        self._is_idle = True
        timeout = self._next_timeout()
        self._is_idle = timeout is None
        try:
            self._accept(self._queue.get(timeout=timeout))
            while len(self._group) < MAX_GROUP_SIZE:
                self._accept(self._queue.get_nowait())
        except queue.Empty:
            return

    def _accept(self, item: list[WorkItem] | WakeUp) -> None:
        if isinstance(item, list):
            self._group += item
            return
        self._is_stopping = self._is_stopping or item.is_last
        if item.needs_index:
            self._committer.indexer.schedule()

    def _next_timeout(self) -> float | None:
        timeouts = [POLL_S] if self.notifier else []
        due = self._committer.indexer.due_in()
        if due is not None:
            timeouts.append(due)
        if self._committer.erasure_pending:
            timeouts.append(ERASURE_RETRY_S)
        return min(timeouts, default=None)

    def _commit_group(self) -> None:
        with self._committer.lock:
            if self._is_stopping:
                # Items whose inline commit failed meanwhile because the file was locked.
                self._group += _drain(self._queue)
            group = [item for item in self._group if not item.future.cancelled()]
            if group:
                self._committer.commit(group)
        with self._lock:
            self._queued_count -= len(self._group)
            self._group = []
        deliver(group)
        self._notify(group)

    def _notify(self, group: Sequence[WorkItem]) -> None:
        if self.notifier:
            self.notifier.notify({session for item in group if item.error is None for session in item.sessions})

    def _run_periodic_work(self) -> None:
        now = time.monotonic()
        if self.notifier and now - self._polled_at >= POLL_S:
            self._polled_at = now
            self._poll_other_processes()
        if self._committer.checkpoint_due:
            with self._committer.lock:
                self._committer.checkpoint()
        if self._committer.erasure_pending and (now - self._erased_at >= ERASURE_RETRY_S or self._is_stopping):
            self._erased_at = now
            with self._committer.lock:
                self._committer.finish_erasure(wait_ms=0)
        if self._committer.indexer.due_in() == 0 or self._is_stopping:
            with self._committer.lock:
                self._committer.run_maintenance()

    def _poll_other_processes(self) -> None:
        version = self._data_version()
        if version != self._seen_version:
            is_first, self._seen_version = self._seen_version is None, version
            self.notifier.notify(None)
            if not is_first:
                self._committer.indexer.schedule()

    def _data_version(self) -> int | None:
        try:
            with self._committer.lock:
                return self._committer.data_version()
        except apsw.Error:
            # Listeners have timeouts of their own, and the next poll may succeed.
            return self._seen_version

    def _shut_down(self) -> None:
        with self._lock:
            self._is_closed = True
            batched = [item for batch in self._batches.values() for item in batch]
            self._batches.clear()
        with self._committer.lock:
            unfinished = [*self._group, *_drain(self._queue), *batched]
            self._committer.connection.close()
        for item in unfinished:
            item.error = LedgerClosed("The ledger was closed before this was written.", remedy="Open it again and retry.")
        deliver(unfinished)
        self.notifier.close()


class ReadOnlyWriter(Writer):
    """The writer of a read-only file: every change is refused."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.notifier = Notifier(lambda: None)

    async def execute(self, *_: object, **__: object) -> Any:
        raise LedgerUnavailable(
            f"{self._path} can only be read: the file or its directory is read-only.",
            remedy="Make the file and its directory writable.",
        )

    def schedule_indexing(self) -> None:
        """Do nothing: the index stays as it is."""

    def close(self) -> None:
        self.notifier.close()


def _get_result(item: WorkItem) -> Any:
    if item.error is not None:
        raise item.error
    return item.result


def _drain(source: queue.SimpleQueue[list[WorkItem] | WakeUp]) -> list[WorkItem]:
    items: list[WorkItem] = []
    while not source.empty():
        item = source.get_nowait()
        if isinstance(item, list):
            items += item
    return items


def deliver(group: Sequence[WorkItem]) -> None:
    """Resolve the futures of all items, with a single wake-up per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[WorkItem]] = defaultdict(list)
    for item in group:
        by_loop[item.loop].append(item)
    for loop, items in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, items)
        except RuntimeError:
            # The loop was closed, so its tasks no longer wait.
            continue


def _resolve(items: Sequence[WorkItem]) -> None:
    for item in items:
        if item.future.done():
            continue
        if item.error is not None:
            item.future.set_exception(item.error)
        else:
            item.future.set_result(item.result)

"""Restores a snapshot of a workspace, for a person.

It holds the lease of the session's wakes: none runs meanwhile, whatever is sent. After a crash the lease expires, the session
goes on, and the snapshot can be restored again; so can the state before, which is stored as a snapshot first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fidelio.errors import UsageProblem
from fidelio.ids import new_id
from fidelio.ledger.jobs import Assignment
from fidelio.ledger.model import Change, Completion, NewEvent
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.retry import cancel_tasks
from fidelio.runtime import events as e
from fidelio.runtime.schedules import require_active
from fidelio.runtime.snapshots.snapshots import describe_entry, describe_snapshot, require_snapshot, run_to_end
from fidelio.runtime.snapshots.store import SnapshotStore
from fidelio.runtime.snapshots.writing import restore
from fidelio.runtime.specs import session_directory
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.runtime.wakes.ending import expiry_job, wake_job
from fidelio.runtime.wakes.record import WAKE_JOB
from fidelio.runtime.wakes.rules import NothingDue, plan_wake

# A process that dies in a restore blocks the session for this long.
_LEASE_MS = 30_000
_CLAIM_ATTEMPTS, _CLAIM_SECONDS = 25, 0.2


async def restore_snapshot(
    context: RuntimeContext, session: str, snapshot: str, *, by: str, discard: bool = False
) -> dict[str, Any]:
    """Make the workspace what it was. Only a person may, while no wake and no command runs; the sandbox is stopped.

    The present state becomes a snapshot first. `discard`: also if it is too large for one.
    """
    entry = require_snapshot(await context.unit.load(session), snapshot)
    async with _hold_session(context, session) as assignment:
        loaded = await context.unit.load(session)
        await _stop_sandbox(context, loaded)
        saved = await _save_present(context, loaded, snapshot, discard=discard)
        directory = session_directory(context, loaded.record)
        try:
            await run_to_end(lambda: _restore(directory, snapshot))
        except UsageProblem:
            await _release(context, assignment, (saved,))
            raise
        restored = NewEvent(type=e.SNAPSHOT_RESTORED, body={"snapshot_id": snapshot}, actor=by)
        await _release(context, assignment, (saved, restored))
    return describe_entry(entry)


def _restore(directory: Path, snapshot: str) -> None:
    store = SnapshotStore(directory)
    try:
        restore(directory, store, store.load(snapshot))
    except OSError as error:
        raise UsageProblem(
            f"The snapshot could not be restored: {error.strerror}.", remedy="Free space on the disk, and restore it again."
        ) from error


async def _save_present(context: RuntimeContext, session: LoadedRuntime, restoring: str, *, discard: bool) -> NewEvent:
    """Store the state that is about to be replaced, so that a restore can be undone."""
    event = await describe_snapshot(context, session, "", restoring)
    if event.type == e.SNAPSHOT_SKIPPED and not discard:
        reason = event.body["reason"]
        raise UsageProblem(f"The present state would be lost. {reason}", remedy="Discard it explicitly, or make it smaller.")
    return event


async def _stop_sandbox(context: RuntimeContext, session: LoadedRuntime) -> None:
    state = await context.sandboxes.state(session.id)
    if state is None:
        return
    if session.record.shell.unsettled and state.incarnation == session.record.sandbox.incarnation:
        raise UsageProblem(f"A command of session {session.id} still runs.", remedy="Wait for it, or interrupt the session.")
    await context.sandboxes.stop(session.id)


@asynccontextmanager
async def _hold_session(context: RuntimeContext, session: str) -> AsyncIterator[Assignment]:
    """Hold the lease of the session's wakes. Raises `UsageProblem` while a wake runs."""
    assignment = await _claim(context, session)
    # Many small files take minutes on a slow disk.
    renewing = asyncio.create_task(_renew(assignment))
    try:
        record = require_active(await context.unit.load(session))
        if record.wakes.current:
            raise _busy(session)
        yield assignment
    finally:
        await cancel_tasks(renewing)
        if not assignment.is_settled:
            await asyncio.shield(_release(context, assignment, ()))


async def _renew(assignment: Assignment) -> None:
    """Renew the lease. If that fails, the commit of the restore fails, too."""
    lease = assignment.lease
    while True:
        await asyncio.sleep(_LEASE_MS / 3_000)
        lease = await assignment.ledger.heartbeat(lease, lease_ms=_LEASE_MS)


async def _claim(context: RuntimeContext, session: str) -> Assignment:
    ledger = context.ledger
    for _ in range(_CLAIM_ATTEMPTS):
        require_active(await context.unit.load(session))
        await ledger.commit(Change(session=session, jobs=wake_job(session)))
        lease = await ledger.claim(f"restore/{new_id('')}", (WAKE_JOB,), lease_ms=_LEASE_MS, session=session)
        if lease is not None:
            return Assignment(ledger, lease)
        # A worker may have claimed it first, for nothing: it releases the session at once.
        if (await context.unit.load(session)).record.wakes.current:
            break
        await ledger.wait(after=await ledger.wait(after=-1, timeout=0), timeout=_CLAIM_SECONDS)
    raise _busy(session)


def _busy(session: str) -> UsageProblem:
    return UsageProblem(f"Session {session} is at work.", remedy="Interrupt it, or wait until it is idle.")


async def _release(context: RuntimeContext, assignment: Assignment, events: tuple[NewEvent, ...]) -> None:
    """End the lease, and queue the wake that is due by the record."""
    session = assignment.lease.session

    def release(current: LoadedRuntime) -> SessionDecision[None]:
        plan = plan_wake(current.record, now=context.clock())
        jobs = wake_job(session)
        if isinstance(plan, NothingDue):
            jobs = (*wake_job(session, plan.next), *expiry_job(session, plan.expiry))
        return SessionDecision(None, events=events, jobs=jobs, settle=Completion())

    await context.unit.update(session, release, assignment=assignment)

"""Ends the processes of runs that nobody watches any more."""

from __future__ import annotations

import asyncio

from fidelio.errors import SessionNotFound
from fidelio.ledger import Ledger
from fidelio.ledger.erasing import DELETED
from fidelio.orchestrator.processes import missing_support, stop_run
from fidelio.orchestrator.processes_ending import GRACE_SECONDS
from fidelio.orchestrator.processes_table import entries
from fidelio.orchestrator.rules import session_of


async def end_processes(run: str, *, grace: float = GRACE_SECONDS) -> bool:
    """Ends whatever carries the mark of this run. False: somebody is left. Where processes cannot be told apart, none run."""
    return True if missing_support() else await stop_run(run, grace=grace)


async def end_processes_of_deleted(ledger: Ledger) -> None:
    """Ends what is left of sessions that this record knows as deleted. Those of another record are not ours to judge."""
    runs = set() if missing_support() else await asyncio.to_thread(_runs)
    deleted = [run for run in sorted(runs) if await was_deleted(ledger, session_of(run))]
    await asyncio.gather(*(end_processes(run) for run in deleted))


async def was_deleted(ledger: Ledger, session: str) -> bool:
    try:
        return (await ledger.session(session)).status == DELETED
    except SessionNotFound:
        return False


def _runs() -> set[str]:
    """Those that processes name in their environment."""
    return {entry.run for entry in entries() if entry.run}

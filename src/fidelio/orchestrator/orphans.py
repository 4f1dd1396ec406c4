"""Ends the processes of runs that nobody watches any more."""

from __future__ import annotations

from fidelio.orchestrator.processes import missing_support, stop_run
from fidelio.orchestrator.processes_ending import GRACE_SECONDS


async def end_processes(run: str, *, grace: float = GRACE_SECONDS) -> bool:
    """Ends whatever carries the mark of this run. False: somebody is left. Where processes cannot be told apart, none run."""
    return True if missing_support() else await stop_run(run, grace=grace)

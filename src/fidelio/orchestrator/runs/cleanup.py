"""Where processes of agents leave what has to outlive whoever watches them; taken away once the ledger has everything."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

from fidelio.errors import SessionNotFound
from fidelio.home import Home
from fidelio.ids import session_of_run
from fidelio.ledger import Ledger
from fidelio.ledger.encoding import DELETED
from fidelio.processes.ending import end_processes
from fidelio.processes.table import iterate_processes, missing_support


def spool_directory(home: Home, session: str, number: int, part: int) -> Path:
    """A place for what a process leaves. A second process of the same run has its own."""
    return home.runs / session / str(number) / str(part)


async def remove_run_files(home: Home, session: str, number: int) -> None:
    place = home.runs / session / str(number)
    # Agents without a process leave nothing, and a thread for nothing would cost more than their whole turn.
    if os.path.exists(place):  # noqa: ASYNC240, PTH110  # one look that does not wait for anything
        await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)


def remove_session_files(home: Home, sessions: Iterable[str]) -> None:
    for session in sessions:
        shutil.rmtree(home.runs / session, ignore_errors=True)
        shutil.rmtree(home.agent_homes / session, ignore_errors=True)


async def sweep_run_files(home: Home, ledger: Ledger, needed: Collection[str]) -> None:
    """Removes what a crash between the end of a run and its tidying has left. `needed` are the sessions at work."""
    for session in await asyncio.to_thread(_sessions_with_files, home):
        if session not in needed and await _is_known(ledger, session):
            await asyncio.to_thread(shutil.rmtree, home.runs / session, ignore_errors=True)


def _sessions_with_files(home: Home) -> list[str]:
    return [place.name for place in home.runs.iterdir()] if home.runs.is_dir() else []


async def _is_known(ledger: Ledger, session: str) -> bool:
    """Not so those of another record, which may be used in turn with this one."""
    try:
        await ledger.session(session)
    except SessionNotFound:
        return False
    return True


async def end_orphaned_processes(ledger: Ledger) -> None:
    """Ends what is left of sessions that this record knows as deleted. Those of another record are not ours to judge."""
    runs = set() if missing_support() else await asyncio.to_thread(_runs_with_processes)
    deleted = [run for run in sorted(runs) if await is_deleted(ledger, session_of_run(run))]
    await asyncio.gather(*(end_processes(run) for run in deleted))


async def is_deleted(ledger: Ledger, session: str) -> bool:
    try:
        return (await ledger.session(session)).status == DELETED
    except SessionNotFound:
        return False


def _runs_with_processes() -> set[str]:
    """Those that processes name in their environment."""
    return {entry.run for entry in iterate_processes() if entry.run}

"""Spool directories of runs, which outlive the agent host, and their removal once the ledger has everything."""

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
    """The spool directory of a call of the executor. A second call within the same run has its own."""
    return home.runs / session / str(number) / str(part)


async def remove_run_files(home: Home, session: str, number: int) -> None:
    directory = home.runs / session / str(number)
    # Agents without a process have no files, and starting a thread would cost more than their whole turn.
    if os.path.exists(directory):  # noqa: ASYNC240, PTH110  # a single stat call that does not block
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)


def remove_session_files(home: Home, sessions: Iterable[str]) -> None:
    for session in sessions:
        shutil.rmtree(home.runs / session, ignore_errors=True)
        shutil.rmtree(home.agent_homes / session, ignore_errors=True)


async def sweep_run_files(home: Home, ledger: Ledger, needed: Collection[str]) -> None:
    """Remove files that a crash between the end of a run and its cleanup left. `needed` are the active sessions."""
    for session in await asyncio.to_thread(_sessions_with_files, home):
        # The files of a session in another ledger of this home must stay.
        if session not in needed and await _find_status(ledger, session) is not None:
            await asyncio.to_thread(shutil.rmtree, home.runs / session, ignore_errors=True)


def _sessions_with_files(home: Home) -> list[str]:
    return [directory.name for directory in home.runs.iterdir()] if home.runs.is_dir() else []


async def end_orphaned_processes(ledger: Ledger) -> None:
    """End the processes of sessions that were deleted in this ledger. Sessions of another ledger are left alone."""
    runs = set() if missing_support() else await asyncio.to_thread(_runs_with_processes)
    deleted = [run for run in sorted(runs) if await is_deleted(ledger, session_of_run(run))]
    await asyncio.gather(*(end_processes(run) for run in deleted))


async def is_deleted(ledger: Ledger, session: str) -> bool:
    return await _find_status(ledger, session) == DELETED


async def _find_status(ledger: Ledger, session: str) -> str | None:
    try:
        return (await ledger.session(session)).status
    except SessionNotFound:
        return None


def _runs_with_processes() -> set[str]:
    """The runs in the environments of living processes."""
    return {entry.run for entry in iterate_processes() if entry.run}

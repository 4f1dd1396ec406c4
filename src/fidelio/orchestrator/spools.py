"""Where processes of agents leave what has to outlive whoever watches them; taken away once the ledger has everything."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Collection
from pathlib import Path

from fidelio.home import Home


def spool_of(home: Home, session: str, number: int, part: int) -> Path:
    """A place for what a process leaves. A second process of the same run has its own."""
    return home.runs / session / str(number) / str(part)


async def remove_run(home: Home, session: str, number: int) -> None:
    place = home.runs / session / str(number)
    # Agents without a process leave nothing, and a thread for nothing would cost more than their whole turn.
    if os.path.exists(place):  # noqa: ASYNC240, PTH110  # one look that does not wait for anything
        await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)


def remove_session(home: Home, session: str) -> None:
    shutil.rmtree(home.runs / session, ignore_errors=True)
    shutil.rmtree(home.agent_homes / session, ignore_errors=True)


def sweep(home: Home, needed: Collection[str]) -> None:
    """Removes what a crash between the end of a run and its tidying has left. `needed` are the sessions at work."""
    if home.runs.is_dir():
        for place in home.runs.iterdir():
            if place.name not in needed:
                shutil.rmtree(place, ignore_errors=True)

"""Workflows that agents carry out in the background of a server, for the tool run_workflow.

The server only has to be there for it to go on: where a run stands is in the ledger, and whoever asks for it again goes on.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from fidelio.app.application import House
from fidelio.clock import now_ms
from fidelio.errors import ConductorFailure
from fidelio.surfaces.mcp import progress

if TYPE_CHECKING:
    from fidelio.conductor.plan import Plan
    from fidelio.engine.state import Record
    from fidelio.workflows.unit_of_work import Desk

PROGRESS_SECONDS = 10.0


class Conducting:
    """The runs that this process carries out."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._tasks: dict[str, asyncio.Task[object]] = {}
        # Why runs have ended here that could not put it on record themselves.
        self._broken: dict[str, str] = {}

    async def run(self, plan: Plan, *, anew: bool, seconds: float) -> dict[str, Any]:
        """Begins the run or goes on with it, and says how it stands after `seconds` at the latest."""
        from fidelio.conductor.context import nobody  # noqa: PLC0415  # waits for the first call

        conductor = await self._house.conductor(nobody)
        found = await conductor.find_or_begin(plan, anew=anew)
        if found.session not in self._tasks:
            self._broken.pop(found.session, None)
            task: asyncio.Task[object] = asyncio.create_task(conductor.carry_out(found.session))
            self._tasks[found.session] = task
            task.add_done_callback(partial(self._ended, found.session))
        await self._watch(found.session, seconds)
        return await self._standing(found.session)

    def _ended(self, session: str, task: asyncio.Task[object]) -> None:
        """A run that fails says why in its record. Where even that fails, nobody carries it out and nobody would know."""
        self._tasks.pop(session, None)
        problem = None if task.cancelled() else task.exception()
        if problem is not None and not isinstance(problem, ConductorFailure):
            self._broken[session] = f"{problem} Calling run_workflow again goes on from here."

    async def _watch(self, session: str, seconds: float) -> None:
        """Waits for the end, and tells the client on the way where the run stands."""
        began = now_ms()
        while (task := self._tasks.get(session)) is not None and (left := seconds - (now_ms() - began) / 1000) > 0:
            await asyncio.wait([task], timeout=min(left, PROGRESS_SECONDS))
            standing = await self._standing(session)
            await progress.report((now_ms() - began) / 1000, None, standing.get("activity") or standing["status"])

    async def _standing(self, session: str) -> dict[str, Any]:
        from fidelio.conductor.plan import last_failure  # noqa: PLC0415  # waits for the first call

        desk = (await self._house.workflows()).desk
        record = await desk.caught_up(await desk.ledger.session(session))
        failed = self._broken.get(session) or await last_failure(desk.ledger, session)
        body = {
            "session_id": session,
            "workflow_id": record.workflow,
            "status": "failed" if failed else record.status,
            "activity": record.activity,
            "completed_activities": list(record.completed),
            "question": await _question(desk, record),
            "reason": failed,
        }
        return {key: value for key, value in body.items() if value}


async def _question(desk: Desk, record: Record) -> str:
    """How to answer what the run waits for; where it has started another workflow, that one may be who asks."""
    while record.suspended_by:
        record = await desk.caught_up(await desk.ledger.session(record.suspended_by))
    return f"`fidelio answer {record.waiting.request} OPTION`" if record.waiting else ""

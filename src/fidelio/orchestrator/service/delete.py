"""Deletes sessions: their agents are stopped first, what they said is erased, and their names are free again.

Only what is still as it was found at rest is erased, in the same breath: a session that was set to work meanwhile, by a
message or by the end of a child, is stopped first as well. Work is not erased with them: a worktree that holds changes stays
where it is, and whoever deletes is told so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from itertools import count

import msgspec

from fidelio.errors import SequenceConflict, SessionNotFound
from fidelio.orchestrator.record import phrases
from fidelio.orchestrator.record.rules import is_active
from fidelio.orchestrator.record.unit_of_work import LoadedAgent, load_row, view
from fidelio.orchestrator.runs import worktrees
from fidelio.orchestrator.runs.callbacks import Callbacks
from fidelio.orchestrator.runs.cleanup import remove_sessions
from fidelio.orchestrator.runs.context import OrchestratorContext
from fidelio.orchestrator.runs.lineage import own_line, require_not_own
from fidelio.orchestrator.runs.queries import Queries
from fidelio.orchestrator.service.stop import Stopping

_AT_ONCE = 1_000
# Somebody who sets a session to work again each time it was stopped is not to be outrun.
_TRIES = 20
# Each is several programs one after the other, on a machine where agents work.
_WORKTREES_AT_ONCE = 4


class Deleted(msgspec.Struct, frozen=True):
    """How many sessions are gone, and the worktrees that stayed because something in them would be lost.

    `spared` are the names of those that stayed because the agent that deletes is one of them, or works for them.
    """

    count: int = 0
    kept: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.count > 0


class Deletion(msgspec.Struct, frozen=True):
    """Removes sessions for good."""

    context: OrchestratorContext
    queries: Queries
    stopping: Stopping

    async def delete(self, at: LoadedAgent, *, by: str) -> Deleted:
        await require_not_own(self.context, at, by)
        return await self._delete([at], by=by)

    async def delete_all(self, project: str | None, *, by: str) -> Deleted:
        """All sessions of a project, or of all projects. One whose agent cannot be stopped stays, and is an error."""
        found = [load_row(session) async for session in self.queries.every(project) if session.has_record]
        own = await own_line(self.context, by)
        deleted = await self._delete([at for at in found if at.id not in own], by=by)
        spared = tuple(at.session.name or at.id for at in found if at.id in own)
        return msgspec.structs.replace(deleted, spared=spared)

    async def _delete(self, sessions: list[LoadedAgent], *, by: str) -> Deleted:
        going = {at.id for at in sessions}
        sessions = await self._at_rest(sessions, by=by)
        deleted = Deleted()
        for first in range(0, len(sessions), _AT_ONCE):
            part = await self._erase(sessions[first : first + _AT_ONCE], going, by=by)
            deleted = Deleted(deleted.count + part.count, deleted.kept + part.kept)
        return deleted

    async def _erase(self, sessions: list[LoadedAgent], going: Collection[str], *, by: str) -> Deleted:
        told: set[str] = set()
        for attempt in count(1):
            new = [at for at in sessions if at.record.run.id not in told]
            await Callbacks(self.context, self.queries).before_deletion(new, going=going, by=by)
            told |= {at.record.run.id for at in new}
            kept = await self._worktrees_left(sessions)
            try:
                await self._erase_unchanged(sessions, by=by)
            except SequenceConflict:
                if attempt == _TRIES:
                    raise
                sessions = await self._at_rest(await self._as_they_are(sessions), by=by)
                continue
            break
        await asyncio.to_thread(remove_sessions, self.context.home, [at.id for at in sessions])
        return Deleted(len(sessions), kept)

    async def _erase_unchanged(self, sessions: list[LoadedAgent], *, by: str) -> None:
        """Raises `SequenceConflict`, and erases none of them, when anything was written to one since it was read."""
        expect = {at.id: at.session.last_seq for at in sessions}
        await self.context.ledger.erase(list(expect), actor=by, reason="The session was deleted.", expect=expect)

    async def _at_rest(self, sessions: list[LoadedAgent], *, by: str) -> list[LoadedAgent]:
        """The sessions once nobody works on them any more, as they are then: a last turn may have changed anything."""
        working = [at for at in sessions if is_active(at.record.run.state)]
        await self.stopping.stop_all(working, by=by, going={at.id for at in sessions})
        stopped = {at.id: at for at in await self._as_they_are(working)}
        for now in stopped.values():
            if is_active(now.record.run.state):
                raise phrases.cannot_stop(view(now))
        gone = {at.id for at in working} - set(stopped)
        return [stopped.get(at.id, at) for at in sessions if at.id not in gone]

    async def _as_they_are(self, sessions: list[LoadedAgent]) -> list[LoadedAgent]:
        """Those that nobody else has deleted meanwhile."""
        found = []
        for at in sessions:
            with suppress(SessionNotFound):
                found.append(await self.context.unit.load(at.id))
        return found

    async def _worktrees_left(self, sessions: list[LoadedAgent]) -> tuple[str, ...]:
        """Where the worktrees of sessions are that have to stay."""
        few = asyncio.Semaphore(_WORKTREES_AT_ONCE)

        async def left(at: LoadedAgent) -> str:
            async with few:
                removed = await worktrees.remove(at.record.project, worktrees.recorded(at.record))
            return "" if removed else at.record.worktree

        found = await asyncio.gather(*(left(at) for at in sessions if at.record.worktree))
        return tuple(path for path in found if path)

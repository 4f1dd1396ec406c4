"""Deletes sessions: their agents are stopped first, what they said is erased, and their names are free again.

Work is not erased with them: a worktree that holds changes stays where it is, and whoever deletes is told so.
"""

from __future__ import annotations

import msgspec

from fidelio.orchestrator import phrases, worktrees
from fidelio.orchestrator.callbacks import Callbacks
from fidelio.orchestrator.desk import Opened, opened, view
from fidelio.orchestrator.parts import Parts
from fidelio.orchestrator.queries import Queries
from fidelio.orchestrator.rules import is_active
from fidelio.orchestrator.spools import remove_session
from fidelio.orchestrator.stopping import Stopping

_AT_ONCE = 1_000


class Deleted(msgspec.Struct, frozen=True):
    """How many sessions are gone, and the worktrees that stayed because something in them would be lost."""

    count: int = 0
    kept: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.count > 0


class Deletion(msgspec.Struct, frozen=True):
    """Removes sessions for good."""

    parts: Parts
    queries: Queries
    stopping: Stopping

    async def delete(self, at: Opened, *, by: str) -> Deleted:
        return await self._erase([at], by=by)

    async def delete_all(self, project: str | None, *, by: str) -> Deleted:
        """All sessions of a project, or of all projects. One whose agent cannot be stopped stays, and is an error."""
        found = [opened(session) async for session in self.queries.every(project) if session.record]
        deleted = Deleted()
        for first in range(0, len(found), _AT_ONCE):
            part = await self._erase(found[first : first + _AT_ONCE], by=by)
            deleted = Deleted(deleted.count + part.count, deleted.kept + part.kept)
        return deleted

    async def _erase(self, sessions: list[Opened], *, by: str) -> Deleted:
        sessions = await self._at_rest(sessions, by=by)
        await Callbacks(self.parts, self.queries).before_deletion(sessions, by=by)
        kept = [path for at in sessions if (path := await self._worktree_left(at))]
        await self.parts.ledger.erase([at.id for at in sessions], actor=by, reason="The session was deleted.")
        for at in sessions:
            remove_session(self.parts.home, at.id)
        return Deleted(len(sessions), tuple(kept))

    async def _at_rest(self, sessions: list[Opened], *, by: str) -> list[Opened]:
        """The sessions once nobody works on them any more, as they are then: a last turn may have changed anything."""
        working = [at for at in sessions if is_active(at.record.run.state)]
        await self.stopping.stop_all(working, by=by)
        stopped = {at.id: await self.parts.desk.open(at.id) for at in working}
        for now in stopped.values():
            if is_active(now.record.run.state):
                raise phrases.cannot_stop(view(now))
        return [stopped.get(at.id, at) for at in sessions]

    async def _worktree_left(self, at: Opened) -> str:
        """Where the worktree of a session is that has to stay, else empty."""
        record = at.record
        if not record.worktree:
            return ""
        return "" if await worktrees.remove(record.project, worktrees.recorded(record)) else record.worktree

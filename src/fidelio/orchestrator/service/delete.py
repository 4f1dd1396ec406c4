"""Deleting sessions: their agents are stopped first, their events are erased, and their names are free again.

A session is erased only if it has not changed since it was stopped: a session that was resumed meanwhile, by a message or by
the end of a child, is stopped again first. Work is not erased: a worktree with changes stays, and the result names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from itertools import count

import msgspec

from fidelio.errors import SequenceConflict
from fidelio.ledger.model import Session
from fidelio.orchestrator.record import errors
from fidelio.orchestrator.record.rules import is_active
from fidelio.orchestrator.record.unit_of_work import LoadedAgent, decode_session, view_session
from fidelio.orchestrator.runs import worktrees
from fidelio.orchestrator.runs.callbacks import Callbacks
from fidelio.orchestrator.runs.cleanup import remove_session_files
from fidelio.orchestrator.runs.context import OrchestratorContext
from fidelio.orchestrator.runs.lineage import calling_session, load_ancestry, require_outside_ancestry
from fidelio.orchestrator.runs.queries import AgentQueries
from fidelio.orchestrator.service.stop import SessionStopper

_BATCH_SIZE = 1_000
_REASON = "The session was deleted."
# A caller that resumes the session each time it was stopped must not keep this loop running for ever.
_MAX_ATTEMPTS = 20
# Each removal runs several git commands, on a machine where agents work.
_WORKTREES_AT_ONCE = 4


class DeletionResult(msgspec.Struct, frozen=True):
    """How many sessions were deleted, and the worktrees that stayed because they hold changes.

    `skipped` are the names of sessions that stayed because the calling agent is, or works for, one of them. `erasure_pending`:
    a reader still holds erased bytes, which are erased once it has ended.
    """

    count: int = 0
    retained_worktrees: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    erasure_pending: bool = False

    def __bool__(self) -> bool:
        return self.count > 0


class SessionDeleter(msgspec.Struct, frozen=True):
    """Deletes sessions with their events, files and unchanged worktrees."""

    context: OrchestratorContext
    queries: AgentQueries
    stopper: SessionStopper

    async def delete(self, agent: LoadedAgent, *, by: str) -> DeletionResult:
        await require_outside_ancestry(self.context, agent, by)
        return await self._delete_sessions([agent], by=by)

    async def delete_sessions(self, sessions: Sequence[Session], *, by: str, reason: str) -> DeletionResult:
        """Delete these sessions, for a person, who says why."""
        return await self._delete_sessions([decode_session(session) for session in sessions], by=by, reason=reason)

    async def delete_all(self, project: str | None, *, by: str) -> DeletionResult:
        """Delete all sessions of a project, or of all projects. Raises if an agent cannot be stopped."""
        found = [decode_session(session) async for session in self.queries.iterate_sessions(project) if session.has_record]
        own = await load_ancestry(self.context, calling_session(by))
        deleted = await self._delete_sessions([agent for agent in found if agent.id not in own], by=by)
        skipped = tuple(agent.session.name or agent.id for agent in found if agent.id in own)
        return msgspec.structs.replace(deleted, skipped=skipped)

    async def _delete_sessions(self, sessions: list[LoadedAgent], *, by: str, reason: str = _REASON) -> DeletionResult:
        deleting = {agent.id for agent in sessions}
        sessions = await self._stop(sessions, by=by)
        deleted = DeletionResult()
        for first in range(0, len(sessions), _BATCH_SIZE):
            part = await self._erase(sessions[first : first + _BATCH_SIZE], deleting, by=by, reason=reason)
            deleted = DeletionResult(deleted.count + part.count, deleted.retained_worktrees + part.retained_worktrees)
        return msgspec.structs.replace(deleted, erasure_pending=await self.context.ledger.erasure_pending())

    async def _erase(self, sessions: list[LoadedAgent], deleting: Collection[str], *, by: str, reason: str) -> DeletionResult:
        notified: set[str] = set()
        for attempt in count(1):
            new = [agent for agent in sessions if agent.record.run.id not in notified]
            await Callbacks(self.context, self.queries).notify_before_deletion(new, deleting=deleting, by=by)
            notified |= {agent.record.run.id for agent in new}
            retained = await self._remove_worktrees(sessions)
            try:
                await self._erase_unchanged(sessions, by=by, reason=reason)
            except SequenceConflict:
                if attempt == _MAX_ATTEMPTS:
                    raise
                sessions = await self._stop(await self.context.unit.reload(sessions), by=by)
                continue
            break
        await asyncio.to_thread(remove_session_files, self.context.home, [agent.id for agent in sessions])
        return DeletionResult(len(sessions), retained)

    async def _erase_unchanged(self, sessions: list[LoadedAgent], *, by: str, reason: str) -> None:
        """Erase the sessions. Raises `SequenceConflict`, and erases none, if a session changed since it was read."""
        expect = {agent.id: agent.session.last_seq for agent in sessions}
        await self.context.ledger.erase(list(expect), actor=by, reason=reason, expect=expect)

    async def _stop(self, sessions: list[LoadedAgent], *, by: str) -> list[LoadedAgent]:
        """Stop the sessions, and return them reloaded, because the last turn may have changed them."""
        working = [agent for agent in sessions if is_active(agent.record.run.state)]
        await self.stopper.stop_all(working, by=by, deleting={agent.id for agent in sessions})
        stopped = {agent.id: agent for agent in await self.context.unit.reload(working)}
        for current in stopped.values():
            if is_active(current.record.run.state):
                raise errors.stop_timed_out(view_session(current))
        missing = {agent.id for agent in working} - set(stopped)
        return [stopped.get(agent.id, agent) for agent in sessions if agent.id not in missing]

    async def _remove_worktrees(self, sessions: list[LoadedAgent]) -> tuple[str, ...]:
        """Remove the worktrees of the sessions, and return the paths of those that have to stay."""
        limit = asyncio.Semaphore(_WORKTREES_AT_ONCE)

        async def remove(agent: LoadedAgent) -> str:
            async with limit:
                removed = await worktrees.remove(agent.record.project, worktrees.recorded_worktree(agent.record))
            return "" if removed else agent.record.worktree

        found = await asyncio.gather(*(remove(agent) for agent in sessions if agent.record.worktree))
        return tuple(path for path in found if path)

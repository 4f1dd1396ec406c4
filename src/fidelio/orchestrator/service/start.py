"""Starting and resuming sessions: everything that can be checked is checked before anything is recorded.

The session, its queued run and the prompt are durable when a call returns. From then on an agent host, in this process or
another, carries the run out, now or after a restart.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fidelio.errors import SessionExists, SessionNotFound, UsageProblem
from fidelio.ids import new_session_id
from fidelio.ledger.encoding import hash_blob
from fidelio.ledger.long_text import store_text
from fidelio.ledger.model import NewSession, Session
from fidelio.orchestrator.blueprints.model import Blueprint, reduce_limits
from fidelio.orchestrator.blueprints.schemas import check_input
from fidelio.orchestrator.record import errors
from fidelio.orchestrator.record.model import AgentSession, StartAgent
from fidelio.orchestrator.record.record import SESSION_CREATED
from fidelio.orchestrator.record.rules import is_active, is_session_name, namespace_of
from fidelio.orchestrator.record.unit_of_work import AgentDecision, LoadedAgent, decode_session, draft_event, view_session
from fidelio.orchestrator.runs import worktrees
from fidelio.orchestrator.runs.context import (
    OrchestratorContext,
    apply_overrides,
    limit_permissions,
    require_directory,
    resolve_project,
)
from fidelio.orchestrator.runs.lineage import calling_session, find_max_depth, load_ancestry, require_child_allowed
from fidelio.orchestrator.runs.queries import AgentQueries
from fidelio.orchestrator.runs.queueing import draft_message, draft_next_run
from fidelio.orchestrator.runs.rights import load_rights


class _Parent(msgspec.Struct, frozen=True):
    """The session that starts another: its id, how deep its line may become, and what it is if it is an agent."""

    id: str
    max_depth: int
    agent: LoadedAgent | None = None
    child_depth: int = 0


class SessionStarter(msgspec.Struct, frozen=True):
    """Starts sessions, resumes them, and queues messages for them."""

    context: OrchestratorContext
    queries: AgentQueries

    async def start(self, request: StartAgent) -> AgentSession:
        if not is_session_name(request.name):
            raise errors.invalid_name(request.name)
        project = self.context.project if request.project is None else resolve_project(request.project)
        require_directory(project)
        await self._require_free_name(request.name, project)
        return await self._create(request, *await self._check_start(request, project))

    async def resume(self, agent: LoadedAgent, prompt: str, *, by: str = "service") -> AgentSession:
        """Queue a new run in the conversation of the session, which must have no active run."""
        if is_active(agent.record.run.state):
            raise errors.session_busy(view_session(agent))
        blueprint = await self._require_startable(agent, by)
        stored = store_text(_require_text(prompt))

        def decide(current: LoadedAgent) -> AgentDecision:
            if is_active(current.record.run.state):
                raise errors.session_busy(view_session(current))
            return AgentDecision(
                None, events=draft_next_run(current, prompt=stored, blueprint=blueprint, by=by), blobs=stored.blobs
            )

        return view_session(await self.context.unit.update(agent, decide, actor=by))

    async def send(self, agent: LoadedAgent, text: str, *, by: str = "service") -> AgentSession:
        """Queue a message: an active session reads it in its next run, for a finished session a run is queued at once."""
        stored = store_text(_require_text(text))
        blueprint = None if is_active(agent.record.run.state) else await self._require_startable(agent, by)

        def decide(current: LoadedAgent) -> AgentDecision:
            if is_active(current.record.run.state):
                return draft_message(current, stored, {"from": by})
            return AgentDecision(
                None, events=draft_next_run(current, prompt=stored, blueprint=blueprint, by=by), blobs=stored.blobs
            )

        return view_session(await self.context.unit.update(agent, decide, actor=by))

    async def _check_start(self, request: StartAgent, project: str) -> tuple[Blueprint, str, dict[str, Any]]:
        """The blueprint, the prompt, and the body of the first event."""
        parent = await self._find_parent(request)
        rights = None if parent.agent is None else await load_rights(self.context, parent.agent)
        found = await self.context.load_blueprint(request.blueprint, project)
        blueprint = apply_overrides(found, request.model, request.mcp_servers)
        blueprint = limit_permissions(blueprint, None if rights is None else rights.permissions)
        prompt = _require_text(await check_input(blueprint, request.prompt))
        added = [name for name in request.mcp_servers if name not in found.mcp_servers]
        executor = await self.context.check_executor(blueprint, request.executor, added=added)
        if rights is not None:
            rights.require_start(blueprint, executor.name, project)
        worktree = blueprint.worktree if request.worktree is None else request.worktree
        if worktree:
            await worktrees.require_repository(project)
        created = {
            "name": request.name,
            "project": project,
            "blueprint": blueprint.name,
            "executor": executor.name,
            "model": request.model or "",
            "parent": parent.id,
            "depth": parent.child_depth,
            "max_depth": parent.max_depth,
            "callback": request.callback,
            "wants_worktree": worktree,
            **({"sandbox": request.sandbox} if blueprint.tools == "sandbox" and request.sandbox else {}),
            **({} if rights is None else {"most": msgspec.to_builtins(rights.permissions)}),
        }
        return blueprint, prompt, created

    async def _create(self, request: StartAgent, blueprint: Blueprint, prompt: str, created: dict[str, Any]) -> AgentSession:
        session, project, parent = new_session_id(), created["project"], created["parent"] or None
        stored, servers = store_text(prompt), _encode_servers(request)
        new_session = NewSession(kind="agent", namespace=namespace_of(project), name=request.name, parent=parent)
        first = draft_next_run(session, prompt=stored, blueprint=blueprint, by="agent:" if "most" in created else "service")
        digests = tuple(map(hash_blob, servers))
        try:
            creation = draft_event(SESSION_CREATED, {**created, "servers": "".join(digests)}, digests)
            decision = AgentDecision(None, events=(creation, *first), blobs=stored.blobs + servers)
            return view_session(await self.context.unit.create(session, new_session, decision))
        except SessionExists as error:
            raise errors.session_exists(request.name, project) from error

    async def _require_free_name(self, name: str, project: str) -> None:
        """Fail early if the name is taken. The commit, which reserves the name and creates the session, checks it again."""
        try:
            await self.context.ledger.session_by_name(name, namespace=namespace_of(project))
        except SessionNotFound:
            return
        raise errors.session_exists(name, project)

    async def _find_parent(self, request: StartAgent) -> _Parent:
        """The parent session, of whatever kind. Only an agent can be called back."""
        found = None if request.parent is None else await self._find_session(request.parent)
        if found is None or found.kind != "agent":
            if request.callback:
                raise _callback_without_parent()
            return _Parent(found.id if found else "", self.context.limits.depth)
        agent = decode_session(found)
        most = find_max_depth(agent, self.context.limits)
        return _Parent(found.id, most, agent, require_child_allowed(agent, most=most))

    async def _find_session(self, name: str) -> Session:
        """Find a session of any kind by its id, or an agent session by its name."""
        try:
            return await self.context.ledger.session(name)
        except SessionNotFound:
            return (await self.queries.find(name)).session

    async def _require_startable(self, agent: LoadedAgent, by: str) -> Blueprint:
        """Check an existing session as at a start, and return its blueprint."""
        record = agent.record
        require_directory(record.project)
        blueprint = await self.context.load_session_blueprint(record)
        await self.context.check_executor(blueprint, record.executor)
        if caller := calling_session(by):
            reduce_limits(blueprint.limits, record.spent_unasked, record.unasked_ms)
            # A message to a session above is a report, not an order.
            if agent.id not in await load_ancestry(self.context, caller):
                rights = await load_rights(self.context, await self.queries.find(caller))
                rights.require_start(blueprint, record.executor, record.project)
        return blueprint


def _encode_servers(request: StartAgent) -> tuple[bytes, ...]:
    """The MCP servers as a blob of the event: they may hold keys, and are erased with the session."""
    return (msgspec.json.encode(request.mcp_servers),) if request.mcp_servers else ()


def _require_text(prompt: str) -> str:
    if not prompt.strip():
        raise UsageProblem("The prompt is empty.", remedy="Say what the agent is to do.")
    return prompt


def _callback_without_parent() -> UsageProblem:
    return UsageProblem(
        "callback needs a parent that is an agent session.", remedy="Pass the session that starts this one, or omit callback."
    )

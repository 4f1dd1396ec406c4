"""How sessions begin and go on: everything that can be checked is checked before anything is promised.

What is promised is durable when the call returns: the session, its first run in the queue, the prompt. From then on a host
carries it out, this process's or another's, now or after a restart.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fidelio.errors import SessionExists, SessionNotFound, UsageProblem
from fidelio.ids import new_session_id
from fidelio.ledger.encoding import hash_blob
from fidelio.ledger.long_text import store_text
from fidelio.ledger.model import NewSession, Session
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.blueprints.schemas import check_input
from fidelio.orchestrator.record import phrases
from fidelio.orchestrator.record.model import AgentSession, StartAgent
from fidelio.orchestrator.record.record import CREATED
from fidelio.orchestrator.record.rules import is_active, is_name, namespace_of
from fidelio.orchestrator.record.unit_of_work import AgentDecision, EventDraft, LoadedAgent, load_row, view
from fidelio.orchestrator.runs import worktrees
from fidelio.orchestrator.runs.context import OrchestratorContext, project_path, require_directory, with_overrides
from fidelio.orchestrator.runs.lineage import require_may_start
from fidelio.orchestrator.runs.queries import Queries
from fidelio.orchestrator.runs.queueing import next_run, queue_message


class _Checked(msgspec.Struct, frozen=True):
    blueprint: Blueprint
    executor: str
    prompt: str
    worktree: bool
    parent: str | None
    depth: int


class Starting(msgspec.Struct, frozen=True):
    """Starts sessions, and gives existing ones more to do."""

    context: OrchestratorContext
    queries: Queries

    async def start(self, asked: StartAgent) -> AgentSession:
        if not is_name(asked.name):
            raise phrases.bad_name(asked.name)
        project = self.context.project if asked.project is None else project_path(asked.project)
        require_directory(project)
        await self._require_free(asked.name, project)
        return await self._create(asked, project, await self._check(asked, project))

    async def resume(self, at: LoadedAgent, prompt: str, *, by: str = "service") -> AgentSession:
        """A new run in the conversation of the session, which has to be at rest."""
        if is_active(at.record.run.state):
            raise phrases.busy(view(at))
        blueprint = await self._usable(at)
        kept = store_text(_required(prompt))

        def decide(now: LoadedAgent) -> AgentDecision:
            if is_active(now.record.run.state):
                raise phrases.busy(view(now))
            return AgentDecision(drafts=next_run(now, prompt=kept, blueprint=blueprint), blobs=kept.blobs)

        return view(await self.context.unit.update(at, decide, actor=by))

    async def send(self, at: LoadedAgent, text: str, *, by: str = "service") -> AgentSession:
        """A message for the next turn: a busy session takes it when it has finished, one at rest begins at once."""
        kept = store_text(_required(text))
        blueprint = None if is_active(at.record.run.state) else await self._usable(at)

        def decide(now: LoadedAgent) -> AgentDecision:
            if is_active(now.record.run.state):
                return queue_message(now, kept, {"from": by})
            return AgentDecision(drafts=next_run(now, prompt=kept, blueprint=blueprint), blobs=kept.blobs)

        return view(await self.context.unit.update(at, decide, actor=by))

    async def _check(self, asked: StartAgent, project: str) -> _Checked:
        blueprint = with_overrides(await self.context.blueprint(asked.blueprint, project), asked.model, asked.mcp_servers)
        prompt = _required(await check_input(blueprint, asked.prompt))
        executor = await self.context.checked_executor(blueprint, asked.executor)
        parent, depth = await self._parent(asked)
        worktree = blueprint.worktree if asked.worktree is None else asked.worktree
        if worktree:
            await worktrees.require_repository(project)
        return _Checked(blueprint, executor.name, prompt, worktree, parent, depth)

    async def _create(self, asked: StartAgent, project: str, checked: _Checked) -> AgentSession:
        session = new_session_id()
        kept, servers = store_text(checked.prompt), _servers(asked)
        created: dict[str, Any] = {
            "name": asked.name,
            "project": project,
            "blueprint": checked.blueprint.name,
            "executor": checked.executor,
            "model": asked.model or "",
            "servers": hash_blob(servers[0]) if servers else "",
            "parent": checked.parent or "",
            "depth": checked.depth,
            "callback": asked.callback,
            "wants_worktree": checked.worktree,
        }
        birth = NewSession(kind="agent", namespace=namespace_of(project), name=asked.name, parent=checked.parent)
        first = next_run(session, prompt=kept, blueprint=checked.blueprint)
        try:
            born = EventDraft(CREATED, created, tuple(map(hash_blob, servers)))
            decision = AgentDecision(drafts=(born, *first), blobs=kept.blobs + servers)
            return view(await self.context.unit.create(session, birth, decision))
        except SessionExists as error:
            raise phrases.exists(asked.name, project) from error

    async def _require_free(self, name: str, project: str) -> None:
        """Only for a quick answer: what decides is the commit, which takes the name and creates the session in one."""
        try:
            await self.context.ledger.session_by_name(name, namespace=namespace_of(project))
        except SessionNotFound:
            return
        raise phrases.exists(name, project)

    async def _parent(self, asked: StartAgent) -> tuple[str | None, int]:
        """The id of the session that starts this one, and how deep that makes it. Only an agent can be called back."""
        found = None if asked.parent is None else await self._session(asked.parent)
        if found is None or found.kind != "agent":
            if asked.callback:
                raise _nobody_to_call()
            return (found.id if found else None), 0
        return found.id, require_may_start(load_row(found), most=self.context.limits.depth)

    async def _session(self, name: str) -> Session:
        """A session of any kind by its id, or an agent's by its name."""
        try:
            return await self.context.ledger.session(name)
        except SessionNotFound:
            return (await self.queries.find(name)).session

    async def _usable(self, at: LoadedAgent) -> Blueprint:
        """The checks of a start for a session that is there already."""
        require_directory(at.record.project)
        blueprint = await self.context.blueprint_of(at.record)
        await self.context.checked_executor(blueprint, at.record.executor)
        return blueprint


def _servers(asked: StartAgent) -> tuple[bytes, ...]:
    """What is stored beside the event: it may hold keys, and goes with the session."""
    return (msgspec.json.encode(asked.mcp_servers),) if asked.mcp_servers else ()


def _required(prompt: str) -> str:
    if not prompt.strip():
        raise UsageProblem("The prompt is empty.", remedy="Say what the agent is to do.")
    return prompt


def _nobody_to_call() -> UsageProblem:
    return UsageProblem(
        "A callback was asked for, and no agent session starts this one.", remedy="Name it as parent, or leave callback out."
    )

"""Parents and children of sessions: how deep agents may start agents, and which sessions they must not end.

A session that an agent starts is its child: one level deeper, and ended with it. An agent that ended one of its ancestors would
end itself in the middle of the call, and the caller would get no result.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from fidelio.errors import SessionNotFound, UsageProblem
from fidelio.orchestrator.record.record import RunRecord
from fidelio.orchestrator.record.rules import is_active
from fidelio.orchestrator.record.unit_of_work import LoadedAgent
from fidelio.orchestrator.runs.context import OrchestratorContext
from fidelio.processes.caller import Caller, is_below
from fidelio.settings import AgentLimits

_AGENT = "agent:"


def calling_session(by: str) -> str:
    """The session of the calling agent; empty if the caller is not an agent."""
    return by.removeprefix(_AGENT) if by.startswith(_AGENT) else ""


async def is_confirmed(context: OrchestratorContext, caller: Caller) -> bool:
    """Whether the record and the process table agree with the run that a caller claims.

    Any process can write the run of another agent into its environment, and change its mark to fit. The run must not
    have ended, and the calling processes must be below its process.
    """
    try:
        run = (await context.unit.load(caller.session)).record.run
    except SessionNotFound:
        return False
    is_current = run.id == caller.run and is_active(run.state)
    return is_current and all([await asyncio.to_thread(is_below, pid, run.process) for pid in caller.processes])


async def load_ancestry(context: OrchestratorContext, session: str) -> set[str]:
    """The ids of a session and all its ancestors, of whatever kind; none for an empty id."""
    line: set[str] = set()
    above: str | None = session
    with suppress(SessionNotFound):
        while above and above not in line:
            line.add(above)
            above = (await context.ledger.session(above)).parent
    return line


async def require_outside_ancestry(context: OrchestratorContext, agent: LoadedAgent, by: str) -> None:
    """Raise if an agent would end itself or an ancestor."""
    if agent.id in await load_ancestry(context, calling_session(by)):
        raise UsageProblem(
            f"Session {agent.session.name or agent.id} makes this call itself, or started the session that does.",
            remedy="Finish the turn instead; a person or the parent session can stop or delete it.",
        )


def find_max_depth(parent: LoadedAgent, limits: AgentLimits) -> int:
    """How deep the line of this session may become.

    Recorded when a person started the first session. The setting of the calling process does not count: an agent can change it.
    """
    recorded = parent.record.max_depth
    return min(limits.depth, AgentLimits().depth) if recorded is None else recorded


def require_child_allowed(parent: LoadedAgent, *, most: int) -> int:
    """The depth of a child of this session; raises if the session must not start children."""
    depth = parent.record.depth + 1
    if depth > most:
        raise UsageProblem(
            f"This session would be {depth} levels below the first; {most} are allowed.",
            remedy="Do the work in the session that is there. FIDELIO_AGENTS_DEPTH of the first session sets the limit.",
        )
    if is_stopping(parent.record.run):
        raise UsageProblem(
            f"Session {parent.session.name or parent.id} was stopped, and cannot start sessions.",
            remedy="Resume it first.",
        )
    return depth


async def has_stopped_parent(context: OrchestratorContext, agent: LoadedAgent) -> bool:
    """Whether the parent of a session that is about to begin was stopped meanwhile.

    Checked only for its first run: a caller that queues another run knows the state of the parent.
    """
    if not agent.record.parent or agent.record.run.number > 1:
        return False
    try:
        return is_stopping((await context.unit.load(agent.record.parent)).record.run)
    except SessionNotFound:
        return False


def is_stopping(run: RunRecord) -> bool:
    """Whether the run was stopped, or a stop was requested."""
    return bool(run.stop_by) or run.state == "stopped"

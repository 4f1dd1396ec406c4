"""Who stands above whom: what an agent may start below itself, and whom it has to leave alone.

What an agent starts counts as its child: one level deeper, and ended with it. So an agent that ended one of those above it
would end itself in the middle of the call, and nobody would be told what came of it.
"""

from __future__ import annotations

from fidelio.errors import SessionNotFound, UsageProblem
from fidelio.orchestrator.record.record import RunRecord
from fidelio.orchestrator.record.unit_of_work import LoadedAgent
from fidelio.orchestrator.runs.context import OrchestratorContext

_AGENT = "agent:"


def calling_session(by: str) -> str:
    """The session of the agent that acts; empty where it is no agent that does."""
    return by.removeprefix(_AGENT) if by.startswith(_AGENT) else ""


async def load_ancestry(context: OrchestratorContext, by: str) -> tuple[str, ...]:
    """The session that acts and all above it, the nearest first; nobody where it is no agent that acts."""
    line: list[str] = []
    session = calling_session(by)
    while session and session not in line:
        line.append(session)
        session = await _parent(context, session)
    return tuple(line)


async def require_outside_ancestry(context: OrchestratorContext, agent: LoadedAgent, by: str) -> None:
    """Raises where an agent would end itself."""
    if agent.id in await load_ancestry(context, by):
        raise UsageProblem(
            f"Session {agent.session.name or agent.id} is the one that asks for this, or one that it works for.",
            remedy="Finish the turn instead; whoever started the session can stop or delete it.",
        )


def require_child_allowed(parent: LoadedAgent, *, most: int) -> int:
    """How deep a session is that this one starts; raises where it must start none."""
    depth = parent.record.depth + 1
    if depth > most:
        raise UsageProblem(
            f"This session would be {depth} levels below the first; {most} are allowed.",
            remedy="Do the work in the session that is there, or raise FIDELIO_AGENTS_DEPTH.",
        )
    if is_stopping(parent.record.run):
        raise UsageProblem(
            f"Session {parent.session.name or parent.id} was stopped, and starts nobody any more.",
            remedy="Resume it first.",
        )
    return depth


async def has_stopped_parent(context: OrchestratorContext, agent: LoadedAgent) -> bool:
    """Whether a session that is to begin was started by one that was being stopped meanwhile.

    Only its first run: whoever gives it another one later knows what became of its parent.
    """
    if not agent.record.parent or agent.record.run.number > 1:
        return False
    try:
        return is_stopping((await context.unit.load(agent.record.parent)).record.run)
    except SessionNotFound:
        return False


def is_stopping(run: RunRecord) -> bool:
    """Whether somebody has ended the run, or wants to."""
    return bool(run.stop_by) or run.state == "stopped"


async def _parent(context: OrchestratorContext, session: str) -> str:
    try:
        return (await context.unit.load(session)).record.parent
    except SessionNotFound:
        return ""

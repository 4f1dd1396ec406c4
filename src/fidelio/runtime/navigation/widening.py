"""Widening of what sessions may read: a person lets logs be read by sessions whose network is more open.

It is an event of the session whose log it is, or of the store of an agent for the logs of all its sessions in a project, and
says how open the network of a reader may be at most. A fork or a child does not inherit that of a session: what they will see
is not known yet. Learnings are not part of it; they keep the network that they came from.
"""

from __future__ import annotations

import msgspec

from fidelio.errors import UsageProblem
from fidelio.ledger.model import NewEvent
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.agents.versions import list_agents
from fidelio.runtime.navigation.visibility import OPENNESS, load_agent_readers
from fidelio.runtime.reading import list_sessions
from fidelio.runtime.stores import open_store, refuse_store
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext

# A reader without a network may read every log of its agent anyway.
NETWORKS = tuple(network for network, openness in OPENNESS.items() if openness)


class Widening(msgspec.Struct, frozen=True):
    """Whose logs are read by whom. `session` is empty for all sessions of the agent."""

    agent: str
    session: str
    readers: str


async def widen_session(context: RuntimeContext, session: str, readers: str, *, by: str) -> None:
    """Let sessions with a network up to `readers` read this log; "" takes it back. Only a person may."""
    event = _describe(readers, by)

    def widen(current: LoadedRuntime) -> SessionDecision[None] | None:
        refuse_store(current)
        return None if current.record.readers == readers else SessionDecision(None, events=(event,))

    await context.unit.update(session, widen)


async def widen_agent(context: RuntimeContext, project: str, agent: str, readers: str, *, by: str) -> None:
    """Let sessions with a network up to `readers` read the logs of all sessions of the agent. Only a person may."""
    event = _describe(readers, by)
    store = await open_store(context, "substrate", project=project, agent=agent)
    await context.unit.update(
        store.id, lambda current: None if current.record.readers == readers else SessionDecision(None, events=(event,))
    )


async def list_widenings(context: RuntimeContext, project: str) -> tuple[Widening, ...]:
    """What people have widened in a project: agents by name, then sessions, newest first."""
    agents, sessions = {agent.name for agent in await list_agents(context, project)}, []
    async for session, record in list_sessions(context, project, ended=True):
        agents.add(record.agent)
        if record.readers:
            sessions.append(Widening(record.agent, session.id, record.readers))
    found = [Widening(agent, "", await load_agent_readers(context, project, agent)) for agent in sorted(agents)]
    return (*(widening for widening in found if widening.readers), *sessions)


def _describe(readers: str, by: str) -> NewEvent:
    if readers and readers not in NETWORKS:
        raise UsageProblem(f"{readers!r:.80} is not a network of readers.", remedy=f"Use one of: {', '.join(NETWORKS)}.")
    return NewEvent(type=e.CONFIGURED, body={"readers": readers}, actor=by)

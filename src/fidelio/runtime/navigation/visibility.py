"""Which sessions a session may read: those of the same agent and project whose network is at least as open as its own.

Without the rule about networks, what an offline session has seen would leave the machine through one that is online. A person
may widen it for the log of a session, or for all logs of an agent (`fidelio.runtime.navigation.widening`). Whether a session
does not exist or belongs to somebody else is answered with the same words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from fidelio.errors import BadRecord, Command, EnvironmentProblem, Hint, SessionNotFound, ToolRefused
from fidelio.runtime.environments.versions import load_environment
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.stores import find_store
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext, ToolCall
from fidelio.sandbox.model import Network

# From closed to open.
OPENNESS: Mapping[Network, int] = {"none": 0, "limited": 1, "unrestricted": 2, "host": 3}
# An environment in a certain version.
EnvironmentKey: TypeAlias = tuple[str, int]
Networks: TypeAlias = Mapping[EnvironmentKey, Network]
_OPENNESS_OF: Mapping[str, int] = dict(OPENNESS.items())


def environment_key(record: RuntimeRecord) -> EnvironmentKey:
    return record.environment, record.environment_version


def is_same_agent(own: RuntimeRecord, other: RuntimeRecord) -> bool:
    """Whether the other is a session, not a store, of the same agent and project."""
    return (other.role, other.agent, other.project) == ("session", own.agent, own.project)


def may_read(own: RuntimeRecord, other: RuntimeRecord, networks: Networks, readers: str = "") -> bool:
    """Whether a session may read the log of another. `networks` may lack some: theirs is then taken as closed, ours as open.

    `readers` is how far a person has widened the reading of all logs of the agent.
    """
    if not is_same_agent(own, other):
        return False
    if environment_key(own) == environment_key(other):
        return True
    theirs = OPENNESS[networks.get(environment_key(other), "none")]
    # A stored value that is unknown widens nothing.
    widened = max(_OPENNESS_OF.get(name, 0) for name in (readers, other.readers))
    return max(theirs, widened) >= OPENNESS[networks.get(environment_key(own), "host")]


async def load_visible(call: ToolCall, session_id: str | None) -> LoadedRuntime:
    """The named session, or the own; raises `ToolRefused` if this session may not read it."""
    if session_id is None or session_id == call.session.id:
        return call.session
    try:
        other = await call.context.unit.load(session_id)
    except (SessionNotFound, BadRecord) as error:
        raise _refuse_unknown(call, session_id) from error
    if not is_same_agent(call.record, other.record):
        raise _refuse_unknown(call, session_id)
    networks = await load_networks(call.context, (call.record, other.record))
    if not may_read(call.record, other.record, networks) and not may_read(
        call.record, other.record, networks, await load_agent_readers(call.context, call.record.project, call.record.agent)
    ):
        own = networks.get(environment_key(call.record), "host")
        raise _refuse_network(other.id, networks.get(environment_key(other.record), "none"), own)
    return other


async def load_agent_readers(context: RuntimeContext, project: str, agent: str) -> str:
    """How open the network of a session may be that reads the logs of this agent, as a person has widened it; or ""."""
    store = await find_store(context, "substrate", project=project, agent=agent)
    return "" if store is None else (await context.unit.load(store.id)).record.readers


async def load_networks(context: RuntimeContext, records: Iterable[RuntimeRecord]) -> Networks:
    """The networks of the environments of some sessions, without those that cannot be read; each is read once."""
    keys = {environment_key(record) for record in records}
    found = {key: await _load_network(context, key) for key in keys}
    return {key: network for key, network in found.items() if network is not None}


async def _load_network(context: RuntimeContext, key: EnvironmentKey) -> Network | None:
    name, version = key
    try:
        return (await load_environment(context, name, version)).environment.network
    except EnvironmentProblem:
        return None


def _refuse_unknown(call: ToolCall, session_id: str) -> ToolRefused:
    other = ", or take an id of session_list" if "session_list" in call.tools else ""
    return ToolRefused(
        f"This agent has no session {session_id!r:.80} in this project.",
        remedy=f"Leave sessionId out for this session{other}.",
        reason="session_not_found",
    )


def _refuse_network(session_id: str, network: Network, own: Network) -> ToolRefused:
    return ToolRefused(
        f"Session {session_id} has the network {network}, which is more closed than that of this session: what it has seen "
        "is not read by a session that could send it out.",
        remedy=Hint("A person may widen this: ", Command("runtime", "readers", session_id), f" with --network {own}."),
        reason="network_too_open",
    )

"""The agents that an agent may delegate to, and what such a child may do: at most what its parent may. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from fidelio.errors import ToolRefused
from fidelio.runtime.agent_toolset.definitions import AGENT_DEFINITIONS
from fidelio.runtime.agents.definition import SELF, AgentDefinition, AgentVersion, RosterEntry
from fidelio.runtime.agents.tools import AGENT_TOOLSET
from fidelio.runtime.permissions.policy import find_policy
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.tools.definitions import DEFINITIONS, PERMISSION_OF_ACTION
from fidelio.runtime.tools.model import Policy

DELEGATION_NAMES = frozenset({"session_delegate", "session_run_child"})
# What a parent must have for its child to have the tool. Six names are in two toolsets; only this one means another right.
RIGHTS = {"bash": "shell_exec"}
_STRICTNESS: dict[Policy, int] = {"always_allow": 0, "auto": 1, "always_ask": 2, "proven": 3}


def name_roster(agent: AgentVersion) -> tuple[str, ...]:
    """The names that session_delegate accepts from the agent; empty without a roster."""
    multiagent = agent.definition.multiagent
    if multiagent is None:
        return ()
    return tuple(dict.fromkeys([SELF, *(entry.agent for entry in multiagent.agents)]))


def choose_agent(agent: AgentVersion, name: str | None) -> RosterEntry | None:
    """The entry of the roster that a task is for; None for the agent itself. Raises `ToolRefused`."""
    known = name_roster(agent)
    if name is None or name in (SELF, agent.name):
        return None
    multiagent = agent.definition.multiagent
    found = next((entry for entry in multiagent.agents if entry.agent == name), None) if multiagent is not None else None
    if found is None:
        allowed = f"Use one of: {', '.join(known)}." if known else "This agent has no roster: leave agent out."
        raise ToolRefused(f"{name!r:.80} is not in the roster of this agent.", remedy=allowed, reason="unknown_agent")
    return found


def narrow_policies(record: RuntimeRecord, parent: AgentDefinition, child: AgentDefinition) -> dict[str, str]:
    """The policies of a child of another agent: for each tool and action the stricter of what both may do without asking."""
    own = child.tools.list_policies()
    if child.tools.toolset == AGENT_TOOLSET:
        return {name: _stricter(own[name], _find_parental(record, parent, RIGHTS.get(name, name))) for name in own}
    names = {*DEFINITIONS, *own, *record.policies}
    return {name: _stricter(_find_own(own, name), _find_parental(record, parent, name)) for name in names if name in _KNOWN}


_KNOWN = {*DEFINITIONS, *PERMISSION_OF_ACTION}


def _find_own(policies: Mapping[str, Policy], name: str) -> Policy:
    definition = DEFINITIONS[PERMISSION_OF_ACTION.get(name, name)]
    return policies.get(name) or policies.get(definition.name) or definition.policy


def _find_parental(record: RuntimeRecord, parent: AgentDefinition, right: str) -> Policy:
    """What the parent may do with a right, which is named as a tool or an action of our own toolset."""
    # A right that the parent has not: the child asks for it, as the parent would for the strictest that it has.
    unknown: Policy = "proven" if "proven" in record.policies.values() else "always_ask"
    if parent.tools.toolset == AGENT_TOOLSET:
        name = next((own for own, needed in RIGHTS.items() if needed == PERMISSION_OF_ACTION.get(right, right)), right)
        known = AGENT_DEFINITIONS.get(name)
        return unknown if known is None else find_policy(known, record)
    definition = DEFINITIONS.get(PERMISSION_OF_ACTION.get(right, right))
    return unknown if definition is None else find_policy(definition, record, right)


def _stricter(first: Policy, second: Policy) -> Policy:
    return max(first, second, key=lambda policy: _STRICTNESS[policy])

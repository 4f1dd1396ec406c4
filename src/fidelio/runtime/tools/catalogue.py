"""Finds the tool of a call and validates its arguments.

An action of `sandbox_execute` that is also a tool becomes a call of that tool, so permission, history and limits are the same
whatever name was used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from fidelio.errors import ToolRefused
from fidelio.runtime.delegation.tools import IMPLEMENTATIONS as DELEGATION_IMPLEMENTATIONS
from fidelio.runtime.files import FILE_IMPLEMENTATIONS, implement_action
from fidelio.runtime.memory.tools import IMPLEMENTATIONS as MEMORY_IMPLEMENTATIONS
from fidelio.runtime.navigation.tools import IMPLEMENTATIONS as NAVIGATION_IMPLEMENTATIONS
from fidelio.runtime.outcomes.tools import IMPLEMENTATIONS as OUTCOME_IMPLEMENTATIONS
from fidelio.runtime.permissions.tools import PERMISSION_IMPLEMENTATIONS
from fidelio.runtime.recall.tools import IMPLEMENTATIONS as RECALL_IMPLEMENTATIONS
from fidelio.runtime.resources import IMPLEMENTATIONS as RESOURCE_IMPLEMENTATIONS
from fidelio.runtime.shell.commands import COMMAND_IMPLEMENTATIONS
from fidelio.runtime.shell.control import CONTROL_IMPLEMENTATIONS
from fidelio.runtime.shell.reading import READING_IMPLEMENTATIONS
from fidelio.runtime.skills.tools import IMPLEMENTATIONS as SKILL_IMPLEMENTATIONS
from fidelio.runtime.tools.definitions import DEFINITIONS, PERMISSION_OF_ACTION, TOOL_OF_ACTION
from fidelio.runtime.tools.meta import META_IMPLEMENTATIONS
from fidelio.runtime.tools.meta_definitions import META_NAMES
from fidelio.runtime.tools.model import Implementation, ToolDefinition
from fidelio.runtime.tools.parameters import SandboxExecute
from fidelio.sandbox.actions import ACTIONS, Action
from fidelio.toolkit import read_arguments

ExtraTool: TypeAlias = tuple[ToolDefinition, Implementation]
NO_EXTRA: Mapping[str, ExtraTool] = {}
IMPLEMENTATIONS: Mapping[str, Implementation] = {
    **FILE_IMPLEMENTATIONS,
    **READING_IMPLEMENTATIONS,
    **CONTROL_IMPLEMENTATIONS,
    **COMMAND_IMPLEMENTATIONS,
    **RESOURCE_IMPLEMENTATIONS,
    **PERMISSION_IMPLEMENTATIONS,
    **NAVIGATION_IMPLEMENTATIONS,
    **OUTCOME_IMPLEMENTATIONS,
    **MEMORY_IMPLEMENTATIONS,
    **RECALL_IMPLEMENTATIONS,
    **SKILL_IMPLEMENTATIONS,
    **DELEGATION_IMPLEMENTATIONS,
    **META_IMPLEMENTATIONS,
}


class ResolvedCall(msgspec.Struct, frozen=True):
    """A call whose arguments are valid.

    `name` and `called_with` are the call as it was made and is recorded, `definition` and `arguments` what is carried out. Its
    permission is that of `definition`, unless a policy names the `action`, which is empty if a tool does the same.
    """

    name: str
    called_with: msgspec.Struct
    definition: ToolDefinition
    arguments: msgspec.Struct
    implementation: Implementation
    is_read_only: bool
    action: str = ""


def resolve_call(
    tool: str, arguments: Mapping[str, Any], tools: frozenset[str], extra: Mapping[str, ExtraTool] = NO_EXTRA
) -> ResolvedCall:
    """Find the tool and validate the arguments. `tools` are those that the caller has, `extra` those of this session alone."""
    if tool in extra:
        own, implementation = extra[tool]
        # What the arguments of a tool of a server are, only its own schema says.
        passed = arguments if own.ownership == "managed" and tool not in META_NAMES else {"arguments": dict(arguments)}
        checked = read_arguments(tool, own.parameters, passed)
        return ResolvedCall(tool, checked, own, checked, implementation, own.read_only)
    definition = DEFINITIONS.get(tool) if tool in tools else None
    if definition is None:
        raise ToolRefused(
            f"There is no tool {tool!r:.100}.",
            remedy=f"Use one of: {', '.join(sorted({*tools, *extra})) or 'none: this agent has no tools'}.",
            reason="unknown_tool",
        )
    valid = read_arguments(tool, definition.parameters, arguments)
    if isinstance(valid, SandboxExecute):
        return _resolve_action(valid, tools)
    return ResolvedCall(tool, valid, definition, valid, IMPLEMENTATIONS[tool], definition.read_only)


def _resolve_action(call: SandboxExecute, tools: frozenset[str]) -> ResolvedCall:
    name = "sandbox_execute"
    # An action whose tool the caller does not have is not there either.
    offered = {action: PERMISSION_OF_ACTION.get(action, name) for action in ACTIONS}
    action = ACTIONS.get(call.name) if offered.get(call.name) in tools else None
    if action is None:
        known = ", ".join(sorted(action for action, tool in offered.items() if tool in tools))
        raise ToolRefused(f"There is no action {call.name!r:.100}.", remedy=f"Use one of: {known}.", reason="unknown_action")
    if twin := TOOL_OF_ACTION.get(call.name):
        definition = DEFINITIONS[twin]
        valid = read_arguments(f"{name} {call.name}", definition.parameters, call.input)
        return ResolvedCall(name, call, definition, valid, IMPLEMENTATIONS[twin], definition.read_only)
    valid = read_arguments(f"{name} {call.name}", action.parameters, call.input)
    definition = DEFINITIONS[offered[action.name]]
    return ResolvedCall(name, call, definition, valid, implement_action(action), _only_reads(action), action.name)


def _only_reads(action: Action) -> bool:
    return action.effect == "read"

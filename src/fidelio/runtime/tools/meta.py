"""The tools by which a model reaches the tools that are not declared to it: `tools_open` and `tool_call`.

The list of declared tools never changes within a session, because vendors cache a conversation by its beginning. So the core
tools are declared, and the others are shown as text when a group is declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec

from fidelio.errors import ToolRefused
from fidelio.providers.model import ToolDeclaration
from fidelio.runtime.tools.definitions import DEFINITIONS
from fidelio.runtime.tools.meta_definitions import CALL, META_NAMES, OPEN, ToolCallParameters, ToolsOpen
from fidelio.runtime.tools.model import Implementation, Preparation, ToolCall, ToolDefinition, ToolResult
from fidelio.toolkit import input_schema

# What most work needs; the rest is declared by group.
CORE = (
    *("read", "write", "edit", "glob", "grep", "bash", "shell_run", "shell_exec", "shell_wait"),
    *("memory_write", "retrieval_search", "outcome_evaluate"),
)


def declare_tools(
    tools: frozenset[str], extra: Mapping[str, ToolDeclaration], *, all_tools: bool
) -> tuple[ToolDeclaration, ...]:
    """The tools that are declared to the model, in an order that never changes. Without `tools_open` these are all."""
    if all_tools or OPEN not in tools:
        names: Iterable[str] = (name for name in DEFINITIONS if name in tools and name not in META_NAMES)
        return (*(declare(DEFINITIONS[name]) for name in names), *extra.values())
    core = [declare(DEFINITIONS[name]) for name in CORE if name in tools]
    declared = declare(DEFINITIONS[OPEN])
    listed = msgspec.structs.replace(declared, description=f"{declared.description} {describe_groups(tools)}")
    return (*core, listed, declare(DEFINITIONS[CALL]), *extra.values())


@cache
def declare(definition: ToolDefinition) -> ToolDeclaration:
    """The declaration of a tool. Cached: building the schemas of the core tools takes half of the CPU of a wake."""
    return ToolDeclaration(definition.name, definition.description, input_schema(definition.parameters))


def describe_groups(tools: frozenset[str]) -> str:
    """The names of all tools by group: a model calls what it knows of."""
    groups: dict[str, list[str]] = {}
    for name, definition in DEFINITIONS.items():
        if name in tools and name not in META_NAMES:
            groups.setdefault(definition.group, []).append(name)
    return " ".join(f"{group}: {', '.join(names)}." for group, names in groups.items())


def unwrap(name: str, arguments: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The tool that a call is really about. A wrong `tool_call` stays what it is, and is refused by its own schema."""
    inner = arguments.get("name")
    if name != CALL or not isinstance(inner, str) or inner in META_NAMES:
        return name, arguments
    inner_arguments = arguments.get("arguments", {})
    return (inner, inner_arguments) if isinstance(inner_arguments, Mapping) else (name, arguments)


async def _open(call: ToolCall, arguments: ToolsOpen, _: Preparation) -> ToolResult:
    found = [
        definition for name, definition in DEFINITIONS.items() if name in call.tools and definition.group == arguments.group
    ]
    if not found or arguments.group == "meta":
        groups = sorted({DEFINITIONS[name].group for name in call.tools if name in DEFINITIONS} - {"meta"})
        raise ToolRefused(
            f"There is no group {arguments.group!r:.80}.", remedy=f"Use one of: {', '.join(groups)}.", reason="unknown_group"
        )
    shown = [
        {"name": tool.name, "description": tool.description, "inputSchema": input_schema(tool.parameters)} for tool in found
    ]
    return ToolResult(output={"group": arguments.group, "callWith": CALL, "tools": shown})


async def _refuse_call(_: ToolCall, arguments: ToolCallParameters, __: Preparation) -> ToolResult:
    raise ToolRefused(f"tool_call cannot call {arguments.name!r:.80}.", remedy="Name another tool.", reason="unknown_tool")


META_IMPLEMENTATIONS = {OPEN: Implementation(_open), CALL: Implementation(_refuse_call)}

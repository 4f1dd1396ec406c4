"""Definitions of the tools by which a model reaches the tools that are not declared to it."""

from __future__ import annotations

from typing import Any

import msgspec

from fidelio.runtime.tools.model import ToolDefinition
from fidelio.runtime.tools.parameters import Name, ToolParameters

OPEN, CALL = "tools_open", "tool_call"


class ToolsOpen(ToolParameters, frozen=True):
    """The group to open."""

    group: Name


class ToolCallParameters(ToolParameters, frozen=True):
    """The tool, and its arguments."""

    name: Name
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)


META_TOOLS = (
    ToolDefinition(
        name=OPEN,
        title="Open a group of tools",
        description="Show the schemas of a group of tools, which tool_call then calls.",
        parameters=ToolsOpen,
        group="meta",
        effects=("session_read",),
        output=("group", "callWith", "tools"),
        read_only=True,
    ),
    ToolDefinition(
        name=CALL,
        title="Call a tool by name",
        description="Call any tool by its name, with the arguments that tools_open has shown.",
        parameters=ToolCallParameters,
        group="meta",
        effects=("session_write",),
        output=("ok",),
    ),
)
META_NAMES = frozenset({OPEN, CALL})

"""Tool declarations of the toolset `runtime`: all tools of a session, for a client that brings its own model.

The handler is that of the toolset `sandbox`, because a call is the same there; only the list is longer. A model pays for the
whole list with each request, so it holds nothing that can be derived: no titles, and no hints that MCP assumes anyway.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from fidelio.app.application import Application
from fidelio.runtime.tools.definitions import RUNTIME_TOOLS
from fidelio.surfaces.mcp.dialects import SandboxSession
from fidelio.surfaces.mcp.endpoint import ServedTools
from fidelio.surfaces.mcp.toolsets.sandbox.declarations import INSTRUCTIONS as SANDBOX_INSTRUCTIONS
from fidelio.surfaces.mcp.toolsets.sandbox.declarations import declare, serve_session
from fidelio.toolkit import Tool

P = TypeVar("P", bound=msgspec.Struct)
INSTRUCTIONS = (
    f"{SANDBOX_INSTRUCTIONS} Further tools: session_* and agent_* describe this session, its past and its setup; outcome_* "
    "hold the work to what must become true; memory_*, learning_list and retrieval_search keep and find knowledge; skills_* "
    "give instructions for kinds of work; session_delegate gives a part of the work to a session of its own."
)


class CompactTool(Tool[P], frozen=True):
    """A declaration with a short description."""

    def describe(self) -> dict[str, Any]:
        described = super().describe()
        hints = shorten_hints(described["annotations"])
        return {key: described[key] for key in ("name", "description", "inputSchema")} | {"annotations": hints}


def shorten_hints(hints: dict[str, bool]) -> dict[str, bool]:
    """The hints that differ from what MCP assumes. Of a tool that only reads, no others than that have a meaning."""
    if hints["readOnlyHint"]:
        return {name: hints[name] for name in ("readOnlyHint", "openWorldHint") if hints[name] is (name == "readOnlyHint")}
    assumed = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
    return {name: value for name, value in hints.items() if value is not assumed[name]}


TOOLS = tuple(declare(definition, CompactTool) for definition in RUNTIME_TOOLS)


def open_tools(app: Application, session: SandboxSession) -> ServedTools:
    return serve_session(app, session, TOOLS, INSTRUCTIONS)

"""Tool declarations of the toolset `sandbox`, made from the table of tool definitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fidelio.app.application import Application
from fidelio.runtime.tools.definitions import SANDBOX_TOOLS
from fidelio.runtime.tools.model import ToolDefinition
from fidelio.surfaces.mcp.dialects import SandboxSession
from fidelio.surfaces.mcp.endpoint import ServedTools
from fidelio.toolkit import Tool, ToolHandlers, ToolTable

INSTRUCTIONS = (
    "These tools work in a sandbox: a closed directory tree with a shell, without the files of this machine. /workspace is "
    "yours. A project that a person has mounted is at /workspace/project. Files that you share with other sessions are at "
    "/workspace/agent, read-only: stage, edit, compare, promote. read, glob, grep and bash look; write and edit change files; "
    "shell_run and shell_exec run commands. A result with status waiting means that a person must allow the call: repeat the "
    "same call to wait for the answer. You cannot answer it. sandbox_describe shows mounts and limits, permissions_check what "
    "a planned call needs."
)


def declare(definition: ToolDefinition, kind: type[Tool[Any]] = Tool) -> Tool[Any]:
    """The declaration of a tool. What a command could do beyond the sandbox depends on its network, so its world is open."""
    return kind(
        definition.name,
        definition.title,
        definition.description,
        definition.parameters,
        read_only=definition.read_only,
        destructive=definition.destructive,
        idempotent=definition.read_only,
        open_world=definition.group == "shell" and definition.destructive,
    )


TOOLS = tuple(declare(definition) for definition in SANDBOX_TOOLS)


def open_tools(app: Application, session: SandboxSession) -> ServedTools:
    return serve_session(app, session, TOOLS, INSTRUCTIONS)


def serve_session(app: Application, session: SandboxSession, tools: Iterable[Tool[Any]], instructions: str) -> ServedTools:
    """The tools of a session, which is created by the first call."""
    served = tuple(tools)
    names = frozenset(tool.name for tool in served)

    def load_handlers() -> ToolHandlers:
        from fidelio.surfaces.mcp.toolsets.sandbox.handlers import SandboxToolset  # noqa: PLC0415  # the first call loads the services, not the start

        return SandboxToolset(app, session, names)

    return ServedTools(
        ToolTable(served, load_handlers), instructions=instructions, program=app.program, ask=app.ask, own=app.identify_self()
    )

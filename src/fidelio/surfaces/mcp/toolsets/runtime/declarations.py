"""Tool declarations of the toolset `runtime`: all tools of a session, for a client that brings its own model.

The handler is that of the toolset `sandbox`, because a call is the same there; only the list is longer.
"""

from __future__ import annotations

from fidelio.app.application import Application
from fidelio.runtime.tools.definitions import RUNTIME_TOOLS
from fidelio.surfaces.mcp.dialects import SandboxSession
from fidelio.surfaces.mcp.endpoint import ServedTools
from fidelio.surfaces.mcp.toolsets.sandbox.declarations import INSTRUCTIONS as SANDBOX_INSTRUCTIONS
from fidelio.surfaces.mcp.toolsets.sandbox.declarations import declare, serve_session

INSTRUCTIONS = (
    f"{SANDBOX_INSTRUCTIONS} Further tools: session_* and agent_* describe this session, its past and its setup; outcome_* "
    "hold the work to what must become true; memory_*, learning_list and retrieval_search keep and find knowledge; skills_* "
    "give instructions for kinds of work; session_delegate gives a part of the work to a session of its own."
)
TOOLS = tuple(declare(definition) for definition in RUNTIME_TOOLS)


def open_tools(app: Application, session: SandboxSession) -> ServedTools:
    return serve_session(app, session, TOOLS, INSTRUCTIONS)

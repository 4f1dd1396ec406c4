"""Registry of the sets of tools. A set is imported only when it is chosen, because an agent waits for the start."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

import msgspec

from fidelio.surfaces.mcp.endpoint import Prompts, ServedTools, list_schema_resources
from fidelio.toolkit import ToolHandlers, ToolTable

if TYPE_CHECKING:
    from fidelio.app.application import Application

DEFAULT = "sessions"
_HANDLERS = {DEFAULT: "SessionsDialect", "gates": "GatesDialect", "navigator": "NavigatorDialect"}
DIALECTS = tuple(_HANDLERS)
TOOLSETS = ("workflows", "orchestrator", "sandbox", "runtime")
# The toolsets whose tools are those of one session.
SESSION_TOOLSETS = ("sandbox", "runtime")


class SandboxSession(msgspec.Struct, frozen=True):
    """The session of the toolset `sandbox` or `runtime`, as the command line names it. `mount` is a directory of the host."""

    name: str = "default"
    agent: str = "default"
    environment: str | None = None
    mount: str | None = None


def endpoint_path(dialect: str) -> str:
    """The path of a dialect, or of a toolset, over HTTP."""
    return "/mcp" if dialect == DEFAULT else f"/mcp/{dialect}"


def load_tools(dialect: str, app: Application, sandbox: SandboxSession | None = None) -> ServedTools:
    """Load the tools of a dialect or a toolset. Their handlers and the services are loaded by the first call."""
    if dialect == "orchestrator":
        from fidelio.surfaces.mcp.toolsets.orchestrator.declarations import open_tools  # noqa: PLC0415  # a server loads only the tools that it serves

        return open_tools(app)
    if dialect in SESSION_TOOLSETS:
        toolset = import_module(f"fidelio.surfaces.mcp.toolsets.{dialect}.declarations")
        served: ServedTools = toolset.open_tools(app, sandbox or SandboxSession())
        return served
    declarations = import_module(f"{__name__}.{dialect}.declarations")

    def load_handlers() -> ToolHandlers:
        handlers: ToolHandlers = getattr(import_module(f"{__name__}.{dialect}.handlers"), _HANDLERS[dialect])(app)
        return handlers

    @cache
    def load_prompts() -> Prompts:
        prompts: Prompts = import_module(f"{__name__}.prompts").WorkflowPrompts(app, dialect)
        return prompts

    return ServedTools(
        ToolTable(declarations.TOOLS, load_handlers, unlisted=declarations.NOT_FOR_WORKERS if app.is_worker else ()),
        instructions=declarations.INSTRUCTIONS,
        resources=list_schema_resources() if dialect == DEFAULT else (),
        program=app.program,
        ask=app.ask,
        own=app.identify_self(),
        # A worker begins no workflow.
        load_prompts=None if app.is_worker else load_prompts,
    )

"""Registry of the sets of tools. A set is imported only when it is chosen, because an agent waits for the start."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fidelio.app.application import Application
    from fidelio.surfaces.mcp.endpoint import ServedTools

DEFAULT = "sessions"
DIALECTS = (DEFAULT, "gates", "navigator")
TOOLSETS = ("workflows", "orchestrator")


def endpoint_path(dialect: str) -> str:
    """The path of a dialect, or of the orchestrator, over HTTP."""
    return "/mcp" if dialect == DEFAULT else f"/mcp/{dialect}"


def load_tools(dialect: str, app: Application) -> ServedTools:
    return _LOADERS[dialect](app)


def _load_sessions(app: Application) -> ServedTools:
    from fidelio.surfaces.mcp.dialects.sessions.declarations import open_tools  # noqa: PLC0415  # a server loads only the dialect that it serves

    return open_tools(app)


def _load_gates(app: Application) -> ServedTools:
    from fidelio.surfaces.mcp.dialects.gates.declarations import open_tools  # noqa: PLC0415  # a server loads only the dialect that it serves

    return open_tools(app)


def _load_navigator(app: Application) -> ServedTools:
    from fidelio.surfaces.mcp.dialects.navigator.declarations import open_tools  # noqa: PLC0415  # a server loads only the dialect that it serves

    return open_tools(app)


def _load_orchestrator(app: Application) -> ServedTools:
    from fidelio.surfaces.mcp.toolsets.orchestrator.declarations import open_tools  # noqa: PLC0415  # a server loads only the dialect that it serves

    return open_tools(app)


_LOADERS = {"sessions": _load_sessions, "gates": _load_gates, "navigator": _load_navigator, "orchestrator": _load_orchestrator}

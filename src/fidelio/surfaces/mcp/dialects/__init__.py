"""Registry of the sets of tools. Each is imported only when it is chosen, because an agent waits for the start."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fidelio.app.application import Application
    from fidelio.surfaces.mcp.endpoint import ServedTools

DEFAULT = "sessions"
DIALECTS = (DEFAULT, "gates", "navigator")
TOOLSETS = ("workflows", "orchestrator")


def endpoint_path(dialect: str) -> str:
    """Where a dialect, or the orchestrator, is served over HTTP."""
    return "/mcp" if dialect == DEFAULT else f"/mcp/{dialect}"


def load_tools(dialect: str, house: Application) -> ServedTools:
    return _LOADERS[dialect](house)


def _sessions(house: Application) -> ServedTools:
    from fidelio.surfaces.mcp.dialects.sessions.handlers import SessionsDialect  # noqa: PLC0415  # only when it is chosen

    return SessionsDialect(house).tools()


def _gates(house: Application) -> ServedTools:
    from fidelio.surfaces.mcp.dialects.gates.handlers import GatesDialect  # noqa: PLC0415  # only when it is chosen

    return GatesDialect(house).tools()


def _navigator(house: Application) -> ServedTools:
    from fidelio.surfaces.mcp.dialects.navigator.handlers import NavigatorDialect  # noqa: PLC0415  # only when it is chosen

    return NavigatorDialect(house).tools()


def _orchestrator(house: Application) -> ServedTools:
    from fidelio.surfaces.mcp.toolsets.orchestrator.handlers import AgentToolset  # noqa: PLC0415  # only when it is chosen

    return AgentToolset(house).tools()


_LOADERS = {"sessions": _sessions, "gates": _gates, "navigator": _navigator, "orchestrator": _orchestrator}

"""A declaration names its handler only by the name of the tool, so that listing loads no handler. Both must agree."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest

from fidelio.surfaces.mcp.dialects.gates import declarations as gates
from fidelio.surfaces.mcp.dialects.gates.handlers import GatesDialect
from fidelio.surfaces.mcp.dialects.navigator import declarations as navigator
from fidelio.surfaces.mcp.dialects.navigator.handlers import NavigatorDialect
from fidelio.surfaces.mcp.dialects.sessions import declarations as sessions
from fidelio.surfaces.mcp.dialects.sessions.handlers import SessionsDialect
from fidelio.surfaces.mcp.toolsets.orchestrator import declarations as orchestrator
from fidelio.surfaces.mcp.toolsets.orchestrator.handlers import AgentToolset
from fidelio.toolkit import CallContext, Tool, ToolHandlers
from tests.support import proves

SETS = ((sessions, SessionsDialect), (gates, GatesDialect), (navigator, NavigatorDialect), (orchestrator, AgentToolset))
CASES = [(tool, handlers) for declarations, handlers in SETS for tool in declarations.TOOLS]


@proves("mcp.light-start")
@pytest.mark.parametrize(("tool", "handlers"), CASES, ids=[f"{handlers.__name__}-{tool.name}" for tool, handlers in CASES])
def test_a_declared_tool_has_a_handler_that_takes_its_parameters(tool: Tool[Any], handlers: type[ToolHandlers]) -> None:
    hints = get_type_hints(getattr(handlers, tool.name))
    hints.pop("return")

    assert list(hints.values()) == [tool.parameters, CallContext]

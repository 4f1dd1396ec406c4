"""The table of the tools that the conformance suite calls by name."""

from __future__ import annotations

from typing import Any

import msgspec

from fidelio.errors import UsageProblem
from fidelio.surfaces.mcp.endpoint import ServedTools
from fidelio.toolkit import CallContext, Done, Tool, ToolHandlers, ToolTable
from tests.conformance.fixture_special import SPECIAL


class Nothing(msgspec.Struct):
    pass


async def simple_text(_: Nothing, __: CallContext) -> Done:
    return Done("This is a simple text response for testing.")


async def failing(_: Nothing, __: CallContext) -> Done:
    raise UsageProblem("This tool intentionally returns an error for testing")


async def with_progress(_: Nothing, context: CallContext) -> Done:
    for done in (0, 50, 100):
        await context.report(done, 100)
    return Done("Three reports of progress were made.")


class FixtureTools(ToolHandlers):
    """The handlers, by the names that the suite calls."""

    test_simple_text = staticmethod(simple_text)
    test_error_handling = staticmethod(failing)
    test_tool_with_progress = staticmethod(with_progress)


class FixtureTable(ToolTable):
    """The table, with the tools that are beyond a table of texts listed beside its own."""

    def describe(self) -> list[dict[str, Any]]:
        special = [{"name": name, "description": "A tool.", "inputSchema": tool.schema} for name, tool in SPECIAL.items()]
        return [*super().describe(), *special]


def served_tools() -> ServedTools:
    table = FixtureTable(
        [
            Tool("test_simple_text", "Text", "Returns a text.", Nothing, read_only=True),
            Tool("test_error_handling", "Error", "Always fails.", Nothing),
            Tool("test_tool_with_progress", "Progress", "Reports progress.", Nothing),
        ],
        FixtureTools,
    )
    return ServedTools(table)

"""Call a tool without a transport, with a context of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelio.surfaces.mcp.endpoint import ServedTools
from fidelio.toolkit import Outcome, Reporter


async def call_tool(
    tools: ServedTools, name: str, arguments: Mapping[str, Any], *, reporter: Reporter | None = None
) -> Outcome:
    return await tools.table.call(name, arguments, tools.make_context(reporter))

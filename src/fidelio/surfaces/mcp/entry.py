"""Starts the MCP server on standard input and output, with as little as possible before the first reply."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from fidelio.errors import FidelioError
from fidelio.settings import load_settings
from fidelio.surfaces.mcp.house import House
from fidelio.surfaces.mcp.options import McpOptions, parse
from fidelio.surfaces.mcp.protocol import Identity, Protocol
from fidelio.surfaces.mcp.sessions import INSTRUCTIONS, SessionsDialect
from fidelio.surfaces.mcp.stdio import serve_stdio


def run(arguments: Sequence[str]) -> int:
    try:
        return serve(parse(arguments))
    except FidelioError as error:
        print(f"fidelio: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def serve(options: McpOptions) -> int:
    asyncio.run(_serve(options))
    return 0


async def _serve(options: McpOptions) -> None:
    settings = load_settings(options.home)
    identity = Identity(settings.server_name, settings.server_version, INSTRUCTIONS)
    async with House(settings, options.workflows, with_bundled=options.with_bundled) as house:
        await serve_stdio(Protocol(identity, SessionsDialect(house).tools()))

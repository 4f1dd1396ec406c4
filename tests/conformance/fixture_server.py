"""The server that the conformance suite talks to: our HTTP stack, with the tools that the suite knows by name."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp.server.caching import CacheHint
from mcp.server.lowlevel.server import Server

from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.serving import serve_http
from fidelio.surfaces.mcp.endpoint import Identity
from tests.conformance.fixture_asking import STATES
from tests.conformance.fixture_content import add_content
from tests.conformance.fixture_special import add_special
from tests.conformance.fixture_tools import served_tools


def prepare(server: Server[Any]) -> None:
    add_content(server)
    add_special(server)
    for method in ("resources/list", "resources/read", "resources/templates/list", "prompts/list"):
        server.cache_hints[method] = CacheHint(ttl_ms=60_000, scope="public")


async def main() -> None:
    identity = Identity("fidelio-conformance", "1.0")
    app = create_app({"/mcp": served_tools()}, identity, STATES, prepare=prepare)
    await serve_http(app, port=0, ready=lambda address: print(address, flush=True))  # noqa: T201  # the test reads it


if __name__ == "__main__":
    asyncio.run(main())

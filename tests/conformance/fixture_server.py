"""The server that the conformance suite talks to: our HTTP stack, with the tools that the suite knows by name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from mcp.server.lowlevel.server import Server
from mcp_types import RequestParams

from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.sdk import make_handler
from fidelio.surfaces.http.serving import serve_http
from fidelio.surfaces.mcp.endpoint import Identity, render_result
from fidelio.surfaces.mcp.protocol import Protocol, RequestContext
from tests.conformance.fixture_asking import STATES, Context, prompt_or_question
from tests.conformance.fixture_content import CACHED, HANDSHAKE_METHODS, METHODS, Json
from tests.conformance.fixture_special import SPECIAL, STREAMED
from tests.conformance.fixture_tools import served_tools

HANDLERS = {**METHODS, "prompts/get": prompt_or_question}
OFFERED: Json = {"tools": {}, "resources": {}, "prompts": {}, "completions": {}, "logging": {}}


class FixtureProtocol(Protocol):
    """The product's protocol, with the methods and tools of the suite beside its own."""

    def __init__(self) -> None:
        super().__init__(Identity("fidelio-conformance", "1.0"), served_tools(), STATES)
        self.capabilities = OFFERED

    async def handle(self, method: str, params: Mapping[str, Any], request: RequestContext) -> Json:
        if method == "tools/call" and params.get("name") in SPECIAL:
            result = await SPECIAL[params["name"]].handler(dict(params), request)
        elif method in HANDLERS:
            result = await HANDLERS[method](dict(params))
        else:
            return await super().handle(method, params, request)
        if method in CACHED and request.client.is_stateless:
            result |= {"ttlMs": 60_000, "cacheScope": "public"}
        return render_result(result, request.client, self.identity)

    def extend(self, server: Server[Any]) -> None:
        """Serve the same methods in sessions and streams, and what needs one."""
        handle = make_handler(self)

        async def call_tool(context: Context, params: RequestParams) -> Json:
            streamed = STREAMED.get((context.params or {})["name"])
            return await (streamed(context) if streamed is not None else handle(context, params))

        async def accept(_: Context, __: RequestParams) -> Json:
            return {}

        for method in HANDSHAKE_METHODS:
            server.add_request_handler(method, RequestParams, accept)
        for method in HANDLERS:
            server.add_request_handler(method, RequestParams, handle)
        server.add_request_handler("tools/call", RequestParams, call_tool)


async def main() -> None:
    protocol = FixtureProtocol()
    app = create_app({"/mcp": protocol}, prepare=protocol.extend)
    await serve_http(app, port=0, ready=lambda address: print(address, flush=True))  # noqa: T201  # the test reads it


if __name__ == "__main__":
    asyncio.run(main())

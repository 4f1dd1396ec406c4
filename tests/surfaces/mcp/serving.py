"""The example tools over HTTP, in this process, on a free port."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Route

from fidelio.settings import HttpLimits
from fidelio.surfaces.http.application import create_app
from fidelio.surfaces.http.sdk import make_sdk_server
from fidelio.surfaces.http.serving import serve_http
from tests.surfaces.mcp.example import ExampleTools, protocol
from tests.surfaces.mcp.wire import SECONDS

# No certificates are loaded, which takes longer than a request.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
ACCEPT = {"Accept": "application/json, text/event-stream"}


@dataclass
class Served:
    """A server that runs, and the tools behind it."""

    address: str
    example: ExampleTools
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"{self.address}/mcp"

    async def post(self, message: object, **headers: str) -> httpx2.Response:
        async with httpx2.AsyncClient(timeout=SECONDS, verify=NO_TLS) as client:
            return await client.post(self.url, json=message, headers={**ACCEPT, **self.headers, **headers})

    async def ask_stateless(self, message: dict[str, Any], **headers: str) -> httpx2.Response:
        """As 2026-07-28 wants it: what routes a request stands in its headers, too."""
        named = {"Mcp-Name": message["params"]["name"]} if "name" in message["params"] else {}
        routed = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": message["method"], **named}
        return await self.post(message, **{**routed, **headers})


@asynccontextmanager
async def served(host: str = "127.0.0.1", limits: HttpLimits | None = None, **options: Any) -> AsyncIterator[Served]:
    example = ExampleTools()
    async with serving(create_app({"/mcp": protocol(example)}, limits=limits, **options), host, limits) as address:
        yield Served(address, example)


@asynccontextmanager
async def served_by_sdk() -> AsyncIterator[Served]:
    """The same tools without our way for plain JSON: the SDK answers every request."""
    example = ExampleTools()
    manager = StreamableHTTPSessionManager(make_sdk_server(protocol(example)), json_response=True, stateless=True)
    app = Starlette(routes=[Route("/mcp", StreamableHTTPASGIApp(manager))], lifespan=lambda _: manager.run())
    app.state.has_token = False
    async with serving(app) as address:
        yield Served(address, example)


@asynccontextmanager
async def serving(app: Starlette, host: str = "127.0.0.1", limits: HttpLimits | None = None) -> AsyncIterator[str]:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve_http(app, host, 0, ready=address.set_result, limits=limits))
    try:
        async with asyncio.timeout(SECONDS):
            yield await _first(address, task)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _first(address: asyncio.Future[str], serving: asyncio.Task[None]) -> str:
    """The address, or the reason why there is none."""
    starting: set[asyncio.Future[Any]] = {address, serving}
    await asyncio.wait(starting, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        await serving
    return await address

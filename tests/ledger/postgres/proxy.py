"""A proxy between client and server that can drop data and connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

ProxyRule = Callable[[bytes], str]


class Proxy:
    """Forwards data between client and server. `on_request` decides what happens to data that a client sends.

    `pass`: forward it; `swallow`: drop it; `hang up`: drop it and close the connection; `pass, hang up`: forward it and close
    the connection before the reply.
    """

    def __init__(self, url: str, place: Path) -> None:
        parts = urlsplit(url)
        asked = parse_qs(parts.query)
        self._name = f".s.PGSQL.{asked['port'][0]}"
        self._server = Path(asked["host"][0]) / self._name
        self.place = place
        self.url = f"postgresql://postgres@{parts.path}?host={place}&port={asked['port'][0]}"
        self.on_request: ProxyRule = lambda _: "pass"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_unix_connection(self._server)
        back = asyncio.create_task(_pump(answers, writer))
        try:
            with contextlib.suppress(OSError):
                await self._forward(reader, requests, back)
        finally:
            back.cancel()
            writer.transport.abort()
            requests.close()

    async def _forward(self, reader: asyncio.StreamReader, requests: asyncio.StreamWriter, back: asyncio.Task[None]) -> None:
        while data := await reader.read(65536):
            rule = self.on_request(data)
            if "hang up" in rule:
                back.cancel()
            if "pass" in rule:
                requests.write(data)
                await requests.drain()
            if "hang up" in rule:
                return

    def path(self) -> Path:
        return self.place / self._name


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def proxied(url: str, place: Path) -> AsyncIterator[Proxy]:
    proxy = Proxy(url, place)
    server = await asyncio.start_unix_server(proxy.serve, proxy.path())
    try:
        yield proxy
    finally:
        server.close()

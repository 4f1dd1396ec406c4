"""A man in the middle: passes everything on between a client and the server until a test wants otherwise."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

Rule = Callable[[bytes], str]


class Proxy:
    """`on_request` is shown what a client sends, and says what becomes of it.

    `pass`: it is passed on; `swallow`: it is not, and nobody is told; `hang up`: it is not, and the client is cut off;
    `pass, hang up`: it is passed on, and the client is cut off before the reply.
    """

    def __init__(self, url: str, place: Path) -> None:
        parts = urlsplit(url)
        asked = parse_qs(parts.query)
        self._name = f".s.PGSQL.{asked['port'][0]}"
        self._server = Path(asked["host"][0]) / self._name
        self.place = place
        self.url = f"postgresql://postgres@{parts.path}?host={place}&port={asked['port'][0]}"
        self.on_request: Rule = lambda _: "pass"

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

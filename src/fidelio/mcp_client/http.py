"""HTTP transport of the MCP client: each message is a POST, answered by JSON or by a stream of events."""

from __future__ import annotations

import asyncio
import http.client
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec

from fidelio.errors import ExecutorFailure

_CONNECT_SECONDS = 10.0
_SECONDS = 900.0
_SESSION = "Mcp-Session-Id"
_STREAM = "text/event-stream"


@asynccontextmanager
async def open_http_transport(address: str, headers: Mapping[str, str]) -> AsyncIterator[HttpTransport]:
    try:
        transport = HttpTransport(address, headers)
    except ValueError as error:
        raise ExecutorFailure(f"{address} is no address: {error}.", reason="mcp") from error
    try:
        yield transport
    finally:
        transport.close()


class HttpTransport:
    """An HTTP connection that is used by a single call at a time."""

    def __init__(self, address: str, headers: Mapping[str, str]) -> None:
        url = urlsplit(address)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._address = address
        self._connection = kind(url.hostname or "", url.port, timeout=_CONNECT_SECONDS)
        self._path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        self._socket: socket.socket | None = None
        self._headers = {**headers, "Content-Type": "application/json", "Accept": f"application/json, {_STREAM}"}

    async def request(self, message: Mapping[str, Any]) -> dict[str, Any]:
        reply = await self._post(message)
        if reply is None:
            raise ExecutorFailure(f"{self._address} gave no reply to {message['method']}.", reason="mcp")
        return reply

    async def notify(self, message: Mapping[str, Any]) -> None:
        await self._post(message)

    def close(self) -> None:
        if self._socket is not None:
            # Without the shutdown, a thread that waits for a reply would go on waiting.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    async def _post(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        # The thread of a cancelled call keeps waiting until `close` shuts its connection down.
        try:
            return await asyncio.to_thread(self._exchange, message)
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            raise ExecutorFailure(f"{self._address} could not be reached: {error}.", reason="mcp") from error

    def _connect(self) -> None:
        self._connection.connect()
        self._socket = self._connection.sock
        self._socket.settimeout(_SECONDS)

    def _exchange(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        if self._connection.sock is None:
            self._connect()
        self._connection.request("POST", self._path, msgspec.json.encode(message), self._headers)
        response = self._connection.getresponse()
        if session := response.getheader(_SESSION):
            self._headers[_SESSION] = session
        if response.getheader("Content-Type", "").startswith(_STREAM):
            return _find_reply(_parse_events(response), message)
        body = response.read()
        if response.status >= 400:
            shown = body[:500].decode("utf-8", "replace")
            raise ExecutorFailure(f"{self._address} refused the message ({response.status}): {shown}", reason="mcp")
        return msgspec.json.decode(body, type=dict[str, Any]) if body else None


def _find_reply(events: Iterator[dict[str, Any]], message: Mapping[str, Any]) -> dict[str, Any] | None:
    """The reply to this message. The stream is read to its end, so that the connection can be used again."""
    replies = [event for event in events if event.get("id") == message.get("id") and "method" not in event]
    return replies[0] if replies else None


def _parse_events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    data: list[bytes] = []
    for line in response:
        stripped = line.rstrip(b"\r\n")
        if stripped.startswith(b"data:"):
            data.append(stripped.removeprefix(b"data:").strip())
        elif not stripped and data:
            yield msgspec.json.decode(b"\n".join(data), type=dict[str, Any])
            data = []

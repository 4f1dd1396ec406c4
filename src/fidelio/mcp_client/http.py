"""HTTP transport of the MCP client: each message is a POST, answered by JSON or by a stream of events.

The server may be hostile: replies are bounded and never unpacked, a call that is cancelled ends at once, redirects are not
followed with the credentials, and no error shows a header.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, TypeAlias

import httpx2
import msgspec

from fidelio.errors import FidelioError
from fidelio.mcp_client.client import REVISION

MAX_REPLY = 8_000_000
MAX_EVENTS = 1_000
CONNECT_SECONDS = 10.0
_CLOSE_SECONDS = 2.0
_SHOWN = 1_200
_SESSION, _REVISION = "Mcp-Session-Id", "MCP-Protocol-Version"
_STREAM, _PLAIN = "text/event-stream", "identity"

# What the server does, and what it said about it.
Failure: TypeAlias = Callable[[str, str], FidelioError]
# Another value of the header `Authorization`, for one that the server has refused.
Renew: TypeAlias = Callable[[str], Awaitable[str]]


class HttpTransport:
    """A `Transport` to a server with an address. `failure` makes the error of what the server does, and what it said of it.

    `renew`: what a message that the server has refused with 401 is sent with again, once.
    """

    def __init__(
        self, address: str, headers: Mapping[str, str], failure: Failure, *, seconds: float, renew: Renew | None = None
    ) -> None:
        self._address, self._failure, self._renew = address, failure, renew
        self.headers = {**headers, "Accept": f"application/json, {_STREAM}", "Content-Type": "application/json"}
        # A few compressed bytes can be gigabytes, so none are accepted.
        self.headers |= {_REVISION: REVISION, "Accept-Encoding": _PLAIN}
        timeout = httpx2.Timeout(seconds, connect=CONNECT_SECONDS)
        self._client = httpx2.AsyncClient(timeout=timeout, follow_redirects=False)

    async def request(self, message: Mapping[str, Any]) -> dict[str, Any]:
        reply = await self._post(message)
        if reply is None:
            raise self._failure("gave no reply", "")
        return reply

    async def notify(self, message: Mapping[str, Any]) -> None:
        await self._post(message)

    async def close(self) -> None:
        """End the session at the server, if it wants to know, and the connection."""
        try:
            if _SESSION in self.headers:
                with suppress(httpx2.HTTPError, TimeoutError):
                    async with asyncio.timeout(_CLOSE_SECONDS):
                        await self._client.delete(self._address, headers=self.headers)
        finally:
            await self._client.aclose()

    async def _post(self, message: Mapping[str, Any], *, is_repeated: bool = False) -> dict[str, Any] | None:
        content, authorization = msgspec.json.encode(message), self.headers.get("Authorization", "")
        try:
            async with self._client.stream("POST", self._address, content=content, headers=self.headers) as response:
                renew = self._renew if response.status_code == HTTPStatus.UNAUTHORIZED and not is_repeated else None
                if renew is None:
                    return await self._read(response, message)
        except httpx2.TimeoutException as error:
            raise self._failure("did not answer in time", "") from error
        except (httpx2.HTTPError, httpx2.SSEError, httpx2.InvalidURL, httpx2.StreamError) as error:
            # Without the text of the error: it can contain the value of a header.
            raise self._failure(f"could not be reached or cut off its reply ({type(error).__name__})", "") from None
        # What was refused has had no effect, so it may be sent again.
        self.headers["Authorization"] = await renew(authorization)
        return await self._post(message, is_repeated=True)

    async def _read(self, response: httpx2.Response, message: Mapping[str, Any]) -> dict[str, Any] | None:
        if response.headers.get("content-encoding", _PLAIN) != _PLAIN:
            raise self._failure("sent a compressed reply, which it was not asked for", "")
        if response.status_code >= 300:
            text = (await self._read_body(response, _SHOWN)).decode(errors="replace")
            raise self._failure(f"refused the message ({response.status_code})", text)
        if session := response.headers.get(_SESSION):
            self.headers[_SESSION] = session
        if response.headers.get("content-type", "").startswith(_STREAM):
            return await self._read_stream(response, message)
        body = await self._read_body(response, MAX_REPLY)
        if len(body) > MAX_REPLY:
            raise self._failure(f"sent a reply of more than {MAX_REPLY:,} bytes", "")
        return self._decode(bytes(body)) if body else None

    async def _read_body(self, response: httpx2.Response, most: int) -> bytearray:
        """The body, but only a little more of it than `most` bytes."""
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > most:
                break
        return body

    async def _read_stream(self, response: httpx2.Response, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """The reply to a message in a stream of events. What the server asks meanwhile is not answered."""
        size = count = 0
        async for event in httpx2.EventSource(response, max_event_size=MAX_REPLY):
            size, count = size + len(event.data), count + 1
            if size > MAX_REPLY or count > MAX_EVENTS:
                raise self._failure("sends messages without end", "")
            reply = self._decode(event.data.encode()) if event.data else {}
            if reply.get("id") == message.get("id") and "method" not in reply:
                return reply
        return None

    def _decode(self, content: bytes) -> dict[str, Any]:
        try:
            return msgspec.json.decode(content, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._failure("sent a reply that is no JSON", "") from error

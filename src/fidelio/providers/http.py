"""HTTP client of the providers: a streamed request with time-outs, bounds and classified errors. It does not retry.

Connections are reused. A redirect is not followed, because the key would go to another host. Leaving `events`, also by
cancellation, closes a connection whose reply is not complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec

from fidelio.providers.model import ModelInfo, ModelProblem, ModelReply, ModelRequest, OnText
from fidelio.providers.problems import Vendor, classify, make_connection_problem, read_error_body

CONNECT_SECONDS = 10.0
# A reasoning model, or a local server with a long prompt, sends nothing for minutes.
IDLE_SECONDS = 300.0
# How long the end of a complete reply is waited for, so that its connection can be used again.
_DRAIN_SECONDS = 1.0
_EVENT_BYTES = 8 * 1024 * 1024
_REPLY_CHARACTERS = 64 * 1024 * 1024
_ERROR_BYTES = 64 * 1024

T = TypeVar("T")


class ModelEndpoint(msgspec.Struct, frozen=True):
    """Where requests go, and the headers that they carry."""

    vendor: Vendor
    address: str
    headers: Mapping[str, str]


class EventKind(msgspec.Struct):
    """The type of an event. It is decoded first, because the fields of an unknown event can have any type."""

    type: str = ""


class ReplyReader(Protocol):
    """Collects a reply from the events of its stream."""

    def read(self, data: str) -> bool:
        """Read the data of an event. True: the reply is complete, and nothing that follows matters."""
        ...

    def finish(self) -> ModelReply:
        """The reply. Raises `ModelProblem` if the stream ended too early."""
        ...


class HttpProvider:
    """Base of the providers for HTTP APIs. A subclass has the endpoint, encodes requests and reads replies."""

    name = ""

    def __init__(self, environment: Mapping[str, str], *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._environment = environment
        self._timeout = httpx2.Timeout(idle_seconds, connect=CONNECT_SECONDS, pool=CONNECT_SECONDS)
        self._client: httpx2.AsyncClient | None = None

    def open_endpoint(self, environment: Mapping[str, str]) -> ModelEndpoint:
        """The endpoint that the environment describes. Raises `ModelProblem` if a variable is missing or invalid."""
        raise NotImplementedError

    def encode(self, request: ModelRequest) -> dict[str, Any]:
        raise NotImplementedError

    def open_reader(self, request: ModelRequest, vendor: Vendor, on_text: OnText) -> ReplyReader:
        raise NotImplementedError

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        endpoint = self.open_endpoint(self._environment)
        reader = self.open_reader(request, endpoint.vendor, on_text)
        async with self._open_events(endpoint, msgspec.json.encode(self.encode(request))) as events:
            async for data in events:
                if reader.read(data):
                    await _drain(events)
                    break
        return reader.finish()

    def describe(self, model: str) -> ModelInfo:  # noqa: ARG002  # what is known of models is configuration
        return ModelInfo()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    @asynccontextmanager
    async def _open_events(self, endpoint: ModelEndpoint, body: bytes) -> AsyncIterator[AsyncIterator[str]]:
        if self._client is None:
            self._client = httpx2.AsyncClient(timeout=self._timeout, follow_redirects=False)
        headers = {"content-type": "application/json", "accept": "text/event-stream", **endpoint.headers}
        try:
            async with self._client.stream("POST", endpoint.address, content=body, headers=headers) as response:
                await _require_stream(endpoint.vendor, response)
                yield _iterate(endpoint.vendor, response)
        except httpx2.TimeoutException as error:
            raise make_connection_problem(endpoint.vendor, f"did not reply in time ({type(error).__name__})") from error
        except httpx2.TransportError as error:
            # Without the text of the error: it can contain the value of a header.
            raise make_connection_problem(
                endpoint.vendor, f"could not be reached or cut off its reply ({type(error).__name__})"
            ) from error
        except httpx2.DecodingError as error:
            raise make_connection_problem(endpoint.vendor, "sent a reply that cannot be decompressed") from error


async def _require_stream(vendor: Vendor, response: httpx2.Response) -> None:
    if response.status_code != 200:
        message, code = read_error_body(await _read_bounded(response))
        raise classify(vendor, response.status_code, message, code=code, retry_after=response.headers.get("retry-after", ""))
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "text/event-stream":
        raise ModelProblem(
            f"{vendor.name} sent {vendor.excerpt(kind) or 'a reply without a type'} where a stream of events was expected.",
            remedy=f"Check {vendor.address_variable}.",
        )


async def _read_bounded(response: httpx2.Response) -> bytes:
    body = b""
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) >= _ERROR_BYTES:
            break
    return body[:_ERROR_BYTES]


async def _iterate(vendor: Vendor, response: httpx2.Response) -> AsyncIterator[str]:
    """The data of every event. The size of an event and of the whole reply is bounded."""
    total = 0
    async for event in httpx2.EventSource(response, max_event_size=_EVENT_BYTES):
        total += len(event.data)
        if total > _REPLY_CHARACTERS:
            raise make_connection_problem(vendor, "sent a reply without end")
        if event.data:
            yield event.data


async def _drain(events: AsyncIterator[str]) -> None:
    """Read the end of a complete reply, so that the connection can be used again; an error there does not matter any more."""
    with suppress(TimeoutError, httpx2.TransportError, ModelProblem):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in events:
                pass


def decode_event(data: str, type_: type[T], vendor: Vendor) -> T:
    """Decode the data of an event; unknown fields are ignored."""
    try:
        return msgspec.json.decode(data, type=type_)
    except msgspec.DecodeError as error:
        raise make_connection_problem(vendor, f"sent a malformed event: {error}") from error


def require_secret(environment: Mapping[str, str], variable: str, vendor: str) -> str:
    """The value of a variable with a key. An error never contains it."""
    secret = environment.get(variable, "").strip()
    if not secret:
        raise ModelProblem(f"{vendor} needs a key.", remedy=f"Set {variable}.")
    if not (secret.isascii() and secret.isprintable() and " " not in secret):
        raise ModelProblem(
            f"{variable} is not a key: it has characters that no header can have.", remedy=f"Set {variable} again."
        )
    return secret


def build_address(environment: Mapping[str, str], variable: str, default: str, path: str) -> str:
    """The address of an API: that of the variable or the default, with the path. A version in both appears once."""
    base = environment.get(variable, "").strip().rstrip("/") or default
    try:
        split = urlsplit(base)
        valid = split.scheme in ("http", "https") and bool(split.hostname) and (split.port or 1) > 0
    except ValueError:
        valid = False
    if not valid or not base.isprintable() or " " in base:
        raise ModelProblem(
            f"{variable} is not the address of an API.", remedy=f"Set {variable} to an http:// or https:// address."
        )
    return (base.removesuffix("/v1") if path.startswith("/v1/") else base) + path

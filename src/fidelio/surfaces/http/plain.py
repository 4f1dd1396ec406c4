"""Fast path of `tools/call` over HTTP: answers a plain call without the SDK.

For every request the SDK sets up a connection and validates the call against two models and its reply against a third, which
costs more than most calls. A plain call gets the same result here: the request is read as strictly, and `CallDispatcher`
runs it as over stdio. The client is identified by the functions of the SDK. A request that is not clearly a plain call goes
to the transport of the SDK, which also reports errors in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

import msgspec
from mcp.server.connection import Connection
from mcp.server.runner import modern_error_data
from mcp.server.streamable_http import check_accept_headers
from mcp.shared.inbound import MCP_PARAM_HEADER_PREFIX, InboundModernRoute, classify_inbound_request, x_mcp_header_map
from mcp_types import CallToolRequestParams
from mcp_types.methods import validate_client_request
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError
from starlette.requests import Request

from fidelio.orchestrator.blueprints.servers import AGENT_HEADER
from fidelio.surfaces.http.sdk import read_client
from fidelio.surfaces.mcp.endpoint import META_PREFIX, Client, Identity, RequestStates, ServedTools, render_result
from fidelio.surfaces.mcp.protocol import ENCODING_ERRORS, CallDispatcher, RequestContext, error_response

JSON: Final = b"application/json"
_METHOD, _PROGRESS = "tools/call", "progressToken"
# A body with more brackets may be nested deeper than the SDK accepts, so the SDK's transport has to decide.
MAX_BRACKETS = 150
# Longer introductions and Accept headers go to the SDK's transport, so that the caches stay small.
MAX_INTRODUCTION_LENGTH, MAX_ACCEPT_LENGTH = 4096, 256
CACHE_SIZE = 256
_AGENT = AGENT_HEADER.lower().encode()
_PARAM_HEADER = MCP_PARAM_HEADER_PREFIX.lower().encode()

Headers = Mapping[bytes, bytes]


class _Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    meta: dict[str, Any] = msgspec.field(name="_meta", default_factory=dict)


class _Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a `tools/call` request."""

    id: str | int
    method: Literal["tools/call"]
    jsonrpc: Literal["2.0"]
    params: _Params


_call_decoder = msgspec.json.Decoder(_Call)


class PlainCall(msgspec.Struct, frozen=True):
    """A plain call, its client, and the run id that the client claims."""

    call: _Call
    client: Client
    agent: str


class _Introduction(NamedTuple):
    """The headers and metadata of a request that identify client and tool; the key of a cache."""

    tool: str
    envelope: bytes
    revision: bytes
    method: bytes
    tool_header: bytes


class PlainCalls:
    """Reads and answers the plain calls of an endpoint."""

    def __init__(self, identity: Identity, tools: ServedTools, states: RequestStates) -> None:
        self._identity = identity
        self._dispatcher = CallDispatcher(tools, states)
        # If a tool requires an argument to be repeated in a header, the SDK's transport compares the two.
        self._plain_tools = {tool["name"] for tool in tools.table.describe() if not x_mcp_header_map(tool["inputSchema"])}

    def read(self, headers: Headers, body: bytes) -> PlainCall | None:
        """Return the plain call of a request; None for any other request. The caller must rule out duplicate headers."""
        accept = headers.get(b"accept", b"")
        if headers.get(b"content-type") != JSON or len(accept) > MAX_ACCEPT_LENGTH or not _accepts_json(accept):
            return None
        if body.count(b"[") + body.count(b"{") > MAX_BRACKETS or _PARAM_HEADER in b" ".join(headers):
            return None
        try:
            call = _call_decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if call.params.name not in self._plain_tools:
            return None
        client = _read_client(headers, call.params)
        return None if client is None else PlainCall(call, client, headers.get(_AGENT, b"").decode("latin-1").strip())

    async def answer(self, plain: PlainCall) -> bytes:
        """Return the body of the reply. The HTTP status is always 200: errors are in the body."""
        call, client = plain.call, plain.client
        request = RequestContext(client, caller=plain.agent)
        result = await self._dispatcher.call(call.params.name, call.params.arguments, request)
        try:
            reply = {"jsonrpc": "2.0", "id": call.id, "result": render_result(result, client, self._identity)}
            return msgspec.json.encode(reply)
        except ENCODING_ERRORS as error:
            problem = modern_error_data(error)
            return msgspec.json.encode(error_response(call.id, problem.code, problem.message))


@lru_cache(maxsize=CACHE_SIZE)
def _accepts_json(accept: bytes) -> bool:
    accepts_json, _ = check_accept_headers(Request({"type": "http", "headers": [(b"accept", accept)]}))
    return accepts_json


def _read_client(headers: Headers, params: _Params) -> Client | None:
    if type(params.meta.get(_PROGRESS, "")) not in (str, int):
        return None
    # Only the protocol's own keys identify the client; others may change with every call and would defeat the cache.
    envelope = {key: value for key, value in params.meta.items() if key.startswith(META_PREFIX)}
    introduction = _Introduction(
        params.name,
        msgspec.json.encode(envelope),
        headers.get(b"mcp-protocol-version", b""),
        headers.get(b"mcp-method", b""),
        headers.get(b"mcp-name", b""),
    )
    return _identify_client(introduction) if sum(map(len, introduction)) <= MAX_INTRODUCTION_LENGTH else None


@lru_cache(maxsize=CACHE_SIZE)
def _identify_client(introduction: _Introduction) -> Client | None:
    """Return the client as the SDK identifies it; None if the SDK would refuse. Cached: a client repeats its introduction."""
    params = {"name": introduction.tool, "_meta": msgspec.json.decode(introduction.envelope)}
    route = _route(introduction, params)
    if route is None:
        return None
    try:
        validate_client_request(_METHOD, route.protocol_version, params)
        CallToolRequestParams.model_validate(params, by_name=False)
    except ValidationError:
        return None
    connection = Connection.from_envelope(route.protocol_version, route.client_info, route.client_capabilities)
    return read_client(route.protocol_version, connection.client_capabilities, connection.client_params)


def _route(introduction: _Introduction, params: Mapping[str, Any]) -> InboundModernRoute | None:
    raw_headers = {
        "mcp-protocol-version": introduction.revision,
        "mcp-method": introduction.method,
        "mcp-name": introduction.tool_header,
    }
    headers = {name: value.decode("latin-1") for name, value in raw_headers.items()}
    revision = headers["mcp-protocol-version"]
    if revision in HANDSHAKE_PROTOCOL_VERSIONS:
        return InboundModernRoute(protocol_version=revision, client_info=None, client_capabilities=None)
    route = classify_inbound_request({"method": _METHOD, "params": params}, headers=headers)
    return route if isinstance(route, InboundModernRoute) else None

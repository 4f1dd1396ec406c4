"""Fast path of `tools/call` over HTTP: a call that needs nothing but its reply, without the SDK.

The SDK sets up a connection for every request, checks the call against two models and its reply against a third. That costs
more than most calls do, and for a plain call of a tool of ours it changes nothing: what comes in is read here as strictly, and
what goes out is what `CallDispatcher` gives over stdio, too. Who may come this way is decided by the SDK's own rules, and only what
passes beyond doubt does: whoever sends anything else hears of it from the SDK's transport.
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
# Whoever nests more than this may nest deeper than the transport reads; that is for the transport to say.
MAX_BRACKETS = 150
# Whoever says more about itself than this is left to the transport, so that what is remembered stays small.
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
    """A request to call a tool, as it stands in the body."""

    id: str | int
    method: Literal["tools/call"]
    jsonrpc: Literal["2.0"]
    params: _Params


_calls = msgspec.json.Decoder(_Call)


class PlainCall(msgspec.Struct, frozen=True):
    """A call that is all there is to its request, and who makes it."""

    call: _Call
    client: Client
    agent: str


class _Introduction(NamedTuple):
    """Everything in a request that says who calls which tool, in headers and in the body."""

    tool: str
    envelope: bytes
    revision: bytes
    method: bytes
    named: bytes


class PlainCalls:
    """The plain calls of one endpoint."""

    def __init__(self, identity: Identity, tools: ServedTools, states: RequestStates) -> None:
        self._identity = identity
        self._calls = CallDispatcher(tools, states)
        # Where an argument has to be repeated in a header, the transport compares the two.
        self._plain = {tool["name"] for tool in tools.table.describe() if not x_mcp_header_map(tool["inputSchema"])}

    def read(self, headers: Headers, body: bytes) -> PlainCall | None:
        """The call that is all there is to this request; None for everything else. No header may be there twice."""
        accept = headers.get(b"accept", b"")
        if headers.get(b"content-type") != JSON or len(accept) > MAX_ACCEPT_LENGTH or not _accepts_json(accept):
            return None
        if body.count(b"[") + body.count(b"{") > MAX_BRACKETS or _PARAM_HEADER in b" ".join(headers):
            return None
        try:
            call = _calls.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if call.params.name not in self._plain:
            return None
        client = _client(headers, call.params)
        return None if client is None else PlainCall(call, client, headers.get(_AGENT, b"").decode("latin-1").strip())

    async def answer(self, plain: PlainCall) -> bytes:
        """The body of the reply. Its status is always 200: whatever went wrong is said in the body."""
        call, client = plain.call, plain.client
        exchange = RequestContext(client, caller=plain.agent)
        result = await self._calls.carry_out(call.params.name, call.params.arguments, exchange)
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


def _client(headers: Headers, params: _Params) -> Client | None:
    if type(params.meta.get(_PROGRESS, "")) not in (str, int):
        return None
    # Of all that stands there, the protocol's own keys say who calls; others may change with every call.
    envelope = {key: value for key, value in params.meta.items() if key.startswith(META_PREFIX)}
    said = _Introduction(
        params.name,
        msgspec.json.encode(envelope),
        headers.get(b"mcp-protocol-version", b""),
        headers.get(b"mcp-method", b""),
        headers.get(b"mcp-name", b""),
    )
    return _introduced(said) if sum(map(len, said)) <= MAX_INTRODUCTION_LENGTH else None


@lru_cache(maxsize=CACHE_SIZE)
def _introduced(said: _Introduction) -> Client | None:
    """Whom the SDK takes the caller for; None when it would refuse. Clients say the same with every call of a tool."""
    params = {"name": said.tool, "_meta": msgspec.json.decode(said.envelope)}
    route = _route(said, params)
    if route is None:
        return None
    try:
        validate_client_request(_METHOD, route.protocol_version, params)
        CallToolRequestParams.model_validate(params, by_name=False)
    except ValidationError:
        return None
    connection = Connection.from_envelope(route.protocol_version, route.client_info, route.client_capabilities)
    return read_client(route.protocol_version, connection.client_capabilities, connection.client_params)


def _route(said: _Introduction, params: Mapping[str, Any]) -> InboundModernRoute | None:
    sent = {"mcp-protocol-version": said.revision, "mcp-method": said.method, "mcp-name": said.named}
    headers = {name: value.decode("latin-1") for name, value in sent.items()}
    revision = headers["mcp-protocol-version"]
    if revision in HANDSHAKE_PROTOCOL_VERSIONS:
        return InboundModernRoute(protocol_version=revision, client_info=None, client_capabilities=None)
    route = classify_inbound_request({"method": _METHOD, "params": params}, headers=headers)
    return route if isinstance(route, InboundModernRoute) else None

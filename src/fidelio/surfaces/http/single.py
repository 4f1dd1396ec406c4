"""Calls that need nothing but their reply, one at a time, over the SDK's driver for single exchanges.

The SDK's transports do more than such a call needs: for handshake revisions they set up a connection with streams and tasks for
every request and take it down again, for the newer one they look through the schema of the tool and write the reply twice.
That costs more than what most calls do. What is checked on the way is the same, by the SDK's own rules, and only what passes
beyond doubt goes this way: whoever sends anything else hears of it from the transport.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import msgspec
from mcp.server.connection import Connection
from mcp.server.lowlevel.server import Server
from mcp.server.runner import modern_error_data, serve_one
from mcp.server.streamable_http import check_accept_headers
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_PARAM_HEADER_PREFIX,
    InboundModernRoute,
    classify_inbound_request,
    x_mcp_header_map,
)
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import Response

JSON: Final = "application/json"
_METHOD = "tools/call"
# Whoever nests more than this may nest deeper than the transport reads; that is for the transport to say.
MOST_BRACKETS = 150
_PARAM_HEADER = MCP_PARAM_HEADER_PREFIX.lower()


class _Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request to call a tool, as it stands in the body."""

    id: str | int
    method: str
    jsonrpc: str
    params: dict[str, Any]


_calls = msgspec.json.Decoder(_Call)


class Single(msgspec.Struct, frozen=True):
    """A call that is all there is to its request, and who makes it."""

    call: _Call
    request: Request
    client: InboundModernRoute


@dataclass(slots=True)
class _Exchange:
    """What the SDK asks of whoever brings a request. Nothing but the reply can go back."""

    transport: TransportContext
    request_id: str | int
    message_metadata: ServerMessageMetadata
    cancel_requested: anyio.Event = field(default_factory=anyio.Event)
    can_send_request: bool = False

    async def send_raw_request(
        self, method: str, _params: Mapping[str, Any] | None, _opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Has nowhere to go."""

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Has nowhere to go."""


class Singles:
    """The single calls of one server of the SDK. `lifespan` is what its lifespan has given."""

    def __init__(self, server: Server[Any]) -> None:
        self.lifespan: Any = None
        self._server = server
        self._is_plain: dict[str, bool] = {}

    def read(self, request: Request, headers: Mapping[str, str], body: bytes) -> Single | None:
        """The call that is all there is to this request; None for everything else."""
        accepts_json, _ = check_accept_headers(request)
        if headers.get("content-type") != JSON or not accepts_json:
            return None
        try:
            call = _calls.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if call.method != _METHOD or call.jsonrpc != "2.0" or body.count(b"[") + body.count(b"{") > MOST_BRACKETS:
            return None
        client = self._client(headers, call)
        if client is None or len(headers) != len(request.headers.raw):  # one that is there twice may be read in two ways
            return None
        return Single(call, request, client)

    def _client(self, headers: Mapping[str, str], call: _Call) -> InboundModernRoute | None:
        revision = headers.get("mcp-protocol-version")
        if revision in HANDSHAKE_PROTOCOL_VERSIONS:
            return InboundModernRoute(protocol_version=revision, client_info=None, client_capabilities=None)
        found = classify_inbound_request({"method": call.method, "params": call.params}, headers=headers)
        if not isinstance(found, InboundModernRoute) or any(name.startswith(_PARAM_HEADER) for name in headers):
            return None
        return found if self._takes_no_headers(call.params.get("name")) else None

    def _takes_no_headers(self, tool: object) -> bool:
        """Whether no argument of the tool has to be repeated in a header."""
        look_up = self._server.get_tool_input_schema
        if look_up is None or not isinstance(tool, str):
            return False
        if tool not in self._is_plain:
            schema = look_up(tool)
            if schema is None:
                return False
            self._is_plain[tool] = not x_mcp_header_map(schema)
        return self._is_plain[tool]

    async def answer(self, single: Single) -> Response:
        call, client = single.call, single.client
        exchange = _Exchange(
            TransportContext(kind="streamable-http", can_send_request=False, headers=single.request.headers),
            call.id,
            ServerMessageMetadata(request_context=single.request),
        )
        connection = Connection.from_envelope(client.protocol_version, client.client_info, client.client_capabilities)
        try:
            result = await serve_one(
                self._server, exchange, call.method, call.params, connection=connection, lifespan_state=self.lifespan
            )
            return _reply(call, "result", result)
        except Exception as error:  # noqa: BLE001  # the outermost boundary of a request: the client must get a reply
            problem = modern_error_data(error)
            is_newer = client.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS
            status = ERROR_CODE_HTTP_STATUS.get(problem.code, 200) if is_newer else 200
            return _reply(call, "error", problem.model_dump(mode="json", by_alias=True, exclude_none=True), status)


def _reply(call: _Call, kind: str, content: Mapping[str, Any], status: int = 200) -> Response:
    reply = msgspec.json.encode({"jsonrpc": "2.0", "id": call.id, kind: content})
    return Response(reply, status_code=status, media_type=JSON)

"""Adapter: the low-level server of the official SDK with our `Protocol` behind it, for sessions and streams.

The SDK validates requests, opens streams and sends messages to the client. The results come from the `Protocol`, as over
stdio.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.shared.exceptions import MCPError
from msgspec.structs import replace

from fidelio.processes.caller import PERSON
from fidelio.surfaces.http.plain import make_peer_lookup, read_agent_header, read_session
from fidelio.surfaces.mcp.elicitation import NoAnswer
from fidelio.surfaces.mcp.endpoint import (
    CACHE_MILLISECONDS,
    CACHE_SCOPE,
    STATELESS_REVISIONS,
    Client,
    ProtocolError,
    describe_client,
)
from fidelio.surfaces.mcp.protocol import Elicit, Protocol, RequestContext
from fidelio.toolkit import DeliveredTexts

Context = ServerRequestContext[Any, Any]
Handler = Callable[[Context, types.RequestParams], Awaitable[dict[str, Any]]]
MAX_CONNECTIONS = 256
_TOOL_METHODS, _RESOURCE_METHODS = ("tools/list", "tools/call"), ("resources/list", "resources/read")
_PROMPT_METHODS = ("prompts/list", "prompts/get")


def make_sdk_server(protocol: Protocol) -> Server[Any]:
    """Build a server of the SDK that answers with the results of the protocol."""
    schemas = {tool["name"]: tool["inputSchema"] for tool in protocol.tools.table.describe()}
    server: Server[Any] = Server(
        protocol.identity.name,
        version=protocol.identity.version,
        instructions=protocol.tools.instructions,
        cache_hints={"server/discover": CacheHint(ttl_ms=CACHE_MILLISECONDS, scope=CACHE_SCOPE)},
        get_tool_input_schema=schemas.get,
    )
    offered = _TOOL_METHODS + (_RESOURCE_METHODS if protocol.tools.resources else ())
    for method in offered + (_PROMPT_METHODS if protocol.tools.load_prompts is not None else ()):
        server.add_request_handler(method, types.RequestParams, make_handler(protocol))
    return server


def make_handler(protocol: Protocol) -> Handler:
    """Return a handler that answers requests of any method with the protocol."""

    connections = dict[str, DeliveredTexts]()

    async def handle(context: Context, _: types.RequestParams) -> dict[str, Any]:
        request = replace(_read_context(context), delivered=_find_delivered(connections, context))
        try:
            return await protocol.handle(context.method, context.params or {}, request)
        except ProtocolError as error:
            raise MCPError(code=error.code, message=str(error), data=error.data) from error

    return handle


def _read_context(context: Context) -> RequestContext:
    request = context.request
    return RequestContext(
        _read_client(context),
        _make_elicit(context) if context.session.can_send_request else None,
        progress=context.session.report_progress,
        claimed=PERSON if request is None else read_agent_header(request.headers),
        identify_peer=None if request is None else make_peer_lookup(request.scope),
        session="" if request is None else read_session(request.scope["query_string"]),
    )


def _find_delivered(connections: dict[str, DeliveredTexts], context: Context) -> DeliveredTexts | None:
    """The texts that the MCP session of a request has delivered; None for a request that belongs to no session."""
    name = context.request.headers.get(MCP_SESSION_ID_HEADER, "") if context.request is not None else ""
    if not name or context.protocol_version in STATELESS_REVISIONS:
        return None
    # The SDK has refused the ids of sessions that do not exist. A session that is forgotten gets whole texts again.
    delivered = connections.pop(name, None) or DeliveredTexts()
    if len(connections) >= MAX_CONNECTIONS:
        connections.pop(next(iter(connections)))
    connections[name] = delivered
    return delivered


def _read_client(context: Context) -> Client:
    capabilities, introduction = context.session.client_capabilities, context.session.client_params
    return describe_client(
        context.protocol_version,
        capabilities.model_dump(exclude_none=True) if capabilities is not None else None,
        introduction.client_info.model_dump() if introduction is not None else None,
    )


def _make_elicit(context: Context) -> Elicit:
    async def elicit(params: dict[str, Any]) -> object:
        try:
            result = await context.session.elicit_form(params["message"], params["requestedSchema"], context.request_id)
        except MCPError as error:
            raise NoAnswer("The client could not ask its user.") from error
        return result.model_dump(exclude_none=True)

    return elicit

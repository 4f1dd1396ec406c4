"""Adapter: serves a table of tools with the low-level server of the official SDK.

The SDK implements every revision over HTTP; tool calls and elicitation use the same code as stdio.
"""

from __future__ import annotations

from typing import Any, cast

import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from fidelio.errors import UsageProblem
from fidelio.orchestrator.blueprints.servers import AGENT_HEADER
from fidelio.surfaces.mcp.endpoint import (
    CACHE_MILLISECONDS,
    CACHE_SCOPE,
    INVALID_PARAMS,
    Client,
    Identity,
    ProtocolError,
    RequestStates,
    ServedTools,
    describe_client,
    find_resource,
)
from fidelio.surfaces.mcp.protocol import CallDispatcher, Elicit, NoAnswer, RequestContext

Context = ServerRequestContext[Any, Any]
# The SDK removes it for revisions that do not have it.
COMPLETE = {"resultType": "complete"}


def make_sdk_server(identity: Identity, tools: ServedTools, states: RequestStates) -> Server[Any]:
    """Build a server of the SDK that lists and calls the tools of an endpoint."""
    dispatcher = CallDispatcher(tools, states)

    async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return cast("types.ListToolsResult", {**COMPLETE, "tools": tools.table.describe()})

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            result = await dispatcher.call(params.name, params.arguments or {}, read_request_context(context, params))
        except ProtocolError as error:
            raise MCPError(code=error.code, message=str(error), data=error.data) from error
        return cast("types.CallToolResult", {**COMPLETE, **result})

    async def list_resources(_: Context, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        return cast(
            "types.ListResourcesResult", {**COMPLETE, "resources": [resource.describe() for resource in tools.resources]}
        )

    async def read_resource(_: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        try:
            return cast("types.ReadResourceResult", {**COMPLETE, **find_resource(tools.resources, str(params.uri)).contents()})
        except UsageProblem as error:
            raise MCPError(code=INVALID_PARAMS, message=str(error)) from error

    hint = CacheHint(ttl_ms=CACHE_MILLISECONDS, scope=CACHE_SCOPE)
    schemas = {tool["name"]: tool["inputSchema"] for tool in tools.table.describe()}
    return Server(
        identity.name,
        version=identity.version,
        instructions=tools.instructions,
        cache_hints={"tools/list": hint, "server/discover": hint, "resources/list": hint, "resources/read": hint},
        get_tool_input_schema=schemas.get,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources if tools.resources else None,
        on_read_resource=read_resource if tools.resources else None,
    )


def read_request_context(context: Context, params: types.CallToolRequestParams) -> RequestContext:
    client = find_client(context)
    return RequestContext(
        client,
        _make_elicit(context) if context.session.can_send_request else None,
        params.request_state if client.is_stateless else None,
        _dump_responses(params.input_responses),
        context.session.report_progress,
        _read_agent(context),
    )


def find_client(context: Context) -> Client:
    return read_client(context.protocol_version, context.session.client_capabilities, context.session.client_params)


def read_client(
    revision: str, capabilities: types.ClientCapabilities | None, introduction: types.InitializeRequestParams | None
) -> Client:
    elicitation = capabilities.elicitation if capabilities is not None else None
    declared = {"elicitation": elicitation.model_dump(exclude_none=True)} if elicitation is not None else None
    info = {"name": introduction.client_info.name} if introduction else None
    return describe_client(revision, declared, info)


def _read_agent(context: Context) -> str:
    """Return the run id that the client claims in a header, or an empty string."""
    return context.request.headers.get(AGENT_HEADER, "").strip() if context.request is not None else ""


def _make_elicit(context: Context) -> Elicit:
    async def elicit(params: dict[str, Any]) -> object:
        try:
            result = await context.session.elicit_form(params["message"], params["requestedSchema"], context.request_id)
        except MCPError as error:
            raise NoAnswer("The client could not ask its user.") from error
        return result.model_dump(exclude_none=True)

    return elicit


def _dump_responses(responses: types.InputResponses | None) -> dict[str, Any]:
    return {key: response.model_dump(by_alias=True, exclude_none=True) for key, response in (responses or {}).items()}

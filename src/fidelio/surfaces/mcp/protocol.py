"""JSON-RPC and MCP without any transport: a message goes in, a reply comes out.

One conversation holds what one client said about itself in a handshake. Requests that carry their own introduction are
answered on the same conversation, whatever was said before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from fidelio.errors import UsageProblem
from fidelio.surfaces.mcp.calls import METHOD, Calls, Exchange
from fidelio.surfaces.mcp.revisions import (
    CACHE_MILLISECONDS,
    CACHE_SCOPE,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    STATELESS,
    Client,
    Identity,
    ProtocolError,
    negotiate,
    read_envelope,
    render_result,
)
from fidelio.surfaces.mcp.served import ServedTools, find_resource
from fidelio.surfaces.mcp.states import RequestStates
from fidelio.toolkit import Reporter

# What writing a reply as JSON can end in when a tool replies with what is none.
UNSENDABLE: Final = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
CAPABILITIES: Mapping[str, Any] = {"tools": {"listChanged": False}}


class Peer(msgspec.Struct, frozen=True):
    """The way back to a client, as far as the transport has one."""

    request: Callable[[str, dict[str, Any]], Awaitable[object]] | None = None
    notify: Callable[[str, dict[str, Any]], Awaitable[None]] | None = None


class Protocol:
    """Answers the MCP messages of one endpoint."""

    def __init__(self, identity: Identity, tools: ServedTools, states: RequestStates) -> None:
        self.identity = identity
        self.tools = tools
        self.calls = Calls(tools, states)
        self.capabilities = (
            {**CAPABILITIES, "resources": {"subscribe": False, "listChanged": False}} if tools.resources else CAPABILITIES
        )

    def conversation(self, peer: Peer | None = None) -> Conversation:
        return Conversation(self, peer or Peer())


class Conversation:
    """Everything said with one client."""

    def __init__(self, protocol: Protocol, peer: Peer) -> None:
        self._protocol = protocol
        self._peer = peer
        self._client = Client()

    async def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a request."""
        try:
            result = await self._request(message.get("method"), message.get("params"))
        except ProtocolError as error:
            return failure(message["id"], error.code, str(error), error.data)
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    async def _request(self, method: object, params: object) -> dict[str, Any]:
        if not isinstance(method, str):
            raise ProtocolError(INVALID_REQUEST, "The method of a request is text.")
        params = {} if params is None else params
        if not isinstance(params, dict):
            raise ProtocolError(INVALID_PARAMS, "The params of a request are an object.")
        if method == "initialize":
            return self._initialize(params)
        introduced = read_envelope(params)
        client = introduced or self._client
        return render_result(await self._result(method, params, client), client, self._protocol.identity)

    async def _result(self, method: str, params: dict[str, Any], client: Client) -> dict[str, Any]:
        match method:
            case "tools/call":
                return await self._call(params, client)
            case "tools/list":
                return _cacheable({"tools": self._protocol.tools.table.describe()}, client)
            case "resources/list" | "resources/read" if self._protocol.tools.resources:
                return _cacheable(self._resources(params, listed=method == "resources/list"), client)
            case "ping" if not client.is_stateless:
                return {}
            case "server/discover" if client.is_stateless:
                about = {"supportedVersions": list(STATELESS), "capabilities": self._protocol.capabilities}
                return _cacheable({**about, "instructions": self._protocol.tools.instructions}, client)
            case _:
                raise ProtocolError(METHOD_NOT_FOUND, f"Method {method[:100]} not found.")

    def _initialize(self, params: Mapping[str, Any]) -> dict[str, Any]:
        self._client = negotiate(params)
        identity = self._protocol.identity
        return {
            "protocolVersion": self._client.revision,
            "capabilities": self._protocol.capabilities,
            "serverInfo": identity.info,
            "instructions": self._protocol.tools.instructions,
        }

    def _resources(self, params: Mapping[str, Any], *, listed: bool) -> dict[str, Any]:
        resources = self._protocol.tools.resources
        if listed:
            return {"resources": [one.describe() for one in resources]}
        try:
            return find_resource(resources, params.get("uri")).contents()
        except UsageProblem as error:
            raise ProtocolError(INVALID_PARAMS, str(error)) from error

    async def _call(self, params: Mapping[str, Any], client: Client) -> dict[str, Any]:
        name, arguments = params.get("name"), params.get("arguments")
        arguments = {} if arguments is None else arguments
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise ProtocolError(INVALID_PARAMS, "tools/call takes a name, which is text, and an object of arguments.")
        return await self._protocol.calls.carry_out(name, arguments, self._exchange(params, client))

    def _exchange(self, params: Mapping[str, Any], client: Client) -> Exchange:
        state, responses = params.get("requestState"), params.get("inputResponses")
        return Exchange(
            client,
            self._elicit if self._peer.request is not None else None,
            state if isinstance(state, str) and client.is_stateless else None,
            responses if isinstance(responses, dict) else {},
            self._reporter(params.get("_meta")),
        )

    async def _elicit(self, params: dict[str, Any]) -> object:
        assert self._peer.request is not None
        return await self._peer.request(METHOD, params)

    def _reporter(self, meta: object) -> Reporter | None:
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        notify = self._peer.notify
        if notify is None or not is_id(token):
            return None

        async def report(done: float, total: float | None, message: str | None) -> None:
            said = {"progressToken": token, "progress": done, "total": total, "message": message}
            await notify("notifications/progress", {key: value for key, value in said.items() if value is not None})

        return report


def _cacheable(result: dict[str, Any], client: Client) -> dict[str, Any]:
    return {"ttlMs": CACHE_MILLISECONDS, "cacheScope": CACHE_SCOPE, **result} if client.is_stateless else result


def is_id(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def failure(request: object, code: int, message: str, data: object = None) -> dict[str, Any]:
    error = {"code": code, "message": message} if data is None else {"code": code, "message": message, "data": data}
    return {"jsonrpc": "2.0", "id": request, "error": error}

"""JSON-RPC and the MCP handshake, without any transport: a message goes in, a reply comes out.

This is one of the two places that may catch everything: an error nobody foresaw must become a reply, or the client waits for
ever.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fidelio.surfaces.mcp.tools import Done, ToolTable

REVISIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602


@dataclass(frozen=True, slots=True)
class Identity:
    """What the server says about itself."""

    name: str
    version: str
    instructions: str


class ProtocolError(Exception):
    """A message the protocol itself refuses. Becomes a JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Protocol:
    """Answers MCP messages from one table of tools."""

    def __init__(self, identity: Identity, tools: ToolTable) -> None:
        self._identity = identity
        self._tools = tools

    async def answer(self, message: object) -> dict[str, Any] | None:
        """The reply to a request; None for a notification or a response."""
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            return failure(None, INVALID_REQUEST, "Not a JSON-RPC 2.0 message.")
        if "method" not in message or "id" not in message:
            return None
        try:
            result = await self._request(message["method"], message.get("params") or {})
        except ProtocolError as error:
            return failure(message["id"], error.code, str(error))
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    async def _request(self, method: str, params: object) -> dict[str, Any]:
        if not isinstance(params, dict):
            raise ProtocolError(INVALID_PARAMS, "The params of a request are an object.")
        match method:
            case "initialize":
                return self._initialize(params)
            case "ping":
                return {}
            case "tools/list":
                return {"tools": self._tools.describe()}
            case "tools/call":
                return (await self._call(params)).as_result()
            case _:
                raise ProtocolError(METHOD_NOT_FOUND, f"Method {method} not found.")

    def _initialize(self, params: Mapping[str, Any]) -> dict[str, Any]:
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in REVISIONS else REVISIONS[0],
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": self._identity.name, "version": self._identity.version},
            "instructions": self._identity.instructions,
        }

    async def _call(self, params: Mapping[str, Any]) -> Done:
        name, arguments = params.get("name"), params.get("arguments", {})
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise ProtocolError(INVALID_PARAMS, "tools/call takes a name and an object of arguments.")
        try:
            return await self._tools.call(name, arguments)
        except Exception as error:  # noqa: BLE001  # the outermost boundary of a request: the client must get a reply
            traceback.print_exc(file=sys.stderr)
            return Done(f"Unexpected {type(error).__name__} in {name}; details are in the server's log.", is_error=True)


def failure(request: object, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request, "error": {"code": code, "message": message}}

"""Plain JSON over HTTP: a POST with a message, a JSON reply of the `Protocol`, and no state in between.

The header MCP-Protocol-Version says how a request is read. With a handshake revision, or without the header, the client is
known by its revision only, because it introduced itself in an earlier request. From 2026-07-28 on every request introduces
its client, its headers repeat what routes it, and a JSON-RPC error has an HTTP status of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_plus

import msgspec
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_PROTOCOL_VERSION_HEADER,
    InboundLadderRejection,
    classify_inbound_request,
    find_duplicated_routing_header,
    unsupported_protocol_version_rejection,
    validate_mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types import DEFAULT_NEGOTIATED_VERSION, HEADER_MISMATCH, LOG_LEVEL_META_KEY
from starlette.datastructures import Headers
from starlette.types import Scope

from fidelio.orchestrator.blueprints.servers import AGENT_HEADER
from fidelio.processes.caller import PERSON, Caller, combine_callers, read_claim
from fidelio.processes.peer import identify_peer
from fidelio.surfaces.http.connections import PeerAddress
from fidelio.surfaces.mcp import endpoint
from fidelio.surfaces.mcp.endpoint import (
    DECODING_ERRORS,
    HANDSHAKE_REVISIONS,
    STATELESS_REVISIONS,
    Client,
    ProtocolError,
    encode_message,
    error_response,
    is_request_id,
)
from fidelio.surfaces.mcp.protocol import Protocol, RequestContext
from fidelio.toolkit import IdentifyPeer

_JSON: Final = "application/json"
_JSON_RANGES: Final = frozenset({_JSON, "application/*", "*/*"})
# Capabilities of a handshake that let the server send requests in the middle of a call: they need a session and a stream.
_BACK_CHANNELS: Final = frozenset({"elicitation", "sampling", "roots"})
# Keys of `_meta` that ask for notifications in the middle of a call: they need a stream.
_WANTS_NOTIFICATIONS: Final = ("progressToken", LOG_LEVEL_META_KEY)
# How long the client of a connection is known. A program that hands an open connection to another one is rare.
PEER_SECONDS = 1.0


class HttpReply(NamedTuple):
    """Status and JSON body of a reply. The body is empty for a message that gets no response."""

    status: int
    body: bytes = b""


class PlainExchanges:
    """Answers the plain requests of an endpoint."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        schemas = {tool["name"]: tool["inputSchema"] for tool in protocol.tools.table.describe()}
        # The tools whose arguments must be repeated in headers. Looking through a schema costs more than most calls.
        self._mirrored = {name: schema for name, schema in schemas.items() if x_mcp_header_map(schema)}

    async def answer(
        self, headers: Headers, body: bytes, identify_peer: IdentifyPeer | None = None, *, session: str = ""
    ) -> HttpReply | None:
        """Return the reply to a POST; None if the client needs a stream, which the SDK serves.

        `session` is the session that the query of the address names.
        """
        is_handshake = _read_revision(headers) in HANDSHAKE_REVISIONS
        try:
            _check_media_types(headers)
            message = _read_message(body)
            if _needs_stream(message, is_handshake=is_handshake):
                return None
            if "id" not in message or "method" not in message:
                return _accept(message, headers, is_handshake=is_handshake)
        except _Refusal as refusal:
            return refusal.reply
        open_request = self._open_handshake_request if is_handshake else self._open_stateless_request
        response = await self._protocol.answer(message, partial(open_request, headers, identify_peer, session))
        # Handshake revisions report the errors of the protocol in the body only.
        code = response["error"]["code"] if "error" in response and not is_handshake else 0
        return HttpReply(ERROR_CODE_HTTP_STATUS.get(code, HTTPStatus.OK), encode_message(response))

    def _open_handshake_request(
        self, headers: Headers, identify_peer: IdentifyPeer | None, session: str, method: str, params: Mapping[str, Any]
    ) -> RequestContext:
        client = endpoint.negotiate(params) if method == "initialize" else Client(_read_revision(headers))
        return RequestContext(client, claimed=read_agent_header(headers), identify_peer=identify_peer, session=session)

    def _open_stateless_request(
        self, headers: Headers, identify_peer: IdentifyPeer | None, session: str, method: str, params: Mapping[str, Any]
    ) -> RequestContext:
        """Identify the client by the envelope of the request; raise `ProtocolError` if headers and body do not agree."""
        duplicate = find_duplicated_routing_header(headers.items())
        if duplicate is not None:
            raise ProtocolError(HEADER_MISMATCH, f"The header {duplicate} appears more than once.")
        body = {"method": method, "params": params}
        _raise_rejection(classify_inbound_request(body, headers=headers, supported_modern_versions=STATELESS_REVISIONS))
        schema = self._mirrored.get(str(params.get("name"))) if method == "tools/call" else None
        arguments = params.get("arguments")
        if schema is not None:
            _raise_rejection(validate_mcp_param_headers(schema, arguments if isinstance(arguments, dict) else {}, headers))
        client = endpoint.read_envelope(params) or Client()
        return RequestContext(client, claimed=read_agent_header(headers), identify_peer=identify_peer, session=session)


class _Refusal(Exception):
    """A POST that is not a message of the protocol. It gets an error without the id of a request."""

    def __init__(self, status: int, code: int, sentence: str, data: object = None) -> None:
        super().__init__(sentence)
        self.reply = HttpReply(status, encode_message(error_response(None, code, sentence, data)))


def _read_revision(headers: Headers) -> str:
    return headers.get(MCP_PROTOCOL_VERSION_HEADER, DEFAULT_NEGOTIATED_VERSION)


def read_agent_header(headers: Headers) -> Caller:
    """Return the agent that the client says it is."""
    claim = headers.get(AGENT_HEADER)
    return PERSON if claim is None else read_claim(claim.strip())


def read_session(query: bytes) -> str:
    """The session that the query of an address names, as in `/mcp/sandbox?session=NAME`."""
    fields = (field.partition("=") for field in query.decode("ascii", "replace").split("&"))
    return next((unquote_plus(value) for name, _, value in fields if name == "session"), "")


def make_peer_lookup(scope: Scope) -> IdentifyPeer:
    """Return a function that identifies the process at the other end of the connection of a request."""
    peer, server = scope.get("client"), scope.get("server")
    return partial(asyncio.to_thread, identify_peer, peer and (peer[0], peer[1]), server and (server[0], server[1]))


async def identify_client(scope: Scope, clock: Callable[[], float] = time.monotonic, *, seconds: float | None = None) -> Caller:
    """Identify the process at the other end of a connection, at most once a second: a lookup takes about 8 ms of CPU time.

    `seconds`: how old the finding may be instead.
    """
    peer, lookup = scope.get("client"), make_peer_lookup(scope)
    if not isinstance(peer, PeerAddress):
        return await lookup()
    now = clock()
    if peer.found is None or now - peer.found[0] >= (PEER_SECONDS if seconds is None else seconds):
        peer.found = now, await lookup()
    return peer.found[1]


async def identify_sender(scope: Scope, *, seconds: float | None = None) -> Caller:
    """Identify who sends a request that counts for a person, by the process at the other end and the header of an agent.

    A process of this machine that cannot be looked at may be an agent that hides, so it counts as one: see `identify_peer`.
    """
    return combine_callers(read_agent_header(Headers(scope=scope)), await identify_client(scope, seconds=seconds))


def _check_media_types(headers: Headers) -> None:
    if _JSON_RANGES.isdisjoint(_list_media_types(headers.get("accept", ""))):
        raise _Refusal(HTTPStatus.NOT_ACCEPTABLE, endpoint.INVALID_REQUEST, f"The header Accept must list {_JSON}.")
    if _list_media_types(headers.get("content-type", "")) != [_JSON]:
        sentence = f"The header Content-Type must be {_JSON}."
        raise _Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, endpoint.INVALID_REQUEST, sentence)


def _list_media_types(header: str) -> list[str]:
    return [part.partition(";")[0].strip().lower() for part in header.split(",")]


def _read_message(body: bytes) -> dict[str, Any]:
    try:
        message = msgspec.json.decode(body)
    except DECODING_ERRORS:
        sentence = "The body is not valid JSON, or a number or string in it is out of range."
        raise _Refusal(HTTPStatus.BAD_REQUEST, endpoint.PARSE_ERROR, sentence) from None
    if not isinstance(message, dict) or not _is_message(message):
        raise _Refusal(HTTPStatus.BAD_REQUEST, endpoint.INVALID_REQUEST, "The body must be a single JSON-RPC 2.0 message.")
    return message


def _is_message(message: Mapping[str, Any]) -> bool:
    is_valid = message.get("jsonrpc") == "2.0" and ("id" not in message or is_request_id(message["id"]))
    return is_valid and (isinstance(message["method"], str) if "method" in message else "id" in message)


def _needs_stream(message: Mapping[str, Any], *, is_handshake: bool) -> bool:
    params = message.get("params")
    declared = params.get("capabilities" if is_handshake else "_meta") if isinstance(params, dict) else None
    if not isinstance(declared, dict):
        return False
    if is_handshake:
        return message.get("method") == "initialize" and not _BACK_CHANNELS.isdisjoint(declared)
    return any(declared.get(key) is not None for key in _WANTS_NOTIFICATIONS)


def _accept(message: Mapping[str, Any], headers: Headers, *, is_handshake: bool) -> HttpReply:
    """Accept a notification or a response, which nothing waits for. The newest revision has no responses of clients."""
    if not is_handshake:
        unsupported = unsupported_protocol_version_rejection(_read_revision(headers), STATELESS_REVISIONS)
        if unsupported is not None:
            raise _Refusal(HTTPStatus.BAD_REQUEST, unsupported.code, unsupported.message, unsupported.data)
        if "method" not in message:
            raise _Refusal(HTTPStatus.BAD_REQUEST, endpoint.INVALID_REQUEST, "The server has sent no request.")
    return HttpReply(HTTPStatus.ACCEPTED)


def _raise_rejection(verdict: object) -> None:
    if isinstance(verdict, InboundLadderRejection):
        raise ProtocolError(verdict.code, verdict.message, verdict.data)

"""Model of an MCP endpoint: protocol revisions, client and server identity, tools, resources and request states.

Up to 2025-11-25 a client sends its revision and capabilities once, in a handshake. From 2026-07-28 on there is no handshake:
every request carries them in its `_meta`, and every result names its type.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from fidelio.clock import Clock, now_ms
from fidelio.errors import PROGRAM, BadToken, ExpiredToken, UsageProblem, render
from fidelio.processes.caller import PERSON, Caller, combine_callers
from fidelio.tokens.keyring import KeyRing
from fidelio.tokens.seal import Seal
from fidelio.toolkit import Ask, CallContext, IdentifyPeer, Reporter, ToolTable

HANDSHAKE_REVISIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
STATELESS_REVISIONS = ("2026-07-28",)
# The first revisions with form elicitation, and with titles for the options of a form.
_FIRST_WITH_FORMS, _FIRST_WITH_TITLES = "2025-06-18", "2025-11-25"

META_PREFIX = "io.modelcontextprotocol/"
VERSION_KEY = f"{META_PREFIX}protocolVersion"
CAPABILITIES_KEY = f"{META_PREFIX}clientCapabilities"
CLIENT_KEY = f"{META_PREFIX}clientInfo"
SERVER_KEY = f"{META_PREFIX}serverInfo"

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
INTERNAL_ERROR, UNSUPPORTED_REVISION = -32603, -32022

# Tools and server information do not change while the server runs and are the same for every client.
CACHE_MILLISECONDS: Final = 300_000
CACHE_SCOPE: Final = "public"

# Raised by msgspec when a message is not valid JSON, and when a reply of a tool is not representable as JSON.
DECODING_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_ENCODING_ERRORS: Final = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)

SCHEMAS_URI = "workflow-server://schemas"
JSON_TYPE = "application/json"
SEAL_PURPOSE = "request-state"
STATE_LIFETIME_MS = 24 * 60 * 60 * 1000


def is_request_id(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def error_response(request: object, code: int, message: str, data: object = None) -> dict[str, Any]:
    error = {"code": code, "message": message} if data is None else {"code": code, "message": message, "data": data}
    return {"jsonrpc": "2.0", "id": request, "error": error}


def encode_message(message: dict[str, Any] | list[dict[str, Any]]) -> bytes:
    """Encode a message; an error response replaces a reply of a tool that JSON cannot represent."""
    try:
        return msgspec.json.encode(message)
    except _ENCODING_ERRORS as error:
        request = message.get("id") if isinstance(message, dict) else None
        sentence = f"The reply cannot be sent: {type(error).__name__}."
        return msgspec.json.encode(error_response(request, INTERNAL_ERROR, sentence))


class ProtocolError(Exception):
    """A message that violates the protocol. Becomes a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class Identity(msgspec.Struct, frozen=True):
    """Name and version of the server, sent as `serverInfo`."""

    name: str
    version: str

    @property
    def info(self) -> dict[str, Any]:
        return {"name": self.name, "version": self.version}


class Client(msgspec.Struct, frozen=True):
    """A client's revision, name and capabilities. The defaults apply until it has introduced itself."""

    revision: str = HANDSHAKE_REVISIONS[-1]
    name: str = ""
    can_elicit: bool = False

    @property
    def is_stateless(self) -> bool:
        return self.revision in STATELESS_REVISIONS

    @property
    def supports_titles(self) -> bool:
        return self.revision >= _FIRST_WITH_TITLES

    @property
    def user(self) -> str:
        """The person recorded for an elicited answer. Only the client's name is known, not the person's."""
        return f"user of {self.name}" if self.name else "user of an unnamed client"


def describe_client(revision: str, capabilities: object, info: object) -> Client:
    """Parse what a client declares. The input is untrusted: values of the wrong type count as absent."""
    name = info.get("name") if isinstance(info, Mapping) else None
    return Client(
        revision, name[:100] if isinstance(name, str) else "", revision >= _FIRST_WITH_FORMS and _supports_forms(capabilities)
    )


def _supports_forms(capabilities: object) -> bool:
    declared = capabilities.get("elicitation") if isinstance(capabilities, Mapping) else None
    # An empty object means form mode: revisions before 2025-11-25 had no other mode.
    return isinstance(declared, Mapping) and (not declared or declared.get("form") is not None)


def negotiate(params: Mapping[str, Any]) -> Client:
    """Return the client of a handshake, at the requested revision if it is supported, else at our newest."""
    requested = params.get("protocolVersion")
    if not isinstance(requested, str):
        raise ProtocolError(INVALID_PARAMS, "initialize needs protocolVersion, a string.")
    revision = requested if requested in HANDSHAKE_REVISIONS else HANDSHAKE_REVISIONS[0]
    return describe_client(revision, params.get("capabilities"), params.get("clientInfo"))


def read_envelope(params: Mapping[str, Any]) -> Client | None:
    """Return the client of a request without handshake; None if the request belongs to a handshake."""
    meta = params.get("_meta")
    if not isinstance(meta, Mapping) or VERSION_KEY not in meta:
        return None
    revision = meta[VERSION_KEY]
    if not isinstance(revision, str) or not isinstance(meta.get(CAPABILITIES_KEY), Mapping):
        raise ProtocolError(INVALID_PARAMS, f"params._meta needs {VERSION_KEY}, a string, and {CAPABILITIES_KEY}, an object.")
    if revision not in STATELESS_REVISIONS:
        data = {"supported": list(STATELESS_REVISIONS), "requested": revision[:100]}
        raise ProtocolError(UNSUPPORTED_REVISION, "Unsupported protocol version", data)
    return describe_client(revision, meta[CAPABILITIES_KEY], meta.get(CLIENT_KEY))


def render_result(result: Mapping[str, Any], client: Client, identity: Identity) -> dict[str, Any]:
    """Return the result in the form of the client's revision: newer ones carry a result type and `serverInfo`."""
    if not client.is_stateless:
        return dict(result)
    meta = {**result.get("_meta", {}), SERVER_KEY: identity.info}
    return {"resultType": "complete", **result, "_meta": meta}


class McpResource(msgspec.Struct, frozen=True):
    """A resource of MCP. Its text is generated when a client reads it."""

    uri: str
    name: str
    description: str
    text: Callable[[], str]

    def describe(self) -> dict[str, Any]:
        return {"uri": self.uri, "name": self.name, "description": self.description, "mimeType": JSON_TYPE}

    def contents(self) -> dict[str, Any]:
        return {"contents": [{"uri": self.uri, "mimeType": JSON_TYPE, "text": self.text()}]}


def find_resource(resources: Iterable[McpResource], uri: object) -> McpResource:
    resources_by_uri = {resource.uri: resource for resource in resources}
    resource = resources_by_uri.get(uri) if isinstance(uri, str) else None
    if resource is None:
        raise UsageProblem(
            f"Resource {str(uri)[:200]} not found.", remedy=f"The resources are: {', '.join(resources_by_uri) or 'none'}."
        )
    return resource


class Prompts(Protocol):
    """The prompts of an endpoint. Raises `UsageProblem` for an unknown prompt."""

    async def list(self, cursor: object = None) -> dict[str, Any]: ...
    async def get(self, name: object, arguments: object) -> dict[str, Any]: ...


class ServedTools:
    """The tools, resources and prompts of an endpoint. `instructions` explain to a client what the tools are for.

    `program` is the start of the commands in replies, such as `fidelio --home DIR`. `ask` is the port to the inbox. `own` is
    who runs the server, by the signs of its process. `load_prompts` is called by the first request for prompts.
    """

    __slots__ = ("_ask", "_render", "instructions", "load_prompts", "own", "resources", "table")

    def __init__(
        self,
        table: ToolTable,
        *,
        instructions: str = "",
        resources: tuple[McpResource, ...] = (),
        program: str = PROGRAM,
        ask: Ask | None = None,
        own: Caller = PERSON,
        load_prompts: Callable[[], Prompts] | None = None,
    ) -> None:
        self.table = table
        self.load_prompts = load_prompts
        self.own = own
        self.instructions = instructions
        self.resources = resources
        self._ask = ask
        self._render = partial(render, program=program)

    def make_context(
        self, reporter: Reporter | None = None, claimed: Caller = PERSON, identify_peer: IdentifyPeer | None = None
    ) -> CallContext:
        """Build the context of a call. The handler gets the same context when it runs again after an answer."""
        return CallContext(self._render, combine_callers(self.own, claimed), reporter, self._ask, identify_peer)


def list_schema_resources() -> tuple[McpResource, ...]:
    """List the JSON Schemas of workflow files and of a session's state, generated from the models that parse them."""
    descriptions = {
        "workflow": "What a workflow file holds.",
        "activity": "What an activity file holds.",
        "condition": "How a condition is written.",
        "skill": "What a skill file holds.",
        "state": "What the record of a session holds.",
    }
    each = (
        McpResource(f"{SCHEMAS_URI}/{name}", f"{name}-schema", text, partial(_render_schemas, name))
        for name, text in descriptions.items()
    )
    return (
        McpResource(SCHEMAS_URI, "schemas", "All five schemas in one object.", partial(_render_schemas, *descriptions)),
        *each,
    )


def _render_schemas(*names: str) -> str:
    from fidelio.surfaces.mcp.definition_schemas import load_schema  # noqa: PLC0415  # brings pydantic and the engine, 140 ms

    schema = load_schema(names[0]) if len(names) == 1 else {name: load_schema(name) for name in names}
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()


class SentRequest(NamedTuple):
    """A request that was sent to the person at a client, and how long ago. The default is none."""

    id: str = ""
    ago_ms: int = 0


class RequestStates:
    """Seals and verifies the `requestState` of a call that waits for a person.

    From 2026-07-28 on the server keeps nothing between the call that asks and the call that brings the answer. The state that
    the client sends back is therefore sealed, bound to the tool and its arguments, and refused if it is old or changed. The
    keys are opened by the first call that needs them.
    """

    def __init__(self, open_keys: Callable[[], KeyRing], *, clock: Clock = now_ms) -> None:
        self._open_keys = open_keys
        self._clock = clock
        self._cached_seal: Seal | None = None

    def write(self, request_id: str, tool: str, arguments: Mapping[str, Any]) -> str:
        now = self._clock()
        payload = {"req": request_id, "call": _digest_call(tool, arguments), "at": now}
        return self._load_seal().seal(payload, expires=now + STATE_LIFETIME_MS)

    def read(self, state: str, tool: str, arguments: Mapping[str, Any]) -> SentRequest:
        """Return the request that was sent; raise `UsageProblem` if the state is not genuine or belongs to another call."""
        try:
            payload = self._load_seal().open(state, now=self._clock())
        except (BadToken, ExpiredToken) as error:
            raise UsageProblem(
                "This requestState is too old, was changed, or was made by another server; nothing was recorded.",
                remedy="Call the tool again without requestState and inputResponses.",
            ) from error
        if payload["call"] != _digest_call(tool, arguments):
            raise UsageProblem(
                "This requestState belongs to another call; nothing was recorded.",
                remedy="Repeat the call with the tool and the arguments it was made with.",
            )
        # States of earlier versions have no time.
        return SentRequest(str(payload["req"]), self._clock() - int(payload.get("at", 0)))

    def _load_seal(self) -> Seal:
        if self._cached_seal is None:
            self._cached_seal = Seal(self._open_keys(), SEAL_PURPOSE)
        return self._cached_seal


def _digest_call(tool: str, arguments: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode([tool, arguments], order="deterministic")).hexdigest()[:32]

"""What one MCP endpoint serves: revisions of the protocol, the client's description of itself, tools and resources.

Up to 2025-11-25 a client introduces itself once, in a handshake. From 2026-07-28 on there is no handshake: every request
carries revision and capabilities in its `_meta`, and every result names its type.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fidelio.clock import Clock, now_ms
from fidelio.errors import BadToken, ExpiredToken, UsageProblem
from fidelio.surfaces.commands import PROGRAM, as_typed
from fidelio.toolkit import Ask, CallContext, Render, Reporter, ToolTable

if TYPE_CHECKING:
    from fidelio.tokens.keyring import KeyRing
    from fidelio.tokens.seal import Seal


HANDSHAKE_REVISIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
STATELESS_REVISIONS = ("2026-07-28",)
# The first revisions in which a server may ask the client's user, and in which an answer of the list may have a title.
_ASKS, _TITLES = "2025-06-18", "2025-11-25"

META_PREFIX = "io.modelcontextprotocol/"
VERSION_KEY = f"{META_PREFIX}protocolVersion"
CAPABILITIES_KEY = f"{META_PREFIX}clientCapabilities"
CLIENT_KEY = f"{META_PREFIX}clientInfo"
SERVER_KEY = f"{META_PREFIX}serverInfo"

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
INTERNAL_ERROR, UNSUPPORTED_REVISION = -32603, -32022

# Neither the tools nor what the server says about itself change while it runs, and neither depends on who asks.
CACHE_MILLISECONDS: Final = 300_000
CACHE_SCOPE: Final = "public"


class ProtocolError(Exception):
    """A message the protocol itself refuses. Becomes a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class Identity(msgspec.Struct, frozen=True):
    """What the server says about itself."""

    name: str
    version: str

    @property
    def info(self) -> dict[str, Any]:
        return {"name": self.name, "version": self.version}


class Client(msgspec.Struct, frozen=True):
    """Whom we talk to, and what it can do. The defaults are those of a client that has not said anything yet."""

    revision: str = HANDSHAKE_REVISIONS[-1]
    name: str = ""
    can_ask: bool = False

    @property
    def is_stateless(self) -> bool:
        return self.revision in STATELESS_REVISIONS

    @property
    def knows_titles(self) -> bool:
        return self.revision >= _TITLES

    @property
    def user(self) -> str:
        """Who gives an answer that this client brings: we know the client, and that it asked its user."""
        return f"user of {self.name}" if self.name else "user of an unnamed client"


def describe_client(revision: str, capabilities: object, info: object) -> Client:
    """What a client declares is a claim of a stranger: whatever has the wrong shape counts as absent."""
    name = info.get("name") if isinstance(info, Mapping) else None
    return Client(revision, name[:100] if isinstance(name, str) else "", revision >= _ASKS and _has_forms(capabilities))


def _has_forms(capabilities: object) -> bool:
    declared = capabilities.get("elicitation") if isinstance(capabilities, Mapping) else None
    # Before there were other kinds, an empty object meant forms, and it still does.
    return isinstance(declared, Mapping) and (not declared or declared.get("form") is not None)


def negotiate(params: Mapping[str, Any]) -> Client:
    """The client of a handshake, at the revision it asked for, or at our newest when we do not know that one."""
    asked = params.get("protocolVersion")
    if not isinstance(asked, str):
        raise ProtocolError(INVALID_PARAMS, "initialize takes a protocolVersion, which is text.")
    revision = asked if asked in HANDSHAKE_REVISIONS else HANDSHAKE_REVISIONS[0]
    return describe_client(revision, params.get("capabilities"), params.get("clientInfo"))


def read_envelope(params: Mapping[str, Any]) -> Client | None:
    """The client of a request without handshake; None when the request belongs to a handshake."""
    meta = params.get("_meta")
    if not isinstance(meta, Mapping) or VERSION_KEY not in meta:
        return None
    revision = meta[VERSION_KEY]
    if not isinstance(revision, str) or not isinstance(meta.get(CAPABILITIES_KEY), Mapping):
        raise ProtocolError(INVALID_PARAMS, f"params._meta takes {VERSION_KEY}, a text, and {CAPABILITIES_KEY}, an object.")
    if revision not in STATELESS_REVISIONS:
        data = {"supported": list(STATELESS_REVISIONS), "requested": revision[:100]}
        raise ProtocolError(UNSUPPORTED_REVISION, "Unsupported protocol version", data)
    return describe_client(revision, meta[CAPABILITIES_KEY], meta.get(CLIENT_KEY))


def render_result(result: Mapping[str, Any], client: Client, identity: Identity) -> dict[str, Any]:
    """The result in the shape of the client's revision: newer ones carry a result type and the server's identity."""
    if not client.is_stateless:
        return dict(result)
    meta = {**result.get("_meta", {}), SERVER_KEY: identity.info}
    return {"resultType": "complete", **result, "_meta": meta}


SCHEMAS_URI = "workflow-server://schemas"
JSON_TYPE = "application/json"


class McpResource(msgspec.Struct, frozen=True):
    """A resource of the protocol. Its text is made when a client reads it."""

    uri: str
    name: str
    description: str
    text: Callable[[], str]

    def describe(self) -> dict[str, Any]:
        return {"uri": self.uri, "name": self.name, "description": self.description, "mimeType": JSON_TYPE}

    def contents(self) -> dict[str, Any]:
        return {"contents": [{"uri": self.uri, "mimeType": JSON_TYPE, "text": self.text()}]}


def find_resource(resources: Iterable[McpResource], uri: object) -> McpResource:
    known = {resource.uri: resource for resource in resources}
    found = known.get(uri) if isinstance(uri, str) else None
    if found is None:
        raise UsageProblem(f"Resource {str(uri)[:200]} not found.", remedy=f"The resources are: {', '.join(known) or 'none'}.")
    return found


class ServedTools:
    """The tools of one endpoint. `instructions` tell a client what they are for.

    `program` is how a person begins a command that replies name. `ask` is the port to the inbox.
    """

    __slots__ = ("_ask", "_render", "instructions", "resources", "table")

    def __init__(
        self,
        table: ToolTable,
        *,
        instructions: str = "",
        resources: tuple[McpResource, ...] = (),
        program: str = PROGRAM,
        ask: Ask | None = None,
    ) -> None:
        self.table = table
        self.instructions = instructions
        self.resources = resources
        self._ask = ask
        self._render = _renderer(program)

    def context(self, reporter: Reporter | None = None, caller: str = "") -> CallContext:
        """The context of one call, shared by every time that its handler is called."""
        return CallContext(self._render, caller, reporter, self._ask)


def _renderer(program: str) -> Render:
    """Renders commands for the home that the server works in; whoever words a reply names the command alone."""
    return str if program == PROGRAM else lambda text: as_typed(str(text), program)


def list_schema_resources() -> tuple[McpResource, ...]:
    """The JSON Schemas of workflow files and of a session's state, made from the models that read the files."""
    about = {
        "workflow": "What a workflow file holds.",
        "activity": "What an activity file holds.",
        "condition": "How a condition is written.",
        "skill": "What a skill file holds.",
        "state": "What the record of a session holds.",
    }
    each = (McpResource(f"{SCHEMAS_URI}/{name}", f"{name}-schema", text, partial(_text, name)) for name, text in about.items())
    return (McpResource(SCHEMAS_URI, "schemas", "All five schemas in one object.", partial(_text, *about)), *each)


def _text(*names: str) -> str:
    schema = _schema(names[0]) if len(names) == 1 else {name: _schema(name) for name in names}
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()


def _schema(name: str) -> dict[str, Any]:
    from pydantic import TypeAdapter  # noqa: PLC0415  # only when somebody asks for a schema

    from fidelio.definitions import models  # noqa: PLC0415  # the same
    from fidelio.definitions.models.skill import Skill  # noqa: PLC0415  # the same
    from fidelio.engine.state import Record  # noqa: PLC0415  # the same

    if name == "state":
        return msgspec.json.schema(Record)
    model: Any = {
        "workflow": models.Workflow,
        "activity": models.Activity,
        "condition": models.Condition,
        "skill": Skill,
    }[name]
    return TypeAdapter(model).json_schema(by_alias=True)


SEAL_PURPOSE = "request-state"
STATE_LIFETIME_MS = 24 * 60 * 60 * 1000


class RequestStates:
    """Makes and checks states. The keys are opened by the first call that needs them."""

    def __init__(self, open_keys: Callable[[], KeyRing], *, clock: Clock = now_ms) -> None:
        self._open_keys = open_keys
        self._clock = clock
        self._opened: Seal | None = None

    def write(self, request_id: str, tool: str, arguments: Mapping[str, Any]) -> str:
        payload = {"req": request_id, "call": _digest(tool, arguments)}
        return self._seal().seal(payload, expires=self._clock() + STATE_LIFETIME_MS)

    def read(self, state: str, tool: str, arguments: Mapping[str, Any]) -> str:
        """The request id; a `UsageProblem` that says what to do when the state is not genuine or of another call."""
        try:
            payload = self._seal().open(state, now=self._clock())
        except (BadToken, ExpiredToken) as error:
            raise UsageProblem(
                "This requestState is too old, was changed, or was made by another server; nothing was recorded.",
                remedy="Call the tool again without requestState and inputResponses.",
            ) from error
        if payload["call"] != _digest(tool, arguments):
            raise UsageProblem(
                "This requestState belongs to another call; nothing was recorded.",
                remedy="Repeat the call with the tool and the arguments it was made with.",
            )
        return str(payload["req"])

    def _seal(self) -> Seal:
        if self._opened is None:
            from fidelio.tokens.seal import Seal  # noqa: PLC0415  # few calls ask, and none before the first reply

            self._opened = Seal(self._open_keys(), SEAL_PURPOSE)
        return self._opened


def _digest(tool: str, arguments: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode([tool, arguments], order="deterministic")).hexdigest()[:32]

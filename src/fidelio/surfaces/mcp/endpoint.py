"""What one MCP endpoint serves: revisions of the protocol, the client's description of itself, tools and resources.

Up to 2025-11-25 a client introduces itself once, in a handshake. From 2026-07-28 on there is no handshake: every request
carries revision and capabilities in its `_meta`, and every result names its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from fidelio.errors import UsageProblem
from fidelio.surfaces.commands import PROGRAM, substitute_program
from fidelio.toolkit import Ask, CallContext, Render, Reporter, ToolTable

HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
STATELESS = ("2026-07-28",)
# The first revisions in which a server may ask the client's user, and in which an answer of the list may have a title.
_ASKS, _TITLES = "2025-06-18", "2025-11-25"

PREFIX = "io.modelcontextprotocol/"
VERSION_KEY = f"{PREFIX}protocolVersion"
CAPABILITIES_KEY = f"{PREFIX}clientCapabilities"
CLIENT_KEY = f"{PREFIX}clientInfo"
SERVER_KEY = f"{PREFIX}serverInfo"

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

    revision: str = HANDSHAKE[-1]
    name: str = ""
    can_ask: bool = False

    @property
    def is_stateless(self) -> bool:
        return self.revision in STATELESS

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
    revision = asked if asked in HANDSHAKE else HANDSHAKE[0]
    return describe_client(revision, params.get("capabilities"), params.get("clientInfo"))


def read_envelope(params: Mapping[str, Any]) -> Client | None:
    """The client of a request without handshake; None when the request belongs to a handshake."""
    meta = params.get("_meta")
    if not isinstance(meta, Mapping) or VERSION_KEY not in meta:
        return None
    revision = meta[VERSION_KEY]
    if not isinstance(revision, str) or not isinstance(meta.get(CAPABILITIES_KEY), Mapping):
        raise ProtocolError(INVALID_PARAMS, f"params._meta takes {VERSION_KEY}, a text, and {CAPABILITIES_KEY}, an object.")
    if revision not in STATELESS:
        data = {"supported": list(STATELESS), "requested": revision[:100]}
        raise ProtocolError(UNSUPPORTED_REVISION, "Unsupported protocol version", data)
    return describe_client(revision, meta[CAPABILITIES_KEY], meta.get(CLIENT_KEY))


def render_result(result: Mapping[str, Any], client: Client, identity: Identity) -> dict[str, Any]:
    """The result in the shape of the client's revision: newer ones carry a result type and the server's identity."""
    if not client.is_stateless:
        return dict(result)
    meta = {**result.get("_meta", {}), SERVER_KEY: identity.info}
    return {"resultType": "complete", **result, "_meta": meta}


ROOT = "workflow-server://schemas"
JSON = "application/json"


class Resource(msgspec.Struct, frozen=True):
    """A resource of the protocol. Its text is made when a client reads it."""

    uri: str
    name: str
    description: str
    text: Callable[[], str]

    def describe(self) -> dict[str, Any]:
        return {"uri": self.uri, "name": self.name, "description": self.description, "mimeType": JSON}

    def contents(self) -> dict[str, Any]:
        return {"contents": [{"uri": self.uri, "mimeType": JSON, "text": self.text()}]}


def find_resource(resources: Iterable[Resource], uri: object) -> Resource:
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
        resources: tuple[Resource, ...] = (),
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
    return str if program == PROGRAM else lambda text: substitute_program(str(text), program)


def schema_resources() -> tuple[Resource, ...]:
    """The JSON Schemas of workflow files and of a session's state, made from the models that read the files."""
    about = {
        "workflow": "What a workflow file holds.",
        "activity": "What an activity file holds.",
        "condition": "How a condition is written.",
        "skill": "What a skill file holds.",
        "state": "What the record of a session holds.",
    }
    each = (Resource(f"{ROOT}/{name}", f"{name}-schema", text, partial(_text, name)) for name, text in about.items())
    return (Resource(ROOT, "schemas", "All five schemas in one object.", partial(_text, *about)), *each)


def _text(*names: str) -> str:
    schema = _schema(names[0]) if len(names) == 1 else {name: _schema(name) for name in names}
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()


def _schema(name: str) -> dict[str, Any]:
    from pydantic import TypeAdapter  # noqa: PLC0415  # only when somebody asks for a schema

    from fidelio.definitions import models  # noqa: PLC0415  # the same
    from fidelio.definitions.models.components import Skill  # noqa: PLC0415  # the same
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

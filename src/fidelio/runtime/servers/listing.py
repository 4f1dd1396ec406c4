"""The tools of MCP servers as a session has them: parsed from what a server lists, bounded, and stored with the session.

The list is stored at the first wake and used from then on: vendors cache a conversation by its beginning, and a server that
changes a description later changes nothing that the model reads. What a server lists is hostile text of any size.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from fidelio.ledger.long_text import sanitize_text
from fidelio.ledger.model import PutDocument
from fidelio.runtime.agents.definition import ServerDefinition
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.validation import find_schema_problem

MAX_TOOLS = 256
MAX_DESCRIPTION = 1_000
MAX_SCHEMA = 20_000
# The longest name of a tool that all vendors take.
MAX_NAME = 64
PREFIX = "mcp__"
_PATH = "mcp-tools"
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
# Vendors refuse these at the top of a schema.
_NOT_DECLARED = ("anyOf", "oneOf", "allOf", "not", "$ref", "enum", "const")


class ListedTool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool of a server. `name` is what the model calls, `tool` what the server calls it.

    `is_declarable`: every vendor takes its schema. It is stored, because the declared tools must not change.
    """

    name: str
    tool: str
    description: str
    input_schema: dict[str, Any] = {}
    is_declarable: bool = False

    @property
    def characters(self) -> int:
        return len(self.name) + len(self.description) + len(msgspec.json.encode(self.input_schema))


class ServerListing(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tools of a server, or why there are none. `origin` is a digest of what the server is started with.

    `is_late`: they were listed after the first wake, so they are not declared. `left_out` counts tools that cannot be used.
    """

    origin: str
    tools: tuple[ListedTool, ...] = ()
    left_out: int = 0
    problem: str = ""
    failed_at: int = 0
    is_late: bool = False


class SessionListing(msgspec.Struct, frozen=True):
    """The tools of all servers of a session, by the name of the server."""

    servers: dict[str, ServerListing] = {}


def compute_origin(server: ServerDefinition) -> str:
    """A digest of what a server is started with, without its credentials."""
    raw = msgspec.json.encode([server.command, server.args, server.url])
    return hashlib.sha256(raw).hexdigest()[:32]


def parse_tools(server: str, listed: Iterable[Any], names: set[str]) -> tuple[tuple[ListedTool, ...], int]:
    """The tools that a server lists, and how many are left out. `names` are taken; the new ones are added to them."""
    found: dict[str, ListedTool] = {}
    left_out = 0
    for raw in listed:
        tool = _parse(raw) if len(found) < MAX_TOOLS else None
        if tool is None or tool.tool in found:
            left_out += 1
            continue
        name = _make_name(server, tool.tool, names)
        names.add(name)
        found[tool.tool] = msgspec.structs.replace(tool, name=name)
    return tuple(found.values()), left_out


def _parse(raw: Any) -> ListedTool | None:
    """A tool without its name for the model; None if it cannot be used."""
    if not isinstance(raw, Mapping):
        return None
    tool, schema = raw.get("name"), raw.get("inputSchema")
    if not isinstance(tool, str) or not 0 < len(tool) <= 200 or not tool.isprintable():
        return None
    if not isinstance(schema, dict) or schema.get("type") != "object" or len(msgspec.json.encode(schema)) > MAX_SCHEMA:
        return None
    text = raw.get("description")
    description = sanitize_text(text if isinstance(text, str) else "").strip()[:MAX_DESCRIPTION]
    # Read again: strings of the schema may hold what no database stores.
    clean = msgspec.json.decode(sanitize_text(msgspec.json.encode(schema).decode()))
    return ListedTool("", tool, description or f"The tool {tool}.", clean)


def _make_name(server: str, tool: str, names: set[str]) -> str:
    """A name that all vendors accept and no other tool has."""
    name = _FOREIGN.sub("_", f"{PREFIX}{server}__{tool}")
    if len(name) <= MAX_NAME and name not in names:
        return name
    digest = hashlib.sha256(f"{server}\0{tool}".encode(errors="replace")).hexdigest()[:8]
    return f"{name[: MAX_NAME - 9]}_{digest}"


def check_schema(tool: ListedTool) -> ListedTool:
    """Note whether the tool can be declared: a vendor refuses the whole request for a schema that it does not accept.

    It may wait for another process.
    """
    is_plain = not any(key in tool.input_schema for key in _NOT_DECLARED)
    return msgspec.structs.replace(tool, is_declarable=is_plain and not find_schema_problem(tool.input_schema))


def list_tools(listing: SessionListing, servers: Mapping[str, ServerDefinition]) -> Iterator[tuple[str, ListedTool]]:
    """The tools of the servers that the agent has, with the names of their servers."""
    for server, definition in servers.items():
        if (found := listing.servers.get(server)) is not None:
            yield from ((server, tool) for tool in found.tools if definition.offers(tool.tool))


def collect_names(listing: SessionListing) -> set[str]:
    return {tool.name for server in listing.servers.values() for tool in server.tools}


async def load_listing(context: RuntimeContext, session: str) -> SessionListing | None:
    """The stored list; None before the first wake, or if another release has stored another form."""
    document = await context.ledger.document(_space(session), _PATH)
    if document is None or document.text is None:
        return None
    try:
        return msgspec.json.decode(document.text, type=SessionListing)
    except msgspec.MsgspecError:
        return None


def listing_document(session: str, listing: SessionListing) -> PutDocument:
    return PutDocument(space=_space(session), path=_PATH, text=msgspec.json.encode(listing).decode())


def _space(session: str) -> str:
    return f"runtime:{session}"

"""What the files of a blueprint may say: every key they know, and the rules that a type alone cannot state."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from fidelio.definitions.library.identifiers import suggest_names
from fidelio.definitions.reading import Path
from fidelio.orchestrator.blueprints.model import Limits, Permissions
from fidelio.orchestrator.blueprints.servers import Server, Text, server_faults
from fidelio.validation import schema_problem

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Where in the file, what is wrong, what to do.
Fault = tuple[Path, str, str]


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of `agent.json`. `skills` is taken for the sake of older files and means nothing."""

    name: Text
    description: Text
    executor: Text | None = None
    model: Text | None = None
    permissions: Permissions = Permissions()
    limits: Limits = Limits()
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None
    tags: tuple[str, ...] = ()
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    inherit: tuple[str, ...] = ()
    worktree: bool = False
    resume_lost: bool = False
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    skills: tuple[str, ...] = ()


class PageHead(Head, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The front matter of a single file: it has no second file for its servers."""

    mcp_servers: dict[str, Server] = msgspec.field(default_factory=dict)


class ServersFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of `agent.mcp.json`."""

    mcp_servers: dict[str, Server] = msgspec.field(default_factory=dict, name="mcpServers")


def unknown_keys(data: Any, shape: type[msgspec.Struct], path: Path = ()) -> Iterator[Fault]:
    """Keys that mean nothing, each with the one that was probably meant."""
    if not isinstance(data, dict):
        return
    kinds = {field.encode_name: field.type for field in msgspec.structs.fields(shape)}
    for key, value in data.items():
        here = (*path, key)
        if key not in kinds:
            yield here, "means nothing here.", suggest_names(key, kinds) or f"The keys are {', '.join(kinds)}."
        elif kinds[key] in (Permissions, Limits):
            yield from unknown_keys(value, kinds[key], here)
    for here, server in servers_in(data) if not path else ():
        yield from unknown_keys(server, Server, here)


def servers_in(data: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Every server in the front matter or in `agent.mcp.json`, and where it stands."""
    for key in ("mcp_servers", "mcpServers"):
        servers = data.get(key)
        yield from (((key, name), server) for name, server in servers.items()) if isinstance(servers, dict) else ()


def head_faults(head: Head, name: str) -> Iterator[Fault]:
    if head.name != name:
        yield ("name",), f"is {head.name!r:.80}, but on disk the blueprint is called {name}.", "Make the two names equal."
    if not head.description.strip():
        yield ("description",), "is empty.", "Say in a sentence what the agent is good for."
    for field in ("environment", "inherit"):
        for variable in getattr(head, field):
            if not _VARIABLE.fullmatch(variable):
                yield (field,), f"names {variable!r:.80}, which is no variable.", "Use letters, digits and underscores."
    for field in ("input_schema", "output_schema"):
        schema = getattr(head, field)
        if schema is not None and (fault := schema_problem(schema)):
            yield (field,), f"is no JSON Schema that can be used: {fault}", "Mend it there."


def servers_faults(servers: dict[str, Server], inherit: tuple[str, ...], under: Path) -> Iterator[Fault]:
    return (((*under, name), fault, remedy) for name, fault, remedy in server_faults(servers, inherit))


def texts_with_nul(data: Any, path: Path = ()) -> Iterator[Fault]:
    """No program can be given such a text; an escape may have brought it in."""
    if isinstance(data, str) and "\0" in data:
        yield path, "holds the character NUL, which no program can be given.", "Delete it."
    if isinstance(data, dict):
        items: Any = data.items()
    else:
        items = enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from texts_with_nul(value, (*path, key))

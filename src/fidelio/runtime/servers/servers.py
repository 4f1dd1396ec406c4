"""Gives a wake the tools of its MCP servers.

At the first wake of a session the servers are started and their tools are listed and stored; later wakes start a server only
when one of its tools is called. A server that cannot be used is an error on record, and the other tools work without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from fidelio.errors import ToolRefused, VaultProblem
from fidelio.ledger.model import NewEvent
from fidelio.providers.model import ToolDeclaration
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import ServerDefinition
from fidelio.runtime.environments.versions import Environment, load_environment
from fidelio.runtime.servers.connection import Connections
from fidelio.runtime.servers.credentials import Masks
from fidelio.runtime.servers.listing import (
    ListedTool,
    ServerListing,
    SessionListing,
    check_schema,
    collect_names,
    compute_origin,
    list_tools,
    listing_document,
    load_listing,
    parse_tools,
)
from fidelio.runtime.servers.tools import ServerTool, build_open, declare, describe_group
from fidelio.runtime.tools.catalogue import ExtraTool
from fidelio.runtime.tools.meta_definitions import OPEN
from fidelio.runtime.tools.model import event
from fidelio.runtime.wakes import ending
from fidelio.runtime.wakes.model_calls import until_interrupt
from fidelio.runtime.wakes.preparation import Prepared
from fidelio.runtime.wakes.updates import WakeUpdates
from fidelio.sandbox.host.proxy.addresses import is_listed

# Tools are declared to the model with its own up to here; more are opened as a group.
MAX_DECLARED = 20
MAX_DECLARED_CHARACTERS = 6_000
# How soon a wake tries a server again that could not be used.
RETRY_MS = 15 * 60 * 1000
_ERROR = "mcp_connection_failed_error"


@asynccontextmanager
async def open_servers(updates: WakeUpdates, prepared: Prepared, interrupt: asyncio.Event) -> AsyncIterator[Prepared]:
    """What the wake works with, with the tools of its MCP servers. Their processes end with the block."""
    servers = prepared.agent.definition.tools.mcp_servers
    if not servers:
        yield prepared
        return
    connections = Connections(updates.context, updates.loaded, servers)
    try:
        listing, notices = await _Lister(updates, connections, prepared, interrupt).update()
        yield replace(_offer(prepared, connections, listing), notices=notices)
    finally:
        await connections.close()


class _Lister:
    """Brings the stored list of tools up to date."""

    def __init__(self, updates: WakeUpdates, connections: Connections, prepared: Prepared, interrupt: asyncio.Event) -> None:
        self._updates, self._connections, self._interrupt = updates, connections, interrupt
        self._tools = prepared.agent.definition.tools

    async def update(self) -> tuple[SessionListing, tuple[str, ...]]:
        """The stored list with what was missing in it, and what the model has to know about that."""
        updates, servers, now = self._updates, self._tools.mcp_servers, self._updates.context.clock()
        stored = await load_listing(updates.context, updates.loaded.id)
        known = stored or SessionListing()
        due = [name for name, server in servers.items() if _is_due(known.servers.get(name), server, now)]
        if not due:
            return known, ()
        record = updates.loaded.record
        chosen = await load_environment(updates.context, record.environment, record.environment_version)
        answers = await until_interrupt(self._ask_all(due, chosen.environment), self._interrupt)
        names, found = collect_names(known), dict[str, ServerListing]()
        for name, answer in zip(due, answers, strict=True):
            found[name] = await self._build(name, answer, names, now=now, is_late=stored is not None)
        listing = SessionListing({**known.servers, **found})
        changed = {name: each for name, each in found.items() if _is_news(known.servers.get(name), each)}
        events = (_describe(found), *_report(changed))
        await updates.commit(events, documents=(listing_document(updates.loaded.id, listing),))
        return listing, tuple(_notice(changed))

    async def _ask_all(self, names: list[str], environment: Environment) -> list[list[Any] | str]:
        return await asyncio.gather(*(self._ask(name, environment) for name in names))

    async def _ask(self, name: str, environment: Environment) -> list[Any] | str:
        """What a server lists, or why it cannot be used."""
        if problem := _find_refusal(self._tools.mcp_servers[name], environment):
            return problem
        try:
            connection = await self._connections.connect(name)
        except (ToolRefused, VaultProblem) as error:
            return str(error.sentence)
        return [_mask(connection.masks, tool) for tool in connection.listed]

    async def _build(self, name: str, answer: list[Any] | str, names: set[str], *, now: int, is_late: bool) -> ServerListing:
        origin = compute_origin(self._tools.mcp_servers[name])
        if isinstance(answer, str):
            return ServerListing(origin, problem=answer[:2_000], failed_at=now, is_late=is_late)
        tools, left_out = parse_tools(name, answer, names)
        if len(tools) <= MAX_DECLARED or self._tools.all_tools:
            tools = tuple(await asyncio.to_thread(lambda: list(map(check_schema, tools))))
        return ServerListing(origin, tools, left_out, is_late=is_late)


def _find_refusal(server: ServerDefinition, environment: Environment) -> str:
    """Why the environment of the session does not allow a server; empty if it does."""
    host = (urlsplit(server.url).hostname or "") if server.url else ""
    if not host or environment.mcp_servers or is_listed(host, environment.hosts):
        return ""
    return f"The environment of the session does not allow MCP servers, and {host} is not one of its hosts."


def _is_due(known: ServerListing | None, server: ServerDefinition, now: int) -> bool:
    if known is None or known.origin != compute_origin(server):
        return True
    return bool(known.problem) and now >= known.failed_at + RETRY_MS


def _is_news(known: ServerListing | None, found: ServerListing) -> bool:
    """Whether somebody has to know: a server is unavailable now, or available for the first time after the first wake."""
    if known is None:
        return bool(found.problem) or found.is_late
    return bool(found.problem) != bool(known.problem)


def _mask(masks: Masks, value: Any) -> Any:
    """A listed tool without the secrets that its server repeats."""
    if not masks.values or not isinstance(value, str | dict | list):
        return value
    if isinstance(value, str):
        return masks.apply(value)
    if isinstance(value, dict):
        return {key: _mask(masks, inner) for key, inner in value.items()}
    return [_mask(masks, inner) for inner in value]


def _describe(found: Mapping[str, ServerListing]) -> NewEvent:
    servers = {
        name: {"tools": len(each.tools), **({"left_out": each.left_out} if each.left_out else {})}
        for name, each in found.items()
    }
    return event(e.SERVER_TOOLS_LISTED, {"servers": servers})


def _report(changed: Mapping[str, ServerListing]) -> Iterable[NewEvent]:
    for each in changed.values():
        if each.problem:
            remedy = "The agent works without its tools. Correct the server; it is tried again after 15 minutes."
            yield ending.report_error("", _ERROR, each.problem, remedy)


def _notice(changed: Mapping[str, ServerListing]) -> Iterable[str]:
    for name, each in changed.items():
        if each.problem:
            yield f"The MCP server {name} is not available now. Work without its tools."
        elif each.tools:
            yield f"The MCP server {name} is available now; tools_open shows its tools in the group mcp__{name}."


def _offer(prepared: Prepared, connections: Connections, listing: SessionListing) -> Prepared:
    """Declare the tools if they are few, and offer the others as a group."""
    servers = prepared.agent.definition.tools.mcp_servers
    tools = tuple(list_tools(listing, servers))
    extra: dict[str, ExtraTool] = dict(prepared.extra) | {
        tool.name: ServerTool(connections, server, servers[server], tool).build() for server, tool in tools
    }
    first = [(server, tool) for server, tool in tools if not listing.servers[server].is_late]
    # Without `tools_open` there is no other way to see them.
    all_tools = prepared.agent.definition.tools.all_tools or OPEN not in prepared.tools
    declared = _choose_declared(first, all_tools=all_tools)
    names = {tool.name for tool in declared}
    rest = [(server, tool) for server, tool in tools if tool.name not in names]
    if rest:
        extra[OPEN] = build_open(tools)
    shown = [item for item in first if item[1].name not in names]
    own = (_extend(declaration, shown) for declaration in prepared.declarations)
    return replace(prepared, extra=extra, declarations=(*own, *map(declare, declared)))


def _choose_declared(tools: list[tuple[str, ListedTool]], *, all_tools: bool) -> list[ListedTool]:
    """The tools that are declared. The choice depends on the stored list alone, so it is the same in every wake."""
    is_few = len(tools) <= MAX_DECLARED and sum(tool.characters for _, tool in tools) <= MAX_DECLARED_CHARACTERS
    return [tool for _, tool in tools if tool.is_declarable] if is_few or all_tools else []


def _extend(declaration: ToolDeclaration, shown: list[tuple[str, ListedTool]]) -> ToolDeclaration:
    if declaration.name != OPEN or not shown:
        return declaration
    return replace(declaration, description=f"{declaration.description} {describe_group(shown)}")

"""A connection to an MCP server: handshake, the list of its tools, calls. Each step has a time limit.

The connections of a wake are opened when they are first needed, and closed with it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from fidelio.errors import ToolRefused
from fidelio.ids import run_id
from fidelio.mcp_client.client import REVISION, Transport
from fidelio.retry import cancel_tasks
from fidelio.runtime.agents.definition import VAULT, ServerDefinition
from fidelio.runtime.servers.credentials import Masks, resolve_values
from fidelio.runtime.servers.listing import MAX_TOOLS
from fidelio.runtime.servers.process import Launch, start_server
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext

# A server may have to be installed first by the program that starts it.
CONNECT_SECONDS = 60.0
CALL_SECONDS = 300.0
_MAX_PAGES = 50
_CLIENT = {"name": "fidelio", "version": "1"}


class ServerTransport(Transport, Protocol):
    """A transport that can be closed."""

    async def close(self) -> None: ...


class ServerConnection:
    """An open connection. `tools` are the names of the tools that the server lists now."""

    def __init__(self, name: str, transport: ServerTransport, masks: Masks) -> None:
        self._name, self._transport, self.masks = name, transport, masks
        self._ids = itertools.count(1)
        self.listed: list[Any] = []

    @property
    def tools(self) -> set[str]:
        return {tool["name"] for tool in self.listed if isinstance(tool, dict) and isinstance(tool.get("name"), str)}

    async def connect(self) -> None:
        """Initialize the connection and list the tools. Raises `ToolRefused`."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._request("initialize", protocolVersion=REVISION, capabilities={}, clientInfo=_CLIENT)
                await self._transport.notify({"jsonrpc": "2.0", "method": "notifications/initialized"})
                self.listed = await self._list()
        except TimeoutError as error:
            raise self._failure(f"did not answer within {CONNECT_SECONDS:.0f} seconds") from error

    async def _list(self) -> list[Any]:
        """The tools as the server lists them. Of too many pages or tools the first ones."""
        found: list[Any] = []
        cursor: dict[str, str] = {}
        for _ in range(_MAX_PAGES):
            page = await self._request("tools/list", **cursor)
            tools, following = page.get("tools"), page.get("nextCursor")
            found += tools if isinstance(tools, list) else []
            if not isinstance(following, str) or not following or len(found) > MAX_TOOLS:
                break
            cursor = {"cursor": following}
        return found

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result of a tool call as the server gives it. Raises `ToolRefused`."""
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await self._request("tools/call", name=tool, arguments=dict(arguments))
        except TimeoutError as error:
            what = f"did not answer within {CALL_SECONDS:.0f} seconds; whether the call had an effect is not known"
            raise self._failure(what, "mcp_timeout") from error

    async def close(self) -> None:
        await self._transport.close()

    async def _request(self, method: str, **params: Any) -> Mapping[str, Any]:
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        reply = await self._transport.request(message)
        if (error := reply.get("error")) is not None:
            text = error.get("message", error) if isinstance(error, dict) else error
            raise self._failure(f"refused {method}: {self.masks.apply(str(text))[:1_000]}", "mcp_error")
        result = reply.get("result")
        if not isinstance(result, dict):
            raise self._failure(f"sent no result for {method}")
        return result

    def _failure(self, what: str, reason: str = "mcp_server_failed") -> ToolRefused:
        retryable = reason != "mcp_error"
        return ToolRefused(f"The MCP server {self._name} {what}.", reason=reason, retryable=retryable)


class Connections:
    """The connections of a wake to the servers of its agent, by name."""

    def __init__(self, context: RuntimeContext, session: LoadedRuntime, servers: Mapping[str, ServerDefinition]) -> None:
        self._context, self._session, self._servers = context, session, servers
        self._open: dict[str, asyncio.Task[ServerConnection]] = {}

    async def connect(self, name: str) -> ServerConnection:
        """The connection to a server, which is made if there is none. Raises `ToolRefused` and `VaultProblem`."""
        if name not in self._open:
            self._open[name] = asyncio.create_task(self._connect(name))
        try:
            return await asyncio.shield(self._open[name])
        except BaseException:
            # Also if the caller is cancelled: the next one begins anew.
            await self.drop(name)
            raise

    def find(self, name: str) -> ServerConnection | None:
        """The connection to a server if it is open."""
        task = self._open.get(name)
        is_open = task is not None and task.done() and not task.cancelled() and task.exception() is None
        return task.result() if task is not None and is_open else None

    async def drop(self, name: str) -> None:
        """Close a connection, whatever its state is."""
        task = self._open.pop(name, None)
        if task is None:
            return
        await cancel_tasks(task)
        if not task.cancelled() and task.exception() is None:
            await asyncio.shield(task.result().close())

    async def close(self) -> None:
        """Close all connections; also if the caller is cancelled, they are closed before it goes on."""
        closing = asyncio.gather(*map(self.drop, tuple(self._open)), return_exceptions=True)
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await asyncio.wait({closing})
            raise

    async def _connect(self, name: str) -> ServerConnection:
        transport, masks = await self._open_transport(name, self._servers[name])
        connection = ServerConnection(name, transport, masks)
        try:
            await connection.connect()
        except BaseException:
            await asyncio.shield(transport.close())
            raise
        return connection

    async def _open_transport(self, name: str, stored: ServerDefinition) -> tuple[ServerTransport, Masks]:
        record = self._session.record
        server, secrets = await self._context.ports.fill_server(self._session.id, name, stored)
        # Only what is stored names a vault: a value that was filled in is never taken for the name of one.
        named = {key: value for key, value in (stored.env or stored.headers).items() if value.startswith(VAULT)}
        resolved = await resolve_values(self._context, record, named)
        values, masks = {**(server.env or server.headers), **resolved.values}, Masks.of((*secrets, *resolved.secrets))
        run = run_id(self._session.id, 1)
        if server.url:
            from fidelio.runtime.servers.http import open_endpoint  # noqa: PLC0415  # 180 ms; most servers are programs

            how = {"run": run, "seconds": CALL_SECONDS}
            return await open_endpoint(self._context, record, name, server.url, values, masks, **how), masks
        launch = Launch(
            name=name,
            command=server.command,
            args=server.args,
            environment={"FIDELIO_HOME": str(self._context.home.path), **values},
            directory=await asyncio.to_thread(_find_directory, record.project, self._context.home.path),
            run=run,
            masks=masks,
        )
        return await start_server(launch), masks


def _find_directory(project: str, home: Path) -> Path:
    """Where a server is started: in the project, or in the home if that is missing."""
    return Path(project) if Path(project).is_dir() else home

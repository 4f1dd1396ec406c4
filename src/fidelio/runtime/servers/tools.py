"""The tools of MCP servers as tools of a session: their definitions, their calls, and the group that shows them.

Whatever a server says of its tools, they ask a person, unless the definition of the agent allows them by name. A call is
validated against the stored schema before a person is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from fidelio.errors import ToolRefused
from fidelio.ledger.long_text import json_text, sanitize_text
from fidelio.providers.model import ToolDeclaration
from fidelio.runtime.agents.tools import ANY_TOOL, ServerDefinition
from fidelio.runtime.servers.connection import Connections, ServerConnection
from fidelio.runtime.servers.listing import PREFIX, ListedTool, compute_origin
from fidelio.runtime.tools.catalogue import ExtraTool
from fidelio.runtime.tools.definitions import DEFINITIONS
from fidelio.runtime.tools.meta import META_IMPLEMENTATIONS
from fidelio.runtime.tools.meta_definitions import CALL, OPEN, ToolsOpen
from fidelio.runtime.tools.model import Implementation, Policy, Preparation, ToolCall, ToolDefinition, ToolResult
from fidelio.runtime.wakes.content import read_image
from fidelio.toolkit import read_arguments
from fidelio.validation import CheckUndecided, find_violations

GROUP = "mcp"
MAX_RESULT = 40_000
MAX_ARGUMENTS = 40_000
# Images of a result: the conversation keeps them, so they are paid again with every request.
MAX_IMAGES, MAX_IMAGE_CHARACTERS = 4, 7_000_000
# More names than this in the description of `tools_open` would be in every request; then only the servers are named.
MAX_NAMES = 3_000


class ServerArguments(msgspec.Struct, frozen=True):
    """The arguments of a tool of an MCP server, which its own schema describes."""

    arguments: dict[str, Any] = {}


def find_server_policy(server: ServerDefinition, tool: str) -> Policy:
    """The policy of a tool: its own, else that of all tools of the server (`*`), else it asks."""
    return server.policies.get(tool) or server.policies.get(ANY_TOOL, "always_ask")


class ServerTool:
    """Carries out the calls of a tool."""

    def __init__(self, connections: Connections, server: str, definition: ServerDefinition, tool: ListedTool) -> None:
        self._connections, self._server, self._definition, self._tool = connections, server, definition, tool

    def build(self) -> ExtraTool:
        tool = self._tool
        definition = ToolDefinition(
            name=tool.name,
            title=f"{tool.tool} of the MCP server {self._server}",
            description=tool.description,
            parameters=ServerArguments,
            group="mcp",
            effects=("mcp",),
            output=("content",),
            policy=find_server_policy(self._definition, tool.tool),
            destructive=True,
            interrupt="cancel",
            ownership="mcp",
        )
        return definition, Implementation(self._run, self._prepare)

    async def _prepare(self, _: ToolCall, passed: ServerArguments) -> Preparation:
        if (connection := self._connections.find(self._server)) is not None:
            self._check_listed(connection)
        await _check_arguments(self._tool, passed.arguments)
        about = f"It is the tool {self._tool.tool!r} of the MCP server {self._server}, {_describe_server(self._definition)}."
        return Preparation(bound={"mcp": compute_origin(self._definition)}, about=(about,))

    async def _run(self, _: ToolCall, passed: ServerArguments, __: Preparation) -> ToolResult:
        connection = await self._connections.connect(self._server)
        self._check_listed(connection)
        try:
            result = await connection.call(self._tool.tool, passed.arguments)
        except ToolRefused as error:
            if error.reason != "mcp_error":
                await self._connections.drop(self._server)
            raise
        except asyncio.CancelledError:
            # Nobody waits for the reply any more; the server must not go on with it.
            await self._connections.drop(self._server)
            raise
        return read_result(result, connection)

    def _check_listed(self, connection: ServerConnection) -> None:
        if self._tool.tool not in connection.tools:
            raise ToolRefused(
                f"The MCP server {self._server} has no tool {self._tool.tool!r:.100} any more.",
                remedy="Use another tool, or tell the person.",
                reason="unknown_tool",
            )


def _describe_server(server: ServerDefinition) -> str:
    if server.url:
        return f"which is at {urlsplit(server.url).hostname or 'an unknown address'}"
    return "which runs on this machine with your rights, outside of the sandbox"


async def _check_arguments(tool: ListedTool, arguments: Mapping[str, Any]) -> None:
    if len(json_text(arguments)) > MAX_ARGUMENTS:
        raise ToolRefused(
            f"The arguments of {tool.name} have more than {MAX_ARGUMENTS:,} characters.",
            remedy="Send less.",
            reason="invalid_arguments",
        )
    try:
        unusable, violation = await find_violations(tool.input_schema, arguments)
    except CheckUndecided as problem:
        raise ToolRefused(
            f"The arguments of {tool.name} could not be checked: {problem}", reason="invalid_arguments", retryable=True
        ) from problem
    if unusable or violation:
        what = f"The schema of {tool.name} cannot be used: {unusable}" if unusable else f"{tool.name}: {violation}"
        raise ToolRefused(what[:2_000], remedy="Look at the schema of the tool.", reason="invalid_arguments")


def read_result(result: Mapping[str, Any], connection: ServerConnection) -> ToolResult:
    """The result for the model: texts and images within bounds; everything else is only named."""
    content = result.get("content")
    blocks = [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []
    # The result of a failed call may only have texts: vendors refuse anything else in it.
    images = () if result.get("isError") else tuple(_choose_images(blocks))
    shown = [id(block) for block, _ in images]
    texts = [text for block in blocks for text in _read_block(block, is_shown=id(block) in shown)]
    if not texts and isinstance(result.get("structuredContent"), Mapping):
        texts = [json_text(result["structuredContent"])]
    whole = connection.masks.apply(sanitize_text("\n".join(texts)))
    text = whole if len(whole) <= MAX_RESULT else whole[:MAX_RESULT]
    more = {"truncated": True, "characters": len(whole)} if text is not whole else {}
    if result.get("isError"):
        error = {"code": "mcp_tool_error", "message": text or "The tool failed.", "retryable": False}
        return ToolResult(output={"ok": False, "error": error, **more}, is_error=True)
    return ToolResult(output={"ok": True, "content": text, **more}, images=tuple(image for _, image in images))


def _choose_images(blocks: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Choose the first images of a result that fit a model, each with its block."""
    left, characters = MAX_IMAGES, MAX_IMAGE_CHARACTERS
    for block in blocks:
        data, kind = block.get("data"), block.get("mimeType")
        if block.get("type") != "image" or not isinstance(data, str) or not isinstance(kind, str) or len(data) > characters:
            continue
        if left and (image := read_image(data, kind)) is not None:
            left, characters = left - 1, characters - len(data)
            yield block, image


def _read_block(block: Mapping[str, Any], *, is_shown: bool) -> Iterable[str]:
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        yield block["text"]
    elif kind == "resource" and isinstance(resource := block.get("resource"), Mapping):
        text = resource.get("text")
        yield text if isinstance(text, str) else f"[{resource.get('mimeType', 'resource')!s:.80}, not shown]"
    elif kind == "resource_link":
        yield f"{block.get('name', '')!s:.200}: {block.get('uri', '')!s:.1000}"
    else:
        data = block.get("data")
        size = f", {len(data) * 3 // 4:,} bytes" if isinstance(data, str) else ""
        yield f"[{kind!s:.40} {block.get('mimeType', '')!s:.80}{size}, {'below' if is_shown else 'not shown'}]"


def declare(tool: ListedTool) -> ToolDeclaration:
    return ToolDeclaration(tool.name, tool.description, tool.input_schema)


def describe_group(tools: Sequence[tuple[str, ListedTool]]) -> str:
    """What the description of `tools_open` says about the group."""
    names = ", ".join(tool.name for _, tool in tools)
    if len(names) > MAX_NAMES:
        counts = {server: sum(1 for other, _ in tools if other == server) for server, _ in tools}
        names = ", ".join(f"{PREFIX}{server} ({count} tools; also a group)" for server, count in counts.items())
    return f"{GROUP}: {names}."


def build_open(tools: Sequence[tuple[str, ListedTool]]) -> ExtraTool:
    """The tool `tools_open` of a session whose MCP servers have tools that are not declared."""
    definition = msgspec.structs.replace(DEFINITIONS[OPEN], parameters=ServerArguments)
    own = META_IMPLEMENTATIONS[OPEN]

    async def open_group(call: ToolCall, passed: ServerArguments, preparation: Preparation) -> ToolResult:
        wanted = read_arguments(OPEN, ToolsOpen, passed.arguments)
        found = [tool for server, tool in tools if wanted.group in (GROUP, f"{PREFIX}{server}", tool.name)]
        if not found:
            return await own.run(call, wanted, preparation)
        return ToolResult(output={"group": wanted.group, "callWith": CALL, **_show(found)})

    return definition, Implementation(open_group)


def _show(tools: Sequence[ListedTool]) -> dict[str, Any]:
    """The schemas of tools, as far as they fit into a result; of the others the names."""
    shown: list[dict[str, Any]] = []
    left = MAX_RESULT
    for tool in tools:
        left -= tool.characters
        if left < 0:
            break
        shown.append({"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema})
    names = [tool.name for tool in tools[len(shown) :]]
    more = {"more": names, "openWith": "tools_open with the name of a tool as its group"} if names else {}
    return {"tools": shown, **more}

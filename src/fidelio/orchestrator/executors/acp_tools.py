"""What an agent of the protocol does with its tools: their names, what they change, and what came of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from acp.schema import ContentToolCallContent, FileEditToolCallContent, TextContentBlock, ToolCall, ToolCallUpdate

from fidelio.orchestrator.executors.permissions import Change, mcp_name

Use = ToolCall | ToolCallUpdate

# Gemini and Qwen title a tool of a server so, Gemini makes up ids so, and a title without spaces is a name (OpenCode).
_TITLE = re.compile(r"(\S+) \((.+) MCP Server\)")
_MADE_UP = re.compile(r"(.+)__\1_\d+_\d+")
_NAME = re.compile(r"[\w.-]+")

_HARMLESS = frozenset({"read", "search", "think"})
_FILES = frozenset({"edit", "delete", "move"})


def name_of(use: Use, servers: Iterable[str]) -> str:
    """How the tool is called: for a tool of an MCP server `mcp__SERVER__TOOL`, else as the agent calls it."""
    title = use.title or ""
    if found := _TITLE.match(title):
        return mcp_name(found[2], found[1])
    given = (use.field_meta or {}).get("toolName")
    made_up = _MADE_UP.fullmatch(use.tool_call_id)
    name = str(given or (made_up[1] if made_up else "") or (title if _NAME.fullmatch(title) else "") or use.kind or "tool")
    return _of_server(name, servers)


def change_of(use: Use, project: Path) -> Change:
    """What the tool changes, as far as the agent says. Files elsewhere are not files of the project."""
    if use.kind in _HARMLESS:
        return "nothing"
    places = [Path(location.path) for location in use.locations or ()]
    inside = places and all((project / place).resolve().is_relative_to(project.resolve()) for place in places)
    return "files" if use.kind in _FILES and inside else "something"


def outcome_of(use: Use) -> str:
    """What came of it, as text."""
    texts = []
    for content in use.content or ():
        if isinstance(content, FileEditToolCallContent):
            texts.append(f"{content.path} was changed.")
        elif isinstance(content, ContentToolCallContent) and isinstance(content.content, TextContentBlock):
            texts.append(content.content.text)
    return "\n".join(texts)


def arguments_of(use: Use) -> Any:
    return use.raw_input or ({"title": use.title} if use.title else None)


def _of_server(name: str, servers: Iterable[str]) -> str:
    for server in servers:
        for beginning in (f"mcp__{server}__", f"mcp_{server}_", f"{server}_"):
            if name.startswith(beginning):
                return mcp_name(server, name.removeprefix(beginning))
    return name

"""How agents are told about Fidelio: one entry in the configuration file of each client.

Pure text in, text out. What is there stays there: an entry is added or left alone, never replaced, and a file that cannot be
read whole (JSON with comments, broken TOML) is not touched.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

NAME = "fidelio"


@dataclass(frozen=True, slots=True)
class Client:
    """A program that starts MCP servers, and the file in a project that tells it which."""

    name: str
    title: str
    file: str
    add: Callable[[str, Sequence[str]], str]


class CannotEdit(Exception):
    """The file is not something we can add to without risk. The text says why."""


def _json_adder(*path: str, **extra: str) -> Callable[[str, Sequence[str]], str]:
    def add(text: str, command: Sequence[str]) -> str:
        config = _read_json(text)
        servers = _descend(config, path)
        if NAME in servers:
            return text
        servers[NAME] = {**extra, "command": command[0], "args": list(command[1:])}
        return json.dumps(config, indent=_indent(text), ensure_ascii=False) + "\n"

    return add


def _add_toml(text: str, command: Sequence[str]) -> str:
    try:
        config = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CannotEdit(f"it is not valid TOML ({error})") from error
    servers = config.get("mcp_servers", {})
    if not isinstance(servers, dict):
        raise CannotEdit("its key mcp_servers is not a table")
    if NAME in servers:
        return text
    # Appending a table is safe whatever stands before it, and keeps every comment.
    gap = "\n" if text.strip() else ""
    start = text if text.endswith("\n") or not text else text + "\n"
    return f"{start}{gap}[mcp_servers.{NAME}]\ncommand = {json.dumps(command[0])}\nargs = {json.dumps(list(command[1:]))}\n"


CLIENTS = (
    Client("claude", "Claude Code", ".mcp.json", _json_adder("mcpServers")),
    Client("codex", "Codex", ".codex/config.toml", _add_toml),
    Client("cursor", "Cursor", ".cursor/mcp.json", _json_adder("mcpServers")),
    Client("vscode", "VS Code", ".vscode/mcp.json", _json_adder("servers", type="stdio")),
    Client("gemini", "Gemini CLI", ".gemini/settings.json", _json_adder("mcpServers")),
)


def _read_json(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        config = json.loads(text)
    except ValueError as error:
        raise CannotEdit(f"it is not plain JSON ({error})") from error
    if not isinstance(config, dict):
        raise CannotEdit("it does not hold an object")
    return config


def _descend(config: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    place = config
    for key in path:
        place = place.setdefault(key, {})
        if not isinstance(place, dict):
            raise CannotEdit(f"its key {key} is not an object")
    return place


def _indent(text: str) -> int | str:
    """The indentation the file uses already, so that a change shows only what was added."""
    line = next((line for line in text.splitlines()[1:] if line[:1] in (" ", "\t")), "  ")
    space = line[: len(line) - len(line.lstrip())]
    return space if "\t" in space else len(space)

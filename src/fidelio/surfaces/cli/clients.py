"""How agents are told about Fidelio: which client reads which file of a project, and what its entry looks like there.

Pure text in, text out. What is there stays there: an entry is added or left alone, never replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fidelio.surfaces.cli.insertion import Entry, into_json, into_toml

NAME = "fidelio"


@dataclass(frozen=True, slots=True)
class Client:
    """A program that starts MCP servers, and the file in a project that tells it which."""

    name: str
    title: str
    file: str
    table: str
    insert: Callable[[str, Entry], str] = into_json
    kind: str = ""

    def add(self, text: str, command: Sequence[str]) -> str:
        """The text of its file with an entry for Fidelio; raises `CannotEdit` where that is not safe."""
        kind = {"type": self.kind} if self.kind else {}
        return self.insert(text, Entry(self.table, NAME, {**kind, "command": command[0], "args": list(command[1:])}))


CLIENTS = (
    Client("claude", "Claude Code", ".mcp.json", "mcpServers"),
    Client("codex", "Codex", ".codex/config.toml", "mcp_servers", into_toml),
    Client("cursor", "Cursor", ".cursor/mcp.json", "mcpServers"),
    Client("vscode", "VS Code", ".vscode/mcp.json", "servers", kind="stdio"),
    Client("gemini", "Gemini CLI", ".gemini/settings.json", "mcpServers"),
)

"""What an agent may do without asking: one rule for every kind of agent that lets us decide.

Each of them names its tools in its own words, so an entry of `allow` or `deny` is one of those words or a pattern for them. The
tools of an MCP server have one spelling that holds everywhere: `mcp__SERVER__TOOL`, and `mcp__SERVER` for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Literal

from fidelio.orchestrator.blueprints.model import Permissions

Verdict = Literal["allow", "deny", "ask"]
# What a use of a tool changes: nothing, files of the project, or something else.
Change = Literal["nothing", "files", "something"]
# How the answers are called that a person can give to a request for leave.
ALLOW, REFUSE = "allow", "refuse"


def verdict(permissions: Permissions, names: Iterable[str], change: Change) -> Verdict:
    """Whether the tool that is called by these names may be used, or a person has to be asked."""
    names = tuple(names)
    if is_named(permissions.deny, names):
        return "deny"
    if permissions.mode == "full" or change == "nothing" or is_named(permissions.allow, names):
        return "allow"
    if permissions.mode == "read":
        return "deny"
    return "allow" if permissions.mode == "edit" and change == "files" else "ask"


def is_named(entries: Iterable[str], names: Iterable[str]) -> bool:
    """Whether one of the entries means one of the names."""
    names = tuple(names)
    return any(fnmatchcase(name, entry) or name.startswith(f"{entry}__") for entry in entries for name in names)


def mcp_name(server: str, tool: str = "") -> str:
    """How a tool of a server, or the whole server, is called in a blueprint."""
    return f"mcp__{server}__{tool}" if tool else f"mcp__{server}"

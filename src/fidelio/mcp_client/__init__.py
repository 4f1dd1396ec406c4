"""MCP client: connects to a server, calls one tool at a time, disconnects.

Here is only how a server is reached, which blueprints store; `client` talks to it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class McpServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server whose tools the agent gets: a command to start, or an address."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    url: str | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)

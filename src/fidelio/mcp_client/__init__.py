"""MCP client: connects to a server, calls tools in sequence, disconnects.

This module defines the address of a server, which blueprints store; `client` speaks the protocol.
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

"""A blueprint as everything above the reader sees it: checked, whole, and with the hash of what it was read from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

# `ask`: whatever changes something is a question in the inbox. `read`: nothing may change anything. `edit`: files of the
# project may be changed, the rest is asked. `full`: nothing is asked; for sandboxes.
PermissionMode = Literal["ask", "read", "edit", "full"]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class Permissions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the agent may do without asking. `allow` and `deny` name tools in the executor's own words."""

    mode: PermissionMode = "ask"
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a run is ended. Tokens and money count where the agent reports them."""

    wall_seconds: Annotated[float, msgspec.Meta(gt=0)] = 3600.0
    turns: AtLeastOne | None = None
    # At most what one text of the record holds, so that no result is ever cut.
    output_bytes: Annotated[int, msgspec.Meta(ge=1, le=64_000_000)] = 32_000_000
    tokens: AtLeastOne | None = None
    cost_usd: Annotated[float, msgspec.Meta(gt=0)] | None = None


class McpServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server whose tools the agent gets: a command to start, or an address."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    url: str | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


class Blueprint(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is started from. `hash` commits to the files it was read from, `options` belong to its executor."""

    name: str
    description: str
    system_prompt: str = ""
    executor: str | None = None
    model: str | None = None
    permissions: Permissions = Permissions()
    limits: Limits = Limits()
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    tags: tuple[str, ...] = ()
    # Values that are set, and names that are passed on from the environment of whoever runs the agent.
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    inherit: tuple[str, ...] = ()
    mcp_servers: Mapping[str, McpServer] = msgspec.field(default_factory=dict)
    # Whether a run that was lost with its process is resumed by itself.
    resume_lost: bool = False
    worktree: bool = False
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    source: str = ""
    hash: str = ""


# What a session without a blueprint runs as.
GENERIC = Blueprint(name="", description="An agent without a blueprint.")

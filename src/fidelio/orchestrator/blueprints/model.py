"""The value of a blueprint: checked, whole, with the hash of the files it was read from; and the rules of its limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from fidelio.mcp_client import McpServer
from fidelio.orchestrator.record.model import Usage

# `ask`: whatever changes something is a question in the inbox. `read`: nothing may change anything. `edit`: files of the
# project may be changed, the rest is asked. `full`: nothing is asked; for sandboxes.
PermissionMode = Literal["ask", "read", "edit", "full"]
PositiveInt = Annotated[int, msgspec.Meta(ge=1)]


class Permissions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the agent may do without asking. `allow` and `deny` name tools in the executor's own words."""

    mode: PermissionMode = "ask"
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a run is ended. Tokens and money count where the agent reports them."""

    wall_seconds: Annotated[float, msgspec.Meta(gt=0)] = 3600.0
    turns: PositiveInt | None = None
    # At most what one text of the record holds, so that no result is ever cut.
    output_bytes: Annotated[int, msgspec.Meta(ge=1, le=64_000_000)] = 32_000_000
    tokens: PositiveInt | None = None
    cost_usd: Annotated[float, msgspec.Meta(gt=0)] | None = None


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
DEFAULT_BLUEPRINT = Blueprint(name="", description="An agent without a blueprint.")


def find_exceeded_limit(limits: Limits, usage: Usage, output_bytes: int) -> str:
    """The name of the first limit that is passed, empty while all are kept."""
    spent = {
        "turns": (usage.turns, limits.turns),
        "output_bytes": (output_bytes, limits.output_bytes),
        "tokens": (usage.input_tokens + usage.output_tokens, limits.tokens),
        "cost_usd": (usage.cost_usd, limits.cost_usd),
    }
    return next((name for name, (used, most) in spent.items() if most is not None and used > most), "")


def remaining_seconds(limits: Limits, *, started_at: int, waited_ms: int, now: int) -> float:
    """What is left of the wall time. Waiting for a person does not count: people sleep."""
    return limits.wall_seconds - (now - started_at - waited_ms) / 1000

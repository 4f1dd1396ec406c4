"""The value of a valid blueprint, with the hash of its files; and the rules of its limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol

import msgspec

from fidelio.errors import LimitReached
from fidelio.mcp_client import McpServer
from fidelio.orchestrator.record.model import MODES, PermissionMode, Permissions, Usage, narrow_permissions

__all__ = [
    "DEFAULT_BLUEPRINT",
    "MODES",
    "Blueprint",
    "Limits",
    "PermissionMode",
    "Permissions",
    "Tools",
    "effective_mode",
    "find_exceeded_limit",
    "find_own_policies",
    "narrow_permissions",
    "reduce_limits",
    "remaining_seconds",
]

# The tools of an agent: those of its program, or the toolset `sandbox` of Fidelio instead of them.
Tools = Literal["own", "sandbox"]
PositiveInt = Annotated[int, msgspec.Meta(ge=1)]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a run. Tokens and cost count where the agent reports them."""

    wall_seconds: Annotated[float, msgspec.Meta(gt=0)] = 3600.0
    turns: PositiveInt | None = None
    # At most the size of a text in the ledger, so that no result is ever cut.
    output_bytes: Annotated[int, msgspec.Meta(ge=1, le=64_000_000)] = 32_000_000
    tokens: PositiveInt | None = None
    cost_usd: Annotated[float, msgspec.Meta(gt=0)] | None = None


# Executors whose programs no permission mode restrains.
_UNRESTRAINED = frozenset({"command"})


class Blueprint(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of an agent. `hash` is the digest of its files, `options` are passed to its executor."""

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
    # Variables that are set, and names of variables that are inherited from the environment of the agent host.
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    inherit: tuple[str, ...] = ()
    mcp_servers: Mapping[str, McpServer] = msgspec.field(default_factory=dict)
    # Whether a run that was lost with its process is resumed automatically.
    resume_lost: bool = False
    worktree: bool = False
    tools: Tools = "own"
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    source: str = ""
    hash: str = ""


class HasTools(Protocol):
    """A blueprint, or the head of its file."""

    @property
    def executor(self) -> str | None: ...
    @property
    def tools(self) -> Tools: ...
    @property
    def options(self) -> Mapping[str, Any]: ...


# The blueprint of a session that names none.
DEFAULT_BLUEPRINT = Blueprint(name="", description="An agent without a blueprint.")


def find_exceeded_limit(limits: Limits, usage: Usage, output_bytes: int) -> str:
    """The name of the first limit that is exceeded, or an empty string."""
    spent = {
        "turns": (usage.turns, limits.turns),
        "output_bytes": (output_bytes, limits.output_bytes),
        "tokens": (usage.input_tokens + usage.output_tokens, limits.tokens),
        "cost_usd": (usage.cost_usd, limits.cost_usd),
    }
    return next((name for name, (used, most) in spent.items() if most is not None and used > most), "")


def reduce_limits(limits: Limits, spent: Usage, worked_ms: int) -> Limits:
    """The rest of the limits after runs without a request of a person. Raises `LimitReached` if a limit is used up."""
    left = {
        "wall_seconds": limits.wall_seconds - worked_ms / 1000,
        "turns": None if limits.turns is None else limits.turns - spent.turns,
        "tokens": None if limits.tokens is None else limits.tokens - spent.input_tokens - spent.output_tokens,
        "cost_usd": None if limits.cost_usd is None else limits.cost_usd - spent.cost_usd,
    }
    for name, value in left.items():
        if value is not None and value <= 0:
            raise LimitReached(
                f"The session has used up its limit of {name} since a person last asked it for something.",
                remedy="A person can resume it or send it a message.",
                reason=f"limit.{name}",
            )
    return msgspec.structs.replace(limits, **left)


def remaining_seconds(limits: Limits, *, started_at: int, waited_ms: int, now: int) -> float:
    """The rest of the wall time. Waiting for a person does not count."""
    return limits.wall_seconds - (now - started_at - waited_ms) / 1000


def find_own_policies(blueprint: HasTools, executor: str = "") -> str:
    """Whose policies decide what the agent asks, where not the permissions of the blueprint do; else empty."""
    if blueprint.tools == "sandbox":
        return "the sandbox"
    agent = blueprint.options.get("agent") if (executor or blueprint.executor) == "fidelio" else None
    return f"the agent {agent}" if agent else ""


def effective_mode(blueprint: Blueprint, executor: str = "") -> PermissionMode:
    """The permission mode that holds for an executor, by default that of the blueprint: no mode restrains a `command`."""
    return "full" if (executor or blueprint.executor) in _UNRESTRAINED else blueprint.permissions.mode

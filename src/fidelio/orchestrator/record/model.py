"""Public values of agent sessions: session, run, result, and the parameters of a start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from fidelio.inbox import PROVEN
from fidelio.mcp_client import McpServer

RunState = Literal["queued", "starting", "running", "waiting", "succeeded", "failed", "stopped", "lost"]
ACTIVE_STATES: frozenset[str] = frozenset({"queued", "starting", "running", "waiting"})


# `ask`: every change needs the answer to a request. `read`: no changes. `edit`: files of the project may be changed, everything
# else needs an answer. `full`: no requests; for sandboxes.
PermissionMode = Literal["ask", "read", "edit", "full"]
# From the fewest rights to the most.
MODES: tuple[PermissionMode, ...] = ("read", "ask", "edit", "full")


class Permissions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the agent may do without asking. `allow` and `deny` hold tool names of the executor.

    `answered_by` says whose yes counts where it asks: a person's, or only one that is signed with a registered key.
    """

    mode: PermissionMode = "ask"
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    answered_by: Literal["person", "proven"] = "person"

    @property
    def needs_proof(self) -> bool:
        return self.answered_by == PROVEN


def narrow_permissions(wanted: Permissions, most: Permissions | None) -> Permissions:
    """What an agent may do that wants `wanted` and may have at most `most`."""
    if most is None:
        return wanted
    mode = min(wanted.mode, most.mode, key=MODES.index)
    allow = wanted.allow if most.mode == "full" else tuple(name for name in wanted.allow if name in most.allow)
    deny = tuple(dict.fromkeys((*wanted.deny, *most.deny)))
    answered_by: Literal["person", "proven"] = PROVEN if wanted.needs_proof or most.needs_proof else "person"
    return Permissions(mode=mode, allow=allow, deny=deny, answered_by=answered_by)


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of a run as the agent reports it: running totals, not increments."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{field: getattr(self, field) + getattr(other, field) for field in Usage.__struct_fields__})

    def __sub__(self, other: Usage) -> Usage:
        return Usage(**{field: getattr(self, field) - getattr(other, field) for field in Usage.__struct_fields__})


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A turn of an agent. `reason` is a stable code (`limit.wall_seconds`, `exit.1`, ...), `detail` a sentence."""

    id: str
    number: int
    state: RunState
    reason: str = ""
    detail: str = ""
    blueprint_hash: str = ""
    usage: Usage = Usage()
    tool_calls: int = 0
    last_activity: str = ""
    queued_at: int = 0
    started_at: int | None = None
    ended_at: int | None = None

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE_STATES


class AgentSession(msgspec.Struct, frozen=True, kw_only=True):
    """A named conversation with an agent. `run` is its newest run; `question` is the request that a person has to answer."""

    id: str
    name: str
    project: str
    blueprint: str
    executor: str
    run: Run
    parent: str | None = None
    depth: int = 0
    conversation: str | None = None
    question: str | None = None
    queued_messages: int = 0
    worktree: str | None = None
    changes: str = ""
    created_at: int = 0
    updated_at: int = 0

    @property
    def status(self) -> str:
        """`running` or `finished`, the two values that every client knows; `run.state` is more precise."""
        return "running" if self.run.is_active else "finished"


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run: its whole text, and structured data where the blueprint has an output schema."""

    session: AgentSession
    run: Run
    text: str
    data: Any = None


class StartAgent(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a new session. `project` is an absolute directory, None for the default project.

    `prompt` is a text, or an object where the blueprint has an input schema. `parent` is the session that starts it;
    `callback` sends that session a message when this one's run has ended.
    """

    name: str
    prompt: str | dict[str, Any]
    blueprint: str | None = None
    project: str | None = None
    executor: str | None = None
    model: str | None = None
    parent: str | None = None
    callback: bool = False
    worktree: bool | None = None
    # Servers in addition to those of the blueprint, for this session only.
    mcp_servers: Mapping[str, McpServer] = msgspec.field(default_factory=dict)
    # With `tools: sandbox` in the blueprint: the name of the sandbox session; empty for one of its own.
    sandbox: str = ""
